//! A connection that is begun before its stream is: the handshake runs while the answer to another connection's request is awaited.

use std::io;
use std::net::{SocketAddr, TcpStream};

use socket2::Socket;

use super::deadline::Deadline;
use super::dial::{self, SocketSettings};

/// A connection whose handshake is under way. Closed where it is dropped.
pub(crate) struct AheadConnection {
    peer: SocketAddr,
    socket: Socket,
}

impl AheadConnection {
    /// Sends the SYN, and does not wait.
    ///
    /// # Errors
    /// Those of socket(2) and connect(2).
    pub(crate) fn start(peer: SocketAddr, settings: SocketSettings<'_>) -> io::Result<Self> {
        Ok(Self { peer, socket: dial::start(peer, settings)? })
    }

    /// Returns the address that it leads to.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for the end of the handshake; `None` where it has failed, or by the deadline.
    pub(crate) fn finish(self, settings: SocketSettings<'_>, deadline: &Deadline<'_>) -> Option<TcpStream> {
        let running = [(self.peer, self.socket)];
        while deadline.check_cancel().is_ok() && !deadline.left().is_zero() {
            if !dial::finished(&running, settings.tick.min(deadline.left())).is_empty() {
                let [(_, socket)] = running;
                return dial::finish(socket, settings).ok();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::cancel::Cancel;

    const SETTINGS: SocketSettings<'_> =
        SocketSettings { recv_buffer: None, congestion: None, tick: Duration::from_millis(20) };

    #[test]
    fn connection_begun_ahead_carries_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ahead = AheadConnection::start(listener.local_addr().unwrap(), SETTINGS).unwrap();
        let (cancel, limit) = (Cancel::new(), Duration::from_secs(5));
        let mut stream = ahead.finish(SETTINGS, &Deadline::new(&cancel, limit)).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn refused_connection_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let (cancel, limit) = (Cancel::new(), Duration::from_secs(5));
        let refused = AheadConnection::start(address, SETTINGS)
            .ok()
            .and_then(|ahead| ahead.finish(SETTINGS, &Deadline::new(&cancel, limit)));
        assert!(refused.is_none());
    }
}
