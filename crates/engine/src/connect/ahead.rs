//! A connection opened before its stream needs it: the handshake runs while the answer on another
//! connection is awaited.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::deadline::Deadline;
use super::dial::{self, SocketSettings};

/// A connecting socket, closed on drop.
pub(crate) struct AheadConnection {
    peer: SocketAddr,
    socket: Socket,
    begun: Instant,
}

/// The maximum age of an unused connection, and the timeout of its handshake: servers close
/// connections without a request (HAProxy's usual `timeout http-request` is 5 to 10 s).
pub(crate) const MAX_UNUSED_AGE: Duration = Duration::from_secs(3);

impl AheadConnection {
    /// Sends the SYN without waiting.
    ///
    /// # Errors
    /// The errors of socket(2) and connect(2).
    pub(crate) fn start(peer: SocketAddr, settings: SocketSettings<'_>) -> io::Result<Self> {
        Ok(Self { peer, socket: dial::start(peer, settings)?, begun: Instant::now() })
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for the end of the handshake; `None` if the handshake fails or takes too long, or the
    /// server has closed or responded without a request.
    pub(crate) fn finish(self, settings: SocketSettings<'_>, deadline: &Deadline<'_>) -> Option<TcpStream> {
        let running = [(self.peer, self.socket)];
        while deadline.check_cancel().is_ok() {
            let left = MAX_UNUSED_AGE.saturating_sub(self.begun.elapsed()).min(deadline.left());
            if left.is_zero() {
                return None;
            }
            if !dial::finished(&running, settings.tick.min(left)).is_empty() {
                let [(_, socket)] = running;
                return if is_silent(&socket) { dial::finish(socket, settings).ok() } else { None };
            }
        }
        None
    }
}

/// Returns whether neither data nor an end has arrived.
fn is_silent(socket: &Socket) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::cancel::Cancel;

    const SETTINGS: SocketSettings<'_> =
        SocketSettings { recv_buffer: None, congestion: None, tick: Duration::from_millis(20) };

    #[test]
    fn only_an_open_and_silent_connection_is_used() {
        let (listener, cancel) = (TcpListener::bind("127.0.0.1:0").unwrap(), Cancel::new());
        let address = listener.local_addr().unwrap();
        let start = || AheadConnection::start(address, SETTINGS);
        let finish =
            |ahead: AheadConnection| ahead.finish(SETTINGS, &Deadline::new(&cancel, Duration::from_secs(30)));
        let mut stream = finish(start().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();

        let closed = start().unwrap();
        drop(listener.accept().unwrap());
        poll(&mut [PollFd::new(&closed.socket, PollFlags::RDHUP)], None).unwrap();
        assert!(finish(closed).is_none(), "closed");

        drop(listener);
        assert!(start().ok().and_then(finish).is_none(), "refused");
    }
}
