//! A transport with a read buffer: heads and chunk framing are read through the buffer, payload
//! bypasses it.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::Malformed;
use longhaul_core::proto::http::{MAX_RESPONSE_HEAD, ResponseHead};
use longhaul_core::units::Bytes;

use crate::connect::{Deadline, Received, Transport};
use crate::source::http::authentication::tls;
use crate::source::http::error::{HttpError, check};
use crate::source::http::target::safe_url::UrlAndPeer;

/// The bytes of a head received at once; small, because bytes after the head are copied once more.
const HEAD_PIECE: usize = 4096;
/// The most empty lines skipped before an answer.
const MAX_EMPTY_LINES: usize = 8;
/// The bytes shown of an answer that is not HTTP.
const SHOWN: usize = 32;

/// A byte stream to a server, and bytes received beyond those requested.
pub(crate) struct BufferedTransport {
    pub(super) stream: Transport,
    pub(super) buffer: ReadBuffer,
    /// The URL and the peer, for errors.
    pub(super) at: UrlAndPeer,
}

impl BufferedTransport {
    /// Wraps a stream to `at`, which errors name.
    pub(crate) fn new(stream: Transport, at: UrlAndPeer) -> Self {
        Self { stream, buffer: ReadBuffer::default(), at }
    }

    /// Returns the socket of a transport without TLS and without buffered bytes.
    pub(crate) fn into_socket(self) -> Option<TcpStream> {
        match self.stream {
            Transport::Plain(socket) if self.buffer.data().is_empty() => Some(socket),
            _ => None,
        }
    }

    /// Sends all of `bytes`; `step` names what the peer is waited for.
    pub(crate) fn send_all(
        &mut self,
        bytes: &[u8],
        step: &'static str,
        deadline: &Deadline<'_>,
    ) -> Result<(), HttpError> {
        let mut pending = bytes;
        loop {
            check(deadline, &self.at, step)?;
            match self.stream.send(&mut pending) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(source) => return Err(tls::send_error(source, &self.at)),
            }
        }
    }

    /// Waits up to `limit` until bytes, an end or an error can be read; returns whether they can.
    pub(crate) fn is_readable(&mut self, limit: Duration) -> bool {
        if self.has_buffered() {
            return true;
        }
        let received = self.stream.poll_readable(self.buffer.room(HEAD_PIECE), limit);
        self.buffer.received(received.unwrap_or(0));
        received.is_some()
    }

    /// Returns whether bytes are buffered.
    pub(crate) fn has_buffered(&self) -> bool {
        !self.buffer.data().is_empty()
    }

    /// Receives up to `n` bytes into the read buffer.
    pub(crate) fn fill_buffer(&mut self, n: usize) -> Result<Received, HttpError> {
        let received =
            self.stream.receive(self.buffer.room(n)).map_err(|e| tls::receive_error(e, &self.at))?;
        if let Received::Data(n) = received {
            self.buffer.received(n);
        }
        Ok(received)
    }

    /// Reads into `payload`: buffered bytes, else by one system call.
    pub(crate) fn read(&mut self, payload: &mut [u8]) -> Result<Received, HttpError> {
        match self.buffer.take(payload) {
            0 => self.stream.receive(payload).map_err(|error| tls::receive_error(error, &self.at)),
            n => Ok(Received::Data(n)),
        }
    }

    /// Reads into `payload` and, once full, up to `more` bytes into the buffer by the same system
    /// call.
    pub(crate) fn read_ahead(&mut self, payload: &mut [u8], more: usize) -> Result<Received, HttpError> {
        if more == 0 || self.has_buffered() {
            return self.read(payload);
        }
        let room = payload.len();
        let received = self.stream.receive_two(payload, self.buffer.room(more));
        match received.map_err(|error| tls::receive_error(error, &self.at))? {
            Received::Data(n) => {
                self.buffer.received(n.saturating_sub(room));
                Ok(Received::Data(n.min(room)))
            }
            other => Ok(other),
        }
    }

    /// Reads the next head; bytes after it stay in the buffer.
    pub(crate) fn read_head(&mut self, deadline: &Deadline<'_>) -> Result<ResponseHead, HttpError> {
        let (mut searched, mut empty_lines) = (0, 0);
        loop {
            if searched == 0 {
                let empty = self.buffer.data().iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
                empty_lines += empty;
                self.buffer.consume(if empty_lines <= 2 * MAX_EMPTY_LINES { empty } else { 0 });
            }
            let (data, at) = (self.buffer.data(), &self.at);
            check_start(data, at)?;
            let most = MAX_RESPONSE_HEAD.as_usize();
            if let Some(end) = ResponseHead::end(data, searched).filter(|end| *end <= most) {
                let head = ResponseHead::parse(&data[..end]);
                let head = head.map_err(|error| HttpError::Head(at.clone(), error));
                self.buffer.consume(end);
                return head;
            }
            searched = data.len();
            if searched >= most {
                let message = format!(
                    "the answer of {at} has a head of more than {MAX_RESPONSE_HEAD}: the server is broken or hostile"
                );
                return Err(Failure::new(FailureKind::Protocol, message).into());
            }
            check(deadline, at, "the head of its answer")?;
            if let Received::End { .. } = self.fill_buffer(HEAD_PIECE)? {
                return Err(HttpError::ClosedBeforeHead(self.at.clone(), Bytes::new(searched as u64)));
            }
        }
    }
}

