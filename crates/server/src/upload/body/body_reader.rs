//! Reads and unframes a request's body, blocking, into the caller's memory.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use longhaul_core::proto::Malformed;
use longhaul_core::proto::http::{ChunkedDecoder, RequestBody};
use longhaul_core::units::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use thiserror::Error;

/// The longest wait of one read, so that the caller can check for cancellation and stalls.
const BODY_READ_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes read at once where chunk framing is expected.
const FRAMING_READ_SIZE: usize = 8 << 10;

/// A body being received.
pub(crate) struct BodyReader {
    /// Non-blocking: the connection itself, or a socket pair that carries the decrypted bytes.
    source: OwnedFd,
    /// Bytes received before, such as with the request's head.
    inbox: Vec<u8>,
    framing: BodyFraming,
}

enum BodyFraming {
    Length(Bytes),
    Chunked(ChunkedDecoder),
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyRead {
    Data(usize),
    /// No payload within [`BODY_READ_TIMEOUT`]: nothing, or only chunk framing.
    Idle,
    /// The body is complete.
    End,
}

/// Why a body is incomplete.
#[derive(Debug, Error)]
pub(crate) enum UploadBodyError {
    #[error("the connection ended before the body did")]
    Closed,
    #[error("the body is not in chunked coding: {0}")]
    Chunked(#[from] Malformed),
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
}

impl BodyReader {
    /// Starts to read a body; `inbox` holds the bytes that came with the head.
    pub(crate) fn new(source: OwnedFd, inbox: Vec<u8>, body: RequestBody) -> Self {
        let framing = match body {
            RequestBody::None => BodyFraming::Length(Bytes::ZERO),
            RequestBody::Length(length) => BodyFraming::Length(length),
            RequestBody::Chunked => BodyFraming::Chunked(ChunkedDecoder::default()),
        };
        Self { source, inbox, framing }
    }

    /// Reads payload into `into`, which must not be empty.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<BodyRead, UploadBodyError> {
        let left = match &mut self.framing {
            BodyFraming::Length(left) => *left,
            BodyFraming::Chunked(decoder) => {
                let framed = decoder.framing(&self.inbox)?;
                // In doubt is what follows: another program on the way may find another request
                // there.
                if decoder.is_malformed() {
                    return Err(Malformed::new("a line of its framing ends in LF alone").into());
                }
                self.inbox.drain(..framed);
                decoder.payload_left()
            }
        };
        if self.is_done() {
            return Ok(BodyRead::End);
        }
        let most = left.as_usize().min(into.len());
        let read = match (most, self.inbox.len()) {
            // Chunk framing: small reads, for bytes after the last chunk belong to the next
            // request.
            (0, _) => {
                let mut chunk = [0; FRAMING_READ_SIZE];
                let length = receive(&self.source, &mut chunk)?.unwrap_or(0);
                self.inbox.extend_from_slice(&chunk[..length]);
                None
            }
            (most, 0) => receive(&self.source, &mut into[..most])?,
            (most, held) => {
                let length = most.min(held);
                into[..length].copy_from_slice(&self.inbox[..length]);
                self.inbox.drain(..length);
                Some(length)
            }
        };
        let Some(length) = read else { return Ok(BodyRead::Idle) };
        let taken = Bytes::new(length as u64);
        match &mut self.framing {
            BodyFraming::Length(left) => *left = left.saturating_sub(taken),
            BodyFraming::Chunked(decoder) => decoder.took_payload(taken),
        }
        Ok(BodyRead::Data(length))
    }

    /// Returns whether the body was read completely.
    pub(crate) fn is_done(&self) -> bool {
        match &self.framing {
            BodyFraming::Length(left) => *left == Bytes::ZERO,
            BodyFraming::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Returns the bytes received after the body.
    pub(crate) fn into_inbox(self) -> Vec<u8> {
        self.inbox
    }
}

/// Reads what is available; `None` where nothing arrives within [`BODY_READ_TIMEOUT`].
fn receive(source: &OwnedFd, into: &mut [u8]) -> Result<Option<usize>, UploadBodyError> {
    const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: BODY_READ_TIMEOUT.subsec_nanos() as i64 };
    let mut waited = false;
    loop {
        match rustix::io::read(source, &mut *into) {
            Ok(0) => return Err(UploadBodyError::Closed),
            Ok(length) => return Ok(Some(length)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if waited => return Ok(None),
            Err(Errno::AGAIN) => {
                waited = true;
                match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&WAIT)) {
                    Ok(0) => return Ok(None),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
            Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => return Err(UploadBodyError::Closed),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn body(framing: RequestBody, inbox: &[u8]) -> (BodyReader, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (BodyReader::new(near.into(), inbox.to_vec(), framing), far)
    }

    fn all(body: &mut BodyReader) -> Result<Vec<u8>, UploadBodyError> {
        let (mut got, mut part) = (Vec::new(), [0; 5]);
        loop {
            match body.read(&mut part)? {
                BodyRead::Data(length) => got.extend_from_slice(&part[..length]),
                BodyRead::Idle => {}
                BodyRead::End => return Ok(got),
            }
        }
    }

    #[test]
    fn body_ends_with_its_length_or_last_chunk() {
        let (mut body, mut far) = body(RequestBody::Length(Bytes::new(12)), b"hello");
        far.write_all(b", worldGET /").unwrap();
        assert_eq!(all(&mut body).unwrap(), b"hello, world");
        let mut next = [0; 5];
        assert_eq!(rustix::io::read(&body.source, &mut next).unwrap(), 5);
        assert_eq!(&next, b"GET /", "the next request must stay in the socket");
        let (mut body, mut far) = self::body(RequestBody::Chunked, b"5\r\nhel");
        far.write_all(b"lo\r\n7;x\r\n, world\r\n0\r\nA: b\r\n\r\nGET /").unwrap();
        assert_eq!(all(&mut body).unwrap(), b"hello, world");
        assert_eq!(body.into_inbox(), b"GET /");
        for text in [&b"5\nhello\r\n0\r\n\r\n"[..], b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\n"] {
            let (mut body, _far) = self::body(RequestBody::Chunked, text);
            assert!(
                all(&mut body).is_err(),
                "{}: answers may be malformed, requests may not",
                text.escape_ascii()
            );
        }
    }
}
