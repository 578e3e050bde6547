//! A request's body, read by a thread that may wait for it: straight into the memory that it is given.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use longhaul_core::proto::http::{ChunkedDecoder, ChunkedError, RequestBody};
use longhaul_core::units::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use thiserror::Error;

/// How long one read waits at most, so that whoever reads can look around.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// How much is read at once where framing comes, and payload may follow.
const FRAMING: usize = 8 << 10;

/// A body on its way.
pub(super) struct Body {
    /// Non-blocking: the connection itself, or the near end of a pair behind which TLS is.
    source: OwnedFd,
    /// What had come already, as with the request's head.
    inbox: Vec<u8>,
    framing: Framing,
}

enum Framing {
    Length(Bytes),
    Chunked(ChunkedDecoder),
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Data(usize),
    /// No payload: nothing has come for a [`TICK`], or only framing, which may go on and on too.
    Idle,
    /// That was all.
    End,
}

/// Why a body is not whole.
#[derive(Debug, Error)]
pub(super) enum BodyError {
    #[error("the connection ended before the body did")]
    Closed,
    #[error("the body is not in chunked coding: {0}")]
    Chunked(#[from] ChunkedError),
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
}

impl Body {
    /// Frames a body; `inbox` holds what has come after the head, and gets back what comes after the body.
    pub(super) fn new(source: OwnedFd, inbox: Vec<u8>, body: RequestBody) -> Self {
        let framing = match body {
            RequestBody::None => Framing::Length(Bytes::ZERO),
            RequestBody::Length(length) => Framing::Length(length),
            RequestBody::Chunked => Framing::Chunked(ChunkedDecoder::default()),
        };
        Self { source, inbox, framing }
    }

    /// Reads payload into `into`, which must not be empty.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Read, BodyError> {
        let left = match &mut self.framing {
            Framing::Length(left) => *left,
            Framing::Chunked(decoder) => {
                let framed = decoder.framing(&self.inbox)?;
                self.inbox.drain(..framed);
                decoder.payload_left()
            }
        };
        if self.is_done() {
            return Ok(Read::End);
        }
        let most = left.as_usize().min(into.len());
        let read = match (most, self.inbox.len()) {
            // Framing: a little is read, for what follows may be of the next request.
            (0, _) => {
                let mut chunk = [0; FRAMING];
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
        let Some(length) = read else { return Ok(Read::Idle) };
        let taken = Bytes::new(length as u64);
        match &mut self.framing {
            Framing::Length(left) => *left = left.saturating_sub(taken),
            Framing::Chunked(decoder) => decoder.took_payload(taken),
        }
        Ok(Read::Data(length))
    }

    /// Returns whether all of it was read.
    pub(super) fn is_done(&self) -> bool {
        match &self.framing {
            Framing::Length(left) => *left == Bytes::ZERO,
            Framing::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Gives back what came after the body.
    pub(super) fn into_inbox(self) -> Vec<u8> {
        self.inbox
    }
}

/// Reads what there is, waiting a [`TICK`] for it; `None` where nothing came.
fn receive(source: &OwnedFd, into: &mut [u8]) -> Result<Option<usize>, BodyError> {
    const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos() as i64 };
    let mut waited = false;
    loop {
        match rustix::io::read(source, &mut *into) {
            Ok(0) => return Err(BodyError::Closed),
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
            Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => return Err(BodyError::Closed),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn body(framing: RequestBody, inbox: &[u8]) -> (Body, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Body::new(near.into(), inbox.to_vec(), framing), far)
    }

    fn all(body: &mut Body) -> Result<Vec<u8>, BodyError> {
        let (mut got, mut part) = (Vec::new(), [0; 5]);
        loop {
            match body.read(&mut part)? {
                Read::Data(length) => got.extend_from_slice(&part[..length]),
                Read::Idle => {}
                Read::End => return Ok(got),
            }
        }
    }

    #[test]
    fn reads_as_much_as_was_announced() {
        let (mut body, mut far) = body(RequestBody::Length(Bytes::new(12)), b"hello");
        far.write_all(b", worldGET /").unwrap();
        assert_eq!(all(&mut body).unwrap(), b"hello, world");
        let mut next = [0; 5];
        assert_eq!(rustix::io::read(&body.source, &mut next).unwrap(), 5);
        assert_eq!(&next, b"GET /", "what follows was not left where it is");
    }

    #[test]
    fn reads_chunks_and_gives_back_what_follows() {
        let (mut body, mut far) = body(RequestBody::Chunked, b"5\r\nhel");
        far.write_all(b"lo\r\n7;x\r\n, world\r\n0\r\nA: b\r\n\r\nGET /").unwrap();
        assert_eq!(all(&mut body).unwrap(), b"hello, world");
        assert_eq!(body.into_inbox(), b"GET /");
    }

    #[test]
    fn what_breaks_off_is_not_whole() {
        for (framing, sent) in [
            (RequestBody::Length(Bytes::new(9)), b"12345678".as_slice()),
            (RequestBody::Chunked, b"5\r\nhello\r\n"),
            (RequestBody::Chunked, b"5\r\nhello\r\n0\r\n"),
        ] {
            let (mut body, mut far) = body(framing, b"");
            far.write_all(sent).unwrap();
            drop(far);
            assert!(matches!(all(&mut body), Err(BodyError::Closed)));
        }
        let (mut body, mut far) = body(RequestBody::Chunked, b"");
        far.write_all(b"many\r\n").unwrap();
        assert!(matches!(all(&mut body), Err(BodyError::Chunked(_))));
    }

    #[test]
    fn silence_is_told() {
        let (mut body, _far) = body(RequestBody::Length(Bytes::new(1)), b"");
        assert_eq!(body.read(&mut [0]).unwrap(), Read::Idle);
    }
}
