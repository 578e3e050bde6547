//! A connected socket, bare or within TLS.

use std::io::{self, BufRead, ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// The outcome of one attempt to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes were received; never zero.
    Data(usize),
    /// The tick passed without any.
    Idle,
    /// The peer has closed its side; `clean` unless TLS ended without its closing message.
    End { clean: bool },
}

/// A byte stream to the server.
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// TLS over a socket.
pub(crate) struct TlsStream {
    pub(crate) session: Connection,
    pub(crate) socket: TcpStream,
    /// What was received and the session has not taken: it takes 4 KiB a call, which would cost four calls to the kernel a record.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
}

/// How much is received at once: four records of the largest size (RFC 8446, section 5.1).
const INPUT: usize = 64 << 10;

impl Transport {
    /// Puts TLS over a socket. A client's first message is sent now; the rest of the handshake takes place in [`Self::receive`],
    /// so that the socket need not block, and nothing is sent before the peer is verified.
    pub(crate) fn tls(session: impl Into<Connection>, socket: TcpStream) -> Self {
        let mut tls = TlsStream::new(session.into(), socket);
        if tls.session.wants_write() {
            // A message that is not sent now, as the socket is broken, is missed by the next receive.
            let _ = tls.session.write_tls(&mut tls.socket);
        }
        Self::Tls(Box::new(tls))
    }

    /// Returns whether bytes can be received that are no longer in the socket, where poll(2) would see them.
    pub(crate) fn has_decrypted(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => {
                tls.has_input() || tls.session.reader().fill_buf().is_ok_and(|clear| !clear.is_empty())
            }
        }
    }

    /// Goes on with the TLS handshake by what has arrived. Needed while something else is waited for: a server may complete the
    /// handshake before that.
    pub(crate) fn continue_handshake(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if tls.session.is_handshaking() && wait_readable(&tls.socket, Duration::ZERO) => {
                tls.pull().map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Returns the socket underneath.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &tls.socket,
        }
    }

    /// Receives into `buffer`, which is not empty: without TLS by a single recv(2).
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => outcome(|| socket.read(buffer)),
            Self::Tls(tls) => tls.receive(buffer),
        }
    }

    /// Receives into `first` and, once that is full, into `second`; without TLS by a single readv(2).
    pub(crate) fn receive_two(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<Received> {
        match self {
            Self::Plain(socket) => {
                outcome(|| socket.read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)]))
            }
            Self::Tls(tls) => tls.receive(first),
        }
    }

    /// Returns whether bytes, or an end or error in their place, can be received; waits `limit` for them.
    ///
    /// The number is how many bytes have been moved to `room`: TLS tells only by decrypting.
    pub(crate) fn poll_readable(&mut self, room: &mut [u8], limit: Duration) -> Option<usize> {
        match self {
            Self::Plain(socket) => wait_readable(socket, limit).then_some(0),
            Self::Tls(tls) => {
                // Before the wait: a record that was received with an earlier one is no longer in the socket.
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

    /// Sends from the front of `pending`, which it shortens; returns whether the kernel has all of it.
    ///
    /// An error of kind `WouldBlock` means that the tick has passed: try again.
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
        tls.session.write_tls(&mut tls.socket)?;
        Ok(pending.is_empty() && !tls.session.wants_write())
    }
}

impl TlsStream {
    pub(crate) fn new(session: Connection, socket: TcpStream) -> Self {
        Self { session, socket, input: vec![0; INPUT], taken: 0, filled: 0 }
    }

    /// Returns whether received bytes wait for the session.
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

    /// Moves decrypted bytes to `room`; returns how many, 0 for an end in their place.
    fn decrypted(&mut self, room: &mut [u8]) -> Option<usize> {
        match self.session.reader().read(room) {
            Ok(n) => Some(n),
            // Tickets and key updates are records without payload.
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(0),
        }
    }

    /// Receives some records and decrypts them; answers the protocol's own messages.
    pub(crate) fn pull(&mut self) -> io::Result<Received> {
        let mut received = Received::Idle;
        if !self.has_input() {
            received = outcome(|| self.socket.read(&mut self.input))?;
            match received {
                Received::Data(n) => (self.taken, self.filled) = (0, n),
                Received::Idle => return Ok(received),
                Received::End { .. } => {}
            }
        }
        // At the end of the connection there is none: the session takes note of it.
        let n = self.session.read_tls(&mut &self.input[self.taken..self.filled])?;
        if n > 0 {
            self.taken += n;
            received = Received::Data(n);
        }
        if let Err(error) = self.session.process_new_packets() {
            tracing::debug!("TLS ends: {error}");
            // Sends the alert that tells the peer why.
            let _ = self.session.write_tls(&mut self.socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if self.session.wants_write() {
            // A message of the handshake, or a key update; what the socket does not take is sent with the next bytes.
            let _ = self.session.write_tls(&mut self.socket);
        }
        Ok(received)
    }
}

fn wait_readable(socket: &TcpStream, limit: Duration) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    let timeout = Timespec::try_from(limit).ok();
    // An interrupted poll is a short one; the caller polls again.
    poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Maps a read's result: a tick that passed is no error, and an interrupted call is repeated.
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