/// A queue of bytes that is almost always empty or small.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    filled: usize,
}

impl ReadBuffer {
    /// Returns the unconsumed bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.filled]
    }

    /// Removes `n` bytes from the front.
    pub(super) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.filled);
    }

    /// Moves bytes from the front into `buffer`; returns their number.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let n = self.data().len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.data()[..n]);
        self.consume(n);
        n
    }

    /// Returns space for `n` more bytes; written bytes count after [`received`](Self::received).
    fn room(&mut self, n: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.bytes.len() < self.filled + n {
            self.bytes.resize(self.filled + n, 0);
        }
        &mut self.bytes[self.filled..self.filled + n]
    }

    /// Counts `n` bytes written into the space.
    fn received(&mut self, n: usize) {
        self.filled = (self.filled + n).min(self.bytes.len());
    }
}

/// Fails as soon as the answer cannot be HTTP/1; see [`ResponseHead::parse`] for the 2.
fn check_start(data: &[u8], at: &UrlAndPeer) -> Result<(), HttpError> {
    let begins = |start: &[u8]| start.iter().zip(data).all(|(byte, sent)| sent.eq_ignore_ascii_case(byte));
    if begins(b"HTTP/1.") || begins(b"HTTP/2") {
        return Ok(());
    }
    let first = data[..data.len().min(SHOWN)].escape_ascii().to_string();
    let why = format!("it is not HTTP/1: it starts with \"{first}\"{}", recognise(data));
    Err(HttpError::Head(at.clone(), Malformed::new(why)))
}

/// Recognises other protocols by their first bytes.
fn recognise(data: &[u8]) -> &'static str {
    match data {
        // A TLS record: alert or handshake, version 3.x.
        [0x15 | 0x16, 0x03, ..] => ": the server speaks TLS on this port; try https://",
        // A SETTINGS frame on stream 0, which an HTTP/2 server sends first.
        [_, _, _, 0x04, _, 0, 0, 0, 0, ..] | [b'P', b'R', b'I', b' ', ..] => {
            ": the server speaks only HTTP/2 on this port, which is not supported"
        }
        [b'S', b'S', b'H', b'-', ..] => ": this is an SSH server; check the port",
        [b'2', b'2', b'0', ..] => ": this looks like an FTP or mail server; check the port",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_buffer_keeps_the_order() {
        let mut buffer = ReadBuffer::default();
        buffer.room(8)[..5].copy_from_slice(b"hello");
        buffer.received(5);
        buffer.consume(1);
        buffer.room(4)[..3].copy_from_slice(b"abc");
        buffer.received(3);
        assert_eq!(buffer.data(), b"elloabc");
        let mut taken = [0; 5];
        assert_eq!((buffer.take(&mut taken), &taken), (5, b"elloa"));
        assert_eq!((buffer.take(&mut taken), buffer.data()), (2, &b""[..]));
    }
}
