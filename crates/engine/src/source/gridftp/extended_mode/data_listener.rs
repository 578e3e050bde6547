//! Listens for the data connections of MODE E, which the server opens.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::retry::Retry;
use longhaul_sys::sockopt::set_recv_buffer;
use socket2::{Domain, Protocol, Socket, Type};

use crate::connect::SocketSettings;
use crate::source::gridftp::error::FtpError;

/// The listen backlog: a server opens all connections at once.
const BACKLOG: i32 = 1024;

/// Accepts connections from one peer.
pub(super) struct DataListener {
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
    /// The peer of the control connection.
    peer: SocketAddr,
}

impl DataListener {
    /// Listens at the local address of the control connection, which the server can reach.
    pub(super) fn open(
        local: SocketAddr,
        peer: SocketAddr,
        settings: SocketSettings<'_>,
    ) -> Result<Self, FtpError> {
        let at = SocketAddr::new(local.ip(), 0);
        let open = || -> io::Result<Self> {
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
            // Set before listening: accepted sockets inherit the buffer, and the handshake fixes
            // the window scale.
            if let Some(size) = settings.recv_buffer {
                set_recv_buffer(&socket, size)?;
            }
            if let Some(name) = settings.congestion {
                socket.set_tcp_congestion(name.as_bytes())?;
            }
            let mut bound = at;
            if let (SocketAddr::V6(bound), SocketAddr::V6(local)) = (&mut bound, local) {
                bound.set_scope_id(local.scope_id());
            }
            socket.bind(&bound.into())?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            let socket = TcpListener::from(socket);
            let address = socket.local_addr()?;
            Ok(Self { socket, address, peer })
        };
        open().map_err(|error| cannot_listen(at, &error))
    }

    /// Accepts the next pending connection, if any; closes connections from other hosts than the
    /// server.
    ///
    /// The socket does not block.
    pub(super) fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>, FtpError> {
        loop {
            match self.socket.accept() {
                Ok((socket, from)) if from.ip().to_canonical() == self.peer.ip().to_canonical() => {
                    let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
                    if ready.is_ok() {
                        return Ok(Some((socket, from)));
                    }
                }
                Ok((_, from)) => {
                    tracing::warn!("a data connection from {from}, which is not the server, is closed")
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(cannot_listen(self.address, &error)),
            }
        }
    }
}

/// Creates the error of a listener; this host may have ports or descriptors again later.
fn cannot_listen(local: SocketAddr, error: &io::Error) -> FtpError {
    let message = format!("cannot listen for data connections at {local}: {error}");
    Failure::new(FailureKind::Host, message).with_retry(Retry::Backoff).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Waits for an accepted connection.
    fn accepted(listener: &DataListener) -> Option<SocketAddr> {
        let began = std::time::Instant::now();
        let mut accept = || listener.accept().unwrap().map(|(_, from)| from);
        std::iter::from_fn(|| (began.elapsed() < Duration::from_secs(60)).then(&mut accept)).flatten().next()
    }

    #[test]
    fn only_the_server_may_connect() {
        let server: SocketAddr = "127.0.0.2:21".parse().unwrap();
        let settings =
            SocketSettings { recv_buffer: None, congestion: None, tick: Duration::from_millis(20) };
        let listener = DataListener::open("127.0.0.1:0".parse().unwrap(), server, settings).unwrap();
        let _stranger = TcpStream::connect(listener.address).unwrap();
        let of_server = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        of_server.bind(&"127.0.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        of_server.connect(&listener.address.into()).unwrap();
        let from = accepted(&listener).unwrap();
        assert_eq!(from.ip(), server.ip());
        assert!(listener.accept().unwrap().is_none());
    }
}
