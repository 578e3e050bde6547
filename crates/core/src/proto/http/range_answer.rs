//! Whether a response is the part of the file that was asked for.

use thiserror::Error;

use super::{ContentRange, Framing, RangeRequest, ResponseHead};
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// Why a 206 is not an answer to the request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RangeError {
    /// The field is missing, broken, or repeated with another value.
    #[error("a 206 without a usable Content-Range ('{}')", .0.escape_debug())]
    NoContentRange(String),
    /// Another part of the file, or more than was asked for.
    #[error("{asked} was asked for, and the answer holds {sent}")]
    OtherPart {
        /// What was asked for; up to 2^64 where that was everything from an offset on.
        asked: ByteRange,
        /// What was sent.
        sent: ByteRange,
    },
    /// Content-Length is not the length of Content-Range.
    #[error("Content-Length is {} bytes and Content-Range {} bytes long", .length.get(), .part.get())]
    Length {
        /// What Content-Length says.
        length: Bytes,
        /// What Content-Range says.
        part: Bytes,
    },
    /// Several parts with framing between them, though one range was asked for (RFC 9110, section 15.3.7.2).
    #[error("a 206 in parts (multipart/byteranges), though one range was asked for")]
    Multipart,
    /// A 200 with a Content-Range that is not the whole file, as a broken cache sends.
    #[error("a 200, which is the whole file, and yet with the Content-Range of a part ('{}')", .0.escape_debug())]
    PartAsWhole(String),
    /// A 206 where no range was asked for.
    #[error("a 206 though the whole file was asked for")]
    Unasked,
}

/// What the body of a successful response holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The whole file (200, 203): no range was asked for, the server knows none, or the file has changed.
    Whole {
        /// The length of the file, where the server says it.
        total: Option<Bytes>,
    },
    /// A part that starts where the request does (206); the server may send less than was asked for.
    Part {
        /// The part.
        range: ByteRange,
        /// The length of the whole file, where the server knows it.
        total: Option<Bytes>,
    },
}

impl RangeAnswer {
    /// Reads what `head`, a 200, 203 or 206, holds as the answer to `asked`.
    ///
    /// # Errors
    /// [`RangeError`] where a 206 does not hold (the front of) the range asked for, where a 200 says that it holds
    /// a part.
    pub fn of(head: &ResponseHead, asked: Option<&RangeRequest>) -> Result<Self, RangeError> {
        let length = match head.framing() {
            Ok(Framing::Length(length)) => Some(length),
            _ => None,
        };
        let field = || head.text("content-range").unwrap_or_default().to_owned();
        match head.status() {
            206 => {}
            _ if holds_a_part(head, length) => return Err(RangeError::PartAsWhole(field())),
            _ => return Ok(Self::Whole { total: length }),
        }
        let asked = asked.ok_or(RangeError::Unasked)?;
        if head.all("content-type").any(is_multipart) {
            return Err(RangeError::Multipart);
        }
        let Some(ContentRange::Part { range, total }) = head.content_range() else {
            return Err(RangeError::NoContentRange(field()));
        };
        let asked = asked.range();
        if range.start() != asked.start() || range.end() > asked.end() {
            return Err(RangeError::OtherPart { asked, sent: range });
        }
        if let Some(length) = length.filter(|length| *length != range.len()) {
            return Err(RangeError::Length { length, part: range.len() });
        }
        Ok(Self::Part { range, total })
    }
}

/// Returns whether a 200 contradicts itself: it has a Content-Range that is not the whole file.
fn holds_a_part(head: &ResponseHead, length: Option<Bytes>) -> bool {
    let Some(ContentRange::Part { range, total }) = head.content_range() else { return false };
    let whole = range.start() == 0 && total == Some(range.len());
    !whole || length.is_some_and(|length| length != range.len())
}

fn is_multipart(media_type: &[u8]) -> bool {
    // Parameters may hold any bytes.
    let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"multipart/byteranges")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &str, start: u64, end: u64) -> Result<RangeAnswer, RangeError> {
        let head = ResponseHead::parse(format!("HTTP/1.1 {status} X\r\n{fields}\r\n").as_bytes()).unwrap();
        RangeAnswer::of(&head, RangeRequest::of(ByteRange::new(start, end)).as_ref())
    }

    #[test]
    fn takes_the_part_asked_for_or_its_front() {
        let part = |end| RangeAnswer::Part { range: ByteRange::new(5, end), total: Some(Bytes::new(9)) };
        assert_eq!(answer(206, "Content-Range: bytes 5-7/9\r\nContent-Length: 3\r\n", 5, 8), Ok(part(8)));
        assert_eq!(answer(206, "Content-Range: bytes 5-6/9\r\n", 5, 8), Ok(part(7)));
        assert_eq!(
            answer(200, "Content-Length: 9\r\n", 5, 8),
            Ok(RangeAnswer::Whole { total: Some(Bytes::new(9)) })
        );
    }

    #[test]
    fn refuses_other_parts() {
        for fields in [
            "",
            "Content-Type: multipart/byteranges; boundary=x\r\n",
            "Content-Range: bytes 4-7/9\r\n",
            "Content-Range: bytes 5-8/9\r\n",
            "Content-Range: bytes 5-7/9\r\nContent-Length: 4\r\n",
            "Content-Range: bytes */9\r\n",
            "Content-Range: bytes 5-7/9\r\nContent-Range: bytes 5-6/9\r\n",
            "Content-Range: bytes 5-7/9\r\nContent-Type: Multipart/ByteRanges; boundary=x\r\n",
            "Content-Range: bytes 5-7/9\r\nContent-Type: a/b\r\nContent-Type: multipart/byteranges; boundary=é\r\n",
            "Content-Range: bytes 5-18446744073709551615/*\r\n",
            "Content-Range: bytes 5-7/7\r\n",
        ] {
            assert!(answer(206, fields, 5, 8).is_err(), "{fields}");
        }
        assert_eq!(answer(206, "Content-Range: bytes 0-1/9\r\n", 0, 0), Err(RangeError::Unasked));
    }

    #[test]
    fn a_200_with_the_content_range_of_a_part_is_not_the_whole_file() {
        for fields in [
            "Content-Range: bytes 5-7/9\r\nContent-Length: 3\r\n",
            "Content-Range: bytes 0-7/9\r\nContent-Length: 8\r\n",
            "Content-Range: bytes 0-7/*\r\nContent-Length: 8\r\n",
            "Content-Range: bytes 0-8/9\r\nContent-Length: 8\r\n",
        ] {
            assert!(matches!(answer(200, fields, 5, 8), Err(RangeError::PartAsWhole(_))), "{fields}");
        }
        let whole = "Content-Range: bytes 0-8/9\r\nContent-Length: 9\r\n";
        assert_eq!(answer(200, whole, 5, 8), Ok(RangeAnswer::Whole { total: Some(Bytes::new(9)) }));
    }
}
