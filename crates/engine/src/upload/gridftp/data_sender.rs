//! A data connection for sending: plain, by sendfile or from a ring of blocks, or within TLS, by an
//! encrypted copy.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};

use longhaul_core::units::Bytes;
use rustix::event::PollFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;

use crate::connect::{Received, Transport};
use crate::send::{SendError, Supply, Turn};
use crate::upload::body::ClearText;

/// A data connection whose handshake is complete. No call blocks.
pub(super) struct DataSender {
    transport: Transport,
    clear: ClearText,
}

impl DataSender {
    /// Wraps a connection and makes it non-blocking.
    ///
    /// # Errors
    /// The kernel's error on the socket.
    pub(super) fn new(transport: Transport) -> io::Result<Self> {
        transport.socket().set_nonblocking(true)?;
        Ok(Self { transport, clear: ClearText::default() })
    }

    /// Returns the socket, for polling and measurements.
    pub(super) fn socket(&self) -> &TcpStream {
        self.transport.socket()
    }

    /// Sends at most `share` bytes of the file; [`Turn::Done`] once `supply` is used up.
    ///
    /// # Errors
    /// [`SendError`].
    pub(super) fn turn(&mut self, supply: &mut Supply, share: Bytes) -> Result<Turn, SendError> {
        if let Transport::Plain(socket) = &self.transport {
            return supply.turn(socket, share);
        }
        self.clear.turn(supply, share, |pending| self.transport.send(pending))
    }

    /// Sends from the front of a header, and shortens it; with `more`, the kernel waits for the
    /// payload.
    ///
    /// # Errors
    /// The kernel's error on the socket.
    pub(super) fn send_header(&mut self, header: &mut &[u8], more: bool) -> io::Result<()> {
        let Transport::Plain(socket) = &self.transport else {
            self.clear.add(std::mem::take(header));
            return self.flush().map(|_| ());
        };
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        match retry_on_intr(|| rustix::net::send(socket, header, flags)) {
            Ok(sent) => *header = &header[sent..],
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Passes buffered bytes to the kernel; returns whether none is left.
    ///
    /// # Errors
    /// The kernel's error on the socket.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match self.transport {
            Transport::Plain(_) => Ok(true),
            Transport::Tls(_) => self.clear.flush(|pending| self.transport.send(pending)),
        }
    }

    /// Fails if the server has closed the connection or sent data; receives protocol messages of
    /// TLS.
    ///
    /// # Errors
    /// The error of the kernel or of TLS on the connection.
    pub(super) fn check_open(&mut self, ready: PollFlags) -> io::Result<()> {
        let closed = || io::Error::new(ErrorKind::ConnectionAborted, "the server closed a data connection");
        let broken = ready.intersects(PollFlags::HUP | PollFlags::ERR);
        if broken || (matches!(self.transport, Transport::Plain(_)) && ready.intersects(Self::READABLE)) {
            return Err(self.socket().take_error().ok().flatten().unwrap_or_else(closed));
        }
        if ready.intersects(Self::READABLE) {
            return match self.transport.receive(&mut [0])? {
                Received::Idle => Ok(()),
                Received::Data(_) => Err(io::Error::new(ErrorKind::InvalidData, "the server sent data")),
                Received::End { .. } => Err(closed()),
            };
        }
        Ok(())
    }

    const READABLE: PollFlags = PollFlags::IN.union(PollFlags::RDHUP);

    /// Queues the closing message of TLS; [`Self::flush`] sends it.
    pub(super) fn close_tls(&mut self) {
        if let Transport::Tls(tls) = &mut self.transport {
            tls.session.send_close_notify();
        }
    }

    /// Shuts down the sending direction, which ends a file in stream mode.
    ///
    /// # Errors
    /// The kernel's error on the socket.
    pub(super) fn shutdown(&self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }

    /// Receives messages of TLS, such as the tickets for resumption by the next connection; ignores
    /// an end or error of the connection.
    pub(super) fn receive_tickets(&mut self) {
        if let Transport::Tls(_) = self.transport {
            let _ = self.transport.receive(&mut [0]);
        }
    }
}
