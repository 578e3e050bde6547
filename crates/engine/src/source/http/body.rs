//! A response's body, from the socket straight into the caller's buffer.

use longhaul_core::proto::http::{ChunkedDecoder, Framing};
use longhaul_core::units::Bytes;

use super::error::HttpError;
use super::inbox::Inbox;
use super::safe_url::UrlAndPeer;
use super::tls;
use super::transport::{Received, Transport};

/// How much framing is received at once: a size line behind the payload, and little of the next.
const FRAMING_PIECE: usize = 512;

/// What a read of the body brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, at the front of the buffer.
    Data(usize),
    /// The tick passed without data: the moment to look at deadlines.
    Idle,
    /// The body is complete.
    End,
}

/// How far the body of the current response has been read.
#[derive(Debug)]
pub(super) enum Body {
    /// There is none, or it is complete.
    Ended,
    Length {
        got: u64,
        expected: u64,
    },
    Chunked {
        decoder: ChunkedDecoder,
        got: u64,
    },
    UntilClose {
        got: u64,
    },
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(length) => Self::Length { got: 0, expected: length.get() },
            Framing::Chunked => Self::Chunked { decoder: ChunkedDecoder::default(), got: 0 },
            Framing::UntilClose => Self::UntilClose { got: 0 },
        }
    }

    /// Returns whether nothing is left to read.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Length { got, expected } => got == expected,
            Self::Chunked { .. } | Self::UntilClose { .. } => false,
        }
    }

    /// Reads some of the body into `buffer`, which is not empty.
    pub(super) fn read(
        &mut self,
        transport: &mut Transport,
        inbox: &mut Inbox,
        place: &UrlAndPeer,
        buffer: &mut [u8],
    ) -> Result<Read, HttpError> {
        let read = match self {
            Self::Ended => Read::End,
            Self::Length { got, expected } if got == expected => Read::End,
            Self::Length { got, expected } => {
                // No further than the body: what follows is the next response.
                let room = Bytes::new(*expected - *got).as_usize().min(buffer.len());
                match fill(transport, inbox, place, &mut buffer[..room])? {
                    Received::Data(n) => count(got, n),
                    Received::Idle => Read::Idle,
                    Received::End { .. } => return Err(closed_early(place, *got, Some(*expected))),
                }
            }
            Self::UntilClose { got } => match fill(transport, inbox, place, buffer)? {
                Received::Data(n) => count(got, n),
                Received::Idle => Read::Idle,
                Received::End { clean: true } => Read::End,
                Received::End { clean: false } => {
                    return Err(HttpError::NoCloseNotify { place: place.clone(), got: Bytes::new(*got) });
                }
            },
            Self::Chunked { decoder, got } => match read_chunked(decoder, transport, inbox, place, buffer)? {
                Some(Received::Data(n)) => count(got, n),
                Some(Received::Idle) => Read::Idle,
                Some(Received::End { .. }) => return Err(closed_early(place, *got, None)),
                None => Read::End,
            },
        };
        if read == Read::End {
            *self = Self::Ended;
        }
        Ok(read)
    }
}

fn count(got: &mut u64, n: usize) -> Read {
    *got += n as u64;
    Read::Data(n)
}

fn closed_early(place: &UrlAndPeer, got: u64, expected: Option<u64>) -> HttpError {
    HttpError::ClosedEarly { place: place.clone(), got: Bytes::new(got), expected: expected.map(Bytes::new) }
}

/// Fills `buffer` with what was received already, else by one call to the kernel.
fn fill(
    transport: &mut Transport,
    inbox: &mut Inbox,
    place: &UrlAndPeer,
    buffer: &mut [u8],
) -> Result<Received, HttpError> {
    match inbox.take(buffer) {
        0 => transport.receive(buffer).map_err(|error| tls::receive_error(error, place)),
        n => Ok(Received::Data(n)),
    }
}

/// Reads payload of one chunk; `None` at the end of the body.
fn read_chunked(
    decoder: &mut ChunkedDecoder,
    transport: &mut Transport,
    inbox: &mut Inbox,
    place: &UrlAndPeer,
    buffer: &mut [u8],
) -> Result<Option<Received>, HttpError> {
    loop {
        let left = decoder.payload_left().as_usize();
        if left > 0 {
            let room = left.min(buffer.len());
            let payload = &mut buffer[..room];
            let received = if room < left || !inbox.data().is_empty() {
                fill(transport, inbox, place, payload)?
            } else {
                // The chunk may end here, so its framing and the next size line are taken along.
                let received = transport.receive_two(payload, inbox.room(FRAMING_PIECE));
                match received.map_err(|error| tls::receive_error(error, place))? {
                    Received::Data(n) => {
                        inbox.received(n.saturating_sub(room));
                        Received::Data(n.min(room))
                    }
                    other => other,
                }
            };
            if let Received::Data(n) = received {
                decoder.took_payload(Bytes::new(n as u64));
            }
            return Ok(Some(received));
        }
        let used = decoder.framing(inbox.data());
        inbox.consume(used.map_err(|source| HttpError::Chunked { place: place.clone(), source })?);
        if decoder.is_done() {
            return Ok(None);
        }
        if decoder.payload_left() == Bytes::ZERO {
            match transport
                .receive(inbox.room(FRAMING_PIECE))
                .map_err(|error| tls::receive_error(error, place))?
            {
                Received::Data(n) => inbox.received(n),
                other => return Ok(Some(other)),
            }
        }
    }
}
