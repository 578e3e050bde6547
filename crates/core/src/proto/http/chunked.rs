//! Incremental decoder of the chunked transfer coding (RFC 9112, section 7.1).

use crate::proto::Malformed;
use crate::units::Bytes;

/// The largest size of one chunk's extensions, and of all trailer fields, in bytes; both are
/// ignored.
const MAX_IGNORED: usize = 16 << 10;

/// The largest number of digits of a chunk's size: those of 64 bits.
const MAX_DIGITS: u8 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the size, after this number of digits.
    Size(u8),
    Extension,
    SizeLf,
    Payload,
    PayloadCr,
    PayloadLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Done,
}

/// Decodes the framing of a body without processing its payload.
///
/// While [`payload_left`](Self::payload_left) is not zero, the next bytes of the stream are
/// payload: the caller reads them and reports their number to [`took_payload`](Self::took_payload).
/// All other bytes are passed to [`framing`](Self::framing).
#[derive(Debug, Clone)]
pub struct ChunkedDecoder {
    state: State,
    left: u64,
    ignored: usize,
    is_malformed: bool,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self { state: State::Size(0), left: 0, ignored: 0, is_malformed: false }
    }
}

impl ChunkedDecoder {
    /// Returns the number of payload bytes that come next; zero if framing comes next or the body
    /// has ended.
    pub fn payload_left(&self) -> Bytes {
        Bytes::new(if self.state == State::Payload { self.left } else { 0 })
    }

    /// Returns whether the last chunk and its trailer have been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns whether a line ended in LF alone. The end of the body is not in doubt, but what
    /// follows it is.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Records that `n` bytes of payload were read from the stream.
    pub fn took_payload(&mut self, n: Bytes) {
        self.left = self.left.saturating_sub(n.get());
        if self.state == State::Payload && self.left == 0 {
            self.state = State::PayloadCr;
        }
    }

    /// Decodes the framing at the front of `input` up to the next payload, the end of the body or
    /// the end of `input`; returns its length in bytes.
    ///
    /// # Errors
    /// [`Malformed`] if the stream is not in chunked coding.
    pub fn framing(&mut self, input: &[u8]) -> Result<usize, Malformed> {
        for (at, byte) in input.iter().enumerate() {
            if matches!(self.state, State::Payload | State::Done) {
                return Ok(at);
            }
            self.state = self.next(*byte)?;
        }
        Ok(input.len())
    }

    fn next(&mut self, byte: u8) -> Result<State, Malformed> {
        let line_end = || format!("a chunk that does not end in CR LF (byte 0x{byte:02x})");
        let line_feed = |then| if byte == b'\n' { Ok(then) } else { Err(Malformed::new(line_end())) };
        let after_cr = match self.state {
            State::Size(1..) | State::Extension => Some(State::SizeLf),
            State::PayloadCr => Some(State::PayloadLf),
            State::TrailerStart => Some(State::LastLf),
            State::Trailer => Some(State::TrailerLf),
            _ => None,
        };
        if let Some(after_cr) = after_cr.filter(|_| byte == b'\n') {
            self.is_malformed = true;
            self.state = after_cr;
        }
        match self.state {
            State::Size(digits) => match (char::from(byte).to_digit(16), byte) {
                (Some(_), _) if digits == MAX_DIGITS => {
                    Err(Malformed::new(format!("a chunk size of more than {MAX_DIGITS} digits")))
                }
                (Some(digit), _) => {
                    self.left = self.left << 4 | u64::from(digit);
                    Ok(State::Size(digits + 1))
                }
                (None, b'\r') if digits > 0 => Ok(State::SizeLf),
                (None, b';' | b' ' | b'\t') if digits > 0 => {
                    self.ignored = 0;
                    Ok(State::Extension)
                }
                _ => {
                    let why = format!("a chunk size that is not a hexadecimal number (byte 0x{byte:02x})");
                    Err(Malformed::new(why))
                }
            },
            State::Extension if byte == b'\r' => Ok(State::SizeLf),
            State::Extension => self.ignore(State::Extension),
            State::SizeLf if self.left == 0 => {
                self.ignored = 0;
                line_feed(State::TrailerStart)
            }
            State::SizeLf => line_feed(State::Payload),
            State::PayloadCr if byte == b'\r' => Ok(State::PayloadLf),
            State::PayloadCr => Err(Malformed::new(line_end())),
            State::PayloadLf => line_feed(State::Size(0)),
            State::TrailerStart if byte == b'\r' => Ok(State::LastLf),
            State::Trailer if byte == b'\r' => Ok(State::TrailerLf),
            State::TrailerStart | State::Trailer => self.ignore(State::Trailer),
            State::TrailerLf => line_feed(State::TrailerStart),
            State::LastLf => line_feed(State::Done),
            State::Payload | State::Done => Ok(self.state),
        }
    }

