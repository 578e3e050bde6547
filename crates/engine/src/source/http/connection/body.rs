//! A response's body, received directly into the caller's buffer.

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{ChunkedDecoder, Framing};
use longhaul_core::units::Bytes;

use crate::connect::Received;
use crate::source::http::connection::buffered_transport::BufferedTransport;
use crate::source::http::error::{HttpError, closed_early};

/// The bytes of framing received at once: a size line after the payload, and little of the next
/// chunk.
const FRAMING_PIECE: usize = 512;

/// The state of reading the current response's body.
#[derive(Debug)]
pub(crate) enum Body {
    /// The response has no body, or the body is complete.
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
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(length) => Self::Length { got: 0, expected: length.get() },
            Framing::Chunked => Self::Chunked { decoder: ChunkedDecoder::default(), got: 0 },
            Framing::UntilClose => Self::UntilClose { got: 0 },
        }
    }

    /// Returns the number of bytes read; the highest after the end.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Self::Ended => u64::MAX,
            Self::Length { got, .. } | Self::Chunked { got, .. } | Self::UntilClose { got } => *got,
        }
    }

    /// Returns whether nothing is left to read.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Length { got, expected } => got == expected,
            Self::Chunked { decoder, .. } => decoder.is_done(),
            Self::UntilClose { .. } => false,
        }
    }

    /// Returns whether the coding deviated from its standard, so that nothing may follow the body.
    pub(crate) fn is_malformed(&self) -> bool {
        matches!(self, Self::Chunked { decoder, .. } if decoder.is_malformed())
    }

    /// Reads some of the body into `buffer`, which is not empty.
    pub(crate) fn read(
        &mut self,
        from: &mut BufferedTransport,
        buffer: &mut [u8],
    ) -> Result<Received, HttpError> {
        let read = match self {
            Self::Ended => END,
            Self::Length { got, expected } if got == expected => END,
            Self::Length { got, expected } => {
                // Not beyond the body, because the next response follows it.
                let room = Bytes::new(*expected - *got).as_usize().min(buffer.len());
                match from.read(&mut buffer[..room])? {
                    Received::End { .. } => return Err(cut_off(from, *got, Some(*expected))),
                    received => counted(got, received),
                }
            }
            Self::UntilClose { got } => match from.read(buffer)? {
                Received::End { clean: false } => {
                    let message = format!(
                        "{} ended a body of unknown length after {got} bytes without TLS's closing message: it may be cut off",
                        from.at
                    );
                    return Err(Failure::new(FailureKind::Temporary, message).into());
                }
                received => counted(got, received),
            },
            Self::Chunked { decoder, got } => match read_chunked(decoder, from, buffer)? {
                Some(Received::End { .. }) => return Err(cut_off(from, *got, None)),
                Some(received) => counted(got, received),
                None => END,
            },
        };
        if read == END && matches!(self, Self::UntilClose { .. }) {
            *self = Self::Ended;
        }
        Ok(read)
    }
}

/// The end of a body.
const END: Received = Received::End { clean: true };

fn counted(got: &mut u64, received: Received) -> Received {
    if let Received::Data(n) = received {
        *got += n as u64;
    }
    received
}

fn cut_off(from: &BufferedTransport, got: u64, expected: Option<u64>) -> HttpError {
    closed_early(&from.at, Bytes::new(got), expected.map(Bytes::new)).into()
}

/// Reads payload of one chunk; `None` at the end of the body.
fn read_chunked(
    decoder: &mut ChunkedDecoder,
    from: &mut BufferedTransport,
    buffer: &mut [u8],
) -> Result<Option<Received>, HttpError> {
    loop {
        let left = decoder.payload_left().as_usize();
        if left > 0 {
            let room = left.min(buffer.len());
            let payload = &mut buffer[..room];
            // If the chunk may end here, its framing and the next size line are received by the
            // same call.
            let ahead = if room < left { 0 } else { FRAMING_PIECE };
            let received = from.read_ahead(payload, ahead)?;
            if let Received::Data(n) = received {
                decoder.took_payload(Bytes::new(n as u64));
            }
            return Ok(Some(received));
        }
        let used = decoder.framing(from.buffer.data());
        let used = used.map_err(|error| {
            let message = format!("the body from {} breaks its chunked coding: {error}", from.at);
            Failure::new(FailureKind::Protocol, message)
        });
        from.buffer.consume(used?);
        if decoder.is_done() {
            return Ok(None);
        }
        if decoder.payload_left() == Bytes::ZERO {
            match from.fill_buffer(FRAMING_PIECE)? {
                Received::Data(_) => {}
                other => return Ok(Some(other)),
            }
        }
    }
}
