//! Polls the control connection, new data connections, and data.

use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::accepted_connections::AcceptedConnections;
use super::channel::Channel;

/// The connections that can be read without waiting.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Readiness {
    pub(super) control: bool,
    pub(super) listener: bool,
    /// Indices of channels in ascending order.
    pub(super) channels: Vec<usize>,
}

/// Waits up to `tick` until anything is readable; does not wait if `has_buffered` is set for
/// already received replies.
///
/// Excludes channels without an assigned chunk, because poll(2) would report their end again and
/// again.
pub(super) fn wait(
    control: &TcpStream,
    has_buffered: bool,
    mut data: Option<&mut AcceptedConnections>,
    tick: Duration,
) -> Readiness {
    let flags = PollFlags::IN | PollFlags::RDHUP;
    // poll(2) does not show bytes that were already received.
    let channels = data.as_deref_mut().map_or(&mut [][..], |data| &mut data.channels);
    let known = |(index, channel): (usize, &mut Channel)| {
        channel.chunk.is_some().then(|| (index, channel.has_buffered()))
    };
    let known: Vec<(usize, bool)> = channels.iter_mut().enumerate().filter_map(known).collect();
    let data = data.as_deref();
    let mut fds = vec![PollFd::new(control, flags)];
    fds.extend(data.map(|data| PollFd::new(&data.listener.socket, PollFlags::IN)));
    let channels = data.map_or(&[][..], |data| &data.channels);
    fds.extend(known.iter().map(|(index, _)| PollFd::new(channels[*index].transport.socket(), flags)));
    let is_waiting = has_buffered || known.iter().any(|(_, buffered)| *buffered);
    let timeout = Timespec::try_from(if is_waiting { Duration::ZERO } else { tick }).ok();
    // An interrupted poll ends early.
    if poll(&mut fds, timeout.as_ref()).is_err() {
        return Readiness::default();
    }
    let mut readable = fds.iter().map(|fd| !fd.revents().is_empty());
    let control = readable.next().unwrap_or(false) || has_buffered;
    let listener = data.is_some() && readable.next().unwrap_or(false);
    let ready = known.iter().zip(readable).filter(|((_, buffered), readable)| *readable || *buffered);
    Readiness { control, listener, channels: ready.map(|((index, _), _)| *index).collect() }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Instant;

    use socket2::Socket;

    use super::*;
    use crate::connect::SocketSettings;
    use crate::source::gridftp::data_protection::DataProtection;
    use crate::source::gridftp::extended_mode::data_listener::DataListener;

    const TICK: Duration = Duration::from_millis(200);

    /// Creates a listener with one accepted connection, and returns the server's end of that
    /// connection.
    fn accepted_connections() -> (AcceptedConnections, TcpStream) {
        let settings = SocketSettings { recv_buffer: None, congestion: None, tick: TICK };
        let local = "127.0.0.1:0".parse().unwrap();
        let listener = DataListener::open(local, local, settings).unwrap();
        let server = TcpStream::connect(listener.address).unwrap();
        let mut data = AcceptedConnections::new(listener, 1, DataProtection::Clear);
        while data.channels.is_empty() {
            data.accept("ftp://h/f").unwrap();
        }
        (data, server)
    }

    #[test]
    fn reset_of_an_unassigned_connection_does_not_end_the_wait() {
        let control = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = TcpStream::connect(control.local_addr().unwrap()).unwrap();
        let (mut data, mut server) = accepted_connections();
        server.write_all(b"x").unwrap();
        let server = Socket::from(server);
        server.set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        let began = Instant::now();
        let ready = wait(&control, false, Some(&mut data), TICK);
        assert_eq!(ready, Readiness::default());
        assert!(began.elapsed() >= TICK);
        data.channels[0].chunk = Some(0);
        assert_eq!(wait(&control, false, Some(&mut data), TICK).channels, [0]);
    }
}