    /// Skips a byte of an extension or trailer.
    fn ignore(&mut self, state: State) -> Result<State, Malformed> {
        self.ignored += 1;
        let too_long = || Malformed::new("more than 16 KiB of chunk extensions or trailer fields");
        if self.ignored > MAX_IGNORED { Err(too_long()) } else { Ok(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `pieces` in order; returns the payload, and the bytes after the body if it is
    /// complete.
    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Option<Vec<u8>>), Malformed> {
        let (mut decoder, mut payload, mut after) = (ChunkedDecoder::default(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() && !decoder.is_done() {
                let take = decoder.payload_left().as_usize().min(rest.len());
                payload.extend_from_slice(&rest[..take]);
                decoder.took_payload(Bytes::new(take as u64));
                rest = &rest[take..];
                rest = &rest[decoder.framing(rest)?..];
            }
            after.extend_from_slice(rest);
        }
        Ok((payload, decoder.is_done().then_some(after)))
    }

    const BODY: &[u8] =
        b"5\r\nhello\r\n007 ; name=\"v\"\r\n, world\r\nA\r\n0123456789\r\n0\r\nDigest: x\r\nB: y\r\n\r\nHTTP/1.1";

    #[test]
    fn extensions_and_trailers_are_skipped_however_the_body_is_split() {
        let expected = (b"hello, world0123456789".to_vec(), Some(b"HTTP/1.1".to_vec()));
        for cut in 0..=BODY.len() {
            let (front, back) = BODY.split_at(cut);
            assert_eq!(decode(&[front, back]).as_ref(), Ok(&expected), "{cut}");
            let is_whole = cut >= BODY.len() - "HTTP/1.1".len();
            assert_eq!(decode(&[front]).unwrap().1.is_some(), is_whole, "{cut}");
        }
    }

    #[test]
    fn lines_may_end_in_lf_alone() {
        let body = b"5\nhello\nA ;a=b\n0123456789\n0\nA: b\n\n";
        assert_eq!(decode(&[body]), Ok((b"hello0123456789".to_vec(), Some(Vec::new()))));
        let malformed = |body: &[u8]| {
            let mut decoder = ChunkedDecoder::default();
            decoder.framing(body).map(|_| decoder.is_malformed())
        };
        assert_eq!((malformed(b"0\r\n\r\n"), malformed(b"0\r\n\n")), (Ok(false), Ok(true)));
    }

    #[test]
    fn malformed_coding_is_refused() {
        let long = [b"1;".as_slice(), &vec![b'x'; MAX_IGNORED + 1]].concat();
        for (bytes, error) in [
            (b"\r\n".as_slice(), "a hexadecimal number (byte 0x0d)"),
            (b"-1\r\n", "a hexadecimal number (byte 0x2d)"),
            (b"0x5\r\n", "a hexadecimal number (byte 0x78)"),
            (b"\n5", "a hexadecimal number (byte 0x0a)"),
            (b"5\nhello0", "end in CR LF (byte 0x30)"),
            (b"1;a\nbc", "end in CR LF (byte 0x63)"),
            (b"1\r\nabc", "end in CR LF (byte 0x62)"),
            (b"10000000000000000\r\n", "more than 16 digits"),
            (b"00000000000000001\r\n", "more than 16 digits"),
            (&long, "more than 16 KiB"),
        ] {
            let found = decode(&[bytes]).unwrap_err().to_string();
            assert!(found.contains(error), "{}: {found}", bytes.escape_ascii());
        }
    }
}
