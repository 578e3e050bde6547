//! A connected socket, bare or within TLS.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ClientConnection;

use super::inbox::Inbox;

/// What one attempt to receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// So many bytes; never zero.
    Data(usize),
    /// The tick passed without any.
    Idle,
    /// The other end has finished; `clean` unless TLS ended without its closing message.
    End { clean: bool },
}

/// A byte stream to the server.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// TLS over a socket.
pub(super) struct TlsStream {
    pub(super) session: ClientConnection,
    pub(super) socket: TcpStream,
}

impl Transport {
    /// Returns the socket underneath.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    /// Receives into `buffer`, which is not empty: without TLS by a single recv(2).
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => outcome(|| socket.read(buffer)),
            Self::Tls(tls) => tls.receive(buffer),
        }
    }

    /// Receives into `first` and, once that is full, into `second`; without TLS by a single readv(2).
    pub(super) fn receive_two(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => {
                outcome(|| socket.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)]))
            }
            Self::Tls(tls) => tls.receive(first),
        }
    }

    /// Returns whether bytes, or an end or error in their place, are there to receive; waits `limit` for them.
    ///
    /// Where TLS has to be asked, what it has decrypted is moved to `inbox`.
    pub(super) fn is_readable(&mut self, inbox: &mut Inbox, limit: Duration) -> bool {
        if !inbox.data().is_empty() {
            return true;
        }
        match self {
            Self::Plain(socket) => wait_readable(socket, limit),
            Self::Tls(tls) => {
                // Without waiting first: a record that came with an earlier one is no longer in the socket.
                tls.decrypted(inbox)
                    || (wait_readable(&tls.socket, limit) && (tls.pull().is_err() || tls.decrypted(inbox)))
            }
        }
    }

    /// Sends from the front of `pending`, which it shortens; returns whether everything is on its way.
    ///
    /// An error of kind `WouldBlock` means that the tick has passed: try again.
    pub(super) fn send(&mut self, pending: &mut &[u8]) -> io::Result<bool> {
        let tls = match self {
            Self::Plain(socket) => {
                *pending = &pending[socket.write(pending)?..];
                return Ok(pending.is_empty());
            }
            Self::Tls(tls) => tls,
        };
        if !pending.is_empty() {
            *pending = &pending[tls.session.writer().write(pending)?..];
        }
        tls.session.write_tls(&mut tls.socket)?;
        Ok(pending.is_empty() && !tls.session.wants_write())
    }
}

impl TlsStream {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(0) => return Ok(Received::End { clean: true }),
                Ok(n) => return Ok(Received::Data(n)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(Received::End { clean: false });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if let Received::Idle = self.pull()? {
                return Ok(Received::Idle);
            }
        }
    }

    /// Moves what is decrypted already to `inbox`; returns whether there is any, or an end in its place.
    fn decrypted(&mut self, inbox: &mut Inbox) -> bool {
        const PIECE: usize = 4096;
        match self.session.reader().read(inbox.room(PIECE)) {
            Ok(n) => {
                inbox.received(n);
                true
            }
            // Tickets and key updates are records without bytes for us.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Receives some records and decrypts them; answers what the protocol itself wants answered.
    pub(super) fn pull(&mut self) -> io::Result<Received> {
        let received = outcome(|| self.session.read_tls(&mut self.socket))?;
        if let Err(error) = self.session.process_new_packets() {
            // Tells the other end why, if it still listens.
            let _ = self.session.write_tls(&mut self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if self.session.wants_write() && !self.session.is_handshaking() {
            // A key update; what does not fit now goes with the next request.
            let _ = self.session.write_tls(&mut self.socket);
        }
        Ok(received)
    }
}

fn wait_readable(socket: &TcpStream, limit: Duration) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    let timeout = Timespec::try_from(limit).ok();
    // An interrupted poll is a short one; the caller comes back.
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Maps a read's result: a tick that passed is not an error, and an interrupted call is made again.
fn outcome(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<Received> {
    loop {
        return match read() {
            Ok(0) => Ok(Received::End { clean: true }),
            Ok(n) => Ok(Received::Data(n)),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // How a SO_RCVTIMEO that has passed shows itself.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Idle),
            Err(error) => Err(error),
        };
    }
}
