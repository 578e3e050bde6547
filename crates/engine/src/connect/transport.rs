//! A connected socket, plain or within TLS.

use std::io::{self, BufRead, ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// The outcome of one attempt to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// This many bytes were received; never zero.
    Data(usize),
    /// The tick passed without data.
    Idle,
    /// The peer has closed its side, or the body of an answer has ended.
    End {
        /// Whether TLS ended by its closing message; always true without TLS.
        clean: bool,
    },
}

/// A byte stream to the server.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// TLS over a socket.
pub(crate) struct TlsStream {
    pub(crate) session: Connection,
    socket: TcpStream,
    /// Received bytes not yet passed to the session, which reads only 4 KiB per call: without a
    /// buffer, a record would take four system calls.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
}

/// The bytes received at once: four records of the largest size (RFC 8446, section 5.1).
const INPUT: usize = 64 << 10;

impl Transport {
    /// Wraps a socket in TLS. A client's first message is sent at once; the rest of the handshake
    /// takes place in [`Self::receive`], so that the socket need not block, and no data is sent
    /// before the peer is verified.
    pub(crate) fn tls(session: impl Into<Connection>, socket: TcpStream) -> Self {
        let mut tls = TlsStream::new(session.into(), socket);
        if tls.session.wants_write() {
            // If the socket is broken, the next receive fails.
            let _ = tls.session.write_tls(&mut tls.socket);
        }
        Self::Tls(Box::new(tls))
    }

    /// Returns whether decrypted bytes are buffered, which poll(2) on the socket does not show.
    pub(crate) fn has_decrypted(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => {
                tls.has_input() || tls.session.reader().fill_buf().is_ok_and(|clear| !clear.is_empty())
            }
        }
    }

    /// Continues the TLS handshake with received bytes. Needed while waiting for another event,
    /// because a server may complete the handshake earlier.
    pub(crate) fn continue_handshake(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if tls.session.is_handshaking() && wait_readable(&tls.socket, Duration::ZERO) => {
                tls.pull().map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Continues the TLS handshake for up to a tick; returns whether it is still in progress.
    pub(crate) fn await_handshake(&mut self) -> io::Result<bool> {
        match self {
            Self::Tls(tls) if tls.session.is_handshaking() || tls.session.wants_write() => {
                while tls.session.wants_write() {
                    match tls.session.write_tls(&mut tls.socket) {
                        Ok(_) => {}
                        Err(error)
                            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                        {
                            return Ok(true);
                        }
                        // The reason may have been received before.
                        Err(error) => return Err(tls.alert().unwrap_or(error)),
                    }
                }
                if !tls.session.is_handshaking() {
                    return Ok(false);
                }
                match tls.pull()? {
                    Received::End { .. } => Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the connection was closed in the TLS handshake",
                    )),
                    _ => Ok(tls.session.is_handshaking() || tls.session.wants_write()),
                }
            }
            _ => Ok(false),
        }
    }

    /// Returns the underlying socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    /// Receives into the non-empty `buffer`; without TLS by a single recv(2).
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => outcome(|| socket.read(buffer)),
            Self::Tls(tls) => tls.receive(buffer),
        }
    }

    /// Receives into `first` and, once full, into `second`; without TLS by a single readv(2).
    pub(crate) fn receive_two(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => {
                outcome(|| socket.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)]))
            }
            Self::Tls(tls) => tls.receive(first),
        }
    }

    /// Waits up to `limit` until bytes, an end or an error can be received; `None` if not.
    ///
    /// The value is the number of bytes moved to `room`, because TLS must decrypt to detect data.
    pub(crate) fn poll_readable(&mut self, room: &mut [u8], limit: Duration) -> Option<usize> {
        match self {
            Self::Plain(socket) => wait_readable(socket, limit).then_some(0),
            Self::Tls(tls) => {
                // Checked before the wait: a record received with an earlier one is no longer in
                // the socket.
                let decrypted = tls.decrypted(room);
                if decrypted.is_some() || !(tls.has_input() || wait_readable(&tls.socket, limit)) {
                    return decrypted;
                }
                loop {
                    if tls.pull().is_err() {
                        return Some(0);
                    }
                    let decrypted = tls.decrypted(room);
                    if decrypted.is_some() || !tls.has_input() {
                        return decrypted;
                    }
                }
            }
        }
    }

    /// Sends from the front of `pending`, and shortens it; returns whether the kernel has taken
    /// all.
    ///
    /// An error of kind `WouldBlock` means that the tick passed: try again.
    pub(crate) fn send(&mut self, pending: &mut &[u8]) -> io::Result<bool> {
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
        if let Err(error) = tls.session.write_tls(&mut tls.socket) {
            let is_broken = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            return Err(if is_broken { tls.alert().unwrap_or(error) } else { error });
        }
        Ok(pending.is_empty() && !tls.session.wants_write())
    }
}

impl TlsStream {
    fn new(session: Connection, socket: TcpStream) -> Self {
        Self { session, socket, input: vec![0; INPUT], taken: 0, filled: 0 }
    }

    /// Returns whether received bytes are waiting for the session.
    fn has_input(&self) -> bool {
        self.taken < self.filled
    }

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

    /// Returns the error that received records contain, after the peer has closed the connection.
    fn alert(&mut self) -> Option<io::Error> {
        loop {
            match self.pull() {
                Ok(Received::Data(_)) => {}
                Ok(_) => return None,
                Err(error) => return Some(error).filter(|error| error.kind() == ErrorKind::InvalidData),
            }
        }
    }

    /// Moves decrypted bytes to `room`; returns their number, 0 for an end.
    fn decrypted(&mut self, room: &mut [u8]) -> Option<usize> {
        match self.session.reader().read(room) {
            Ok(n) => Some(n),
            // Tickets and key updates are records without payload.
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(0),
        }
    }

    /// Receives and decrypts some records; answers protocol messages of TLS.
    fn pull(&mut self) -> io::Result<Received> {
        let mut received = Received::Idle;
        if !self.has_input() {
            received = outcome(|| self.socket.read(&mut self.input))?;
            match received {
                Received::Data(n) => (self.taken, self.filled) = (0, n),
                Received::Idle => return Ok(received),
                Received::End { .. } => {}
            }
        }
        // At the end of the connection nothing is left, which the session records.
        let n = self.session.read_tls(&mut &self.input[self.taken..self.filled])?;
        if n > 0 {
            self.taken += n;
            received = Received::Data(n);
        }
        if let Err(error) = self.session.process_new_packets() {
            tracing::debug!("TLS ends: {error}");
            // Sends the alert that informs the peer.
            let _ = self.session.write_tls(&mut self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if self.session.wants_write() {
            // A handshake message or key update; the rest is sent with the next bytes.
            let _ = self.session.write_tls(&mut self.socket);
        }
        Ok(received)
    }
}

/// Waits up to `limit` until bytes, an end or an error can be received from `socket`; returns
/// whether they can.
pub(crate) fn wait_readable(socket: impl AsFd, limit: Duration) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::IN | PollFlags::RDHUP)];
    let timeout = Timespec::try_from(limit).ok();
    // An interrupted poll ends early; the caller polls again.
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Maps a read's result: an elapsed tick is not an error, and an interrupted call is repeated.
fn outcome(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<Received> {
    loop {
        return match read() {
            Ok(0) => Ok(Received::End { clean: true }),
            Ok(n) => Ok(Received::Data(n)),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // SO_RCVTIMEO has passed.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Idle),
            Err(error) => Err(error),
        };
    }
}
