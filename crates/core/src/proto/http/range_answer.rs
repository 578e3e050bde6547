//! Checks that a response is the requested part of the file.

use super::{ContentRange, Framing, RangeRequest, ResponseHead};
use crate::proto::Malformed;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// What is wrong with a part that was sent although no range was requested.
pub const UNASKED: &str = "a 206 with a part, though the whole file was asked for";

/// The content of a successful response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The whole file (a 206 of all bytes or of none in particular, or another success): no range
    /// was requested, the server does not support ranges, or the file has changed.
    Whole {
        /// The length of the file, if stated.
        total: Option<Bytes>,
    },
    /// A part that begins at the requested offset (206); it may be shorter than requested.
    Part {
        /// The range of the part.
        range: ByteRange,
        /// The length of the whole file, if stated.
        total: Option<Bytes>,
    },
}

impl RangeAnswer {
    /// Interprets `head`, of a success, as the answer to `requested`.
    ///
    /// # Errors
    /// [`Malformed`] if a 206 is neither the requested range nor its front, or if a 200 has the
    /// Content-Range of a part.
    pub fn of(head: &ResponseHead, requested: Option<&RangeRequest>) -> Result<Self, Malformed> {
        let length = match head.framing() {
            Ok(Framing::Length(length)) => Some(length),
            _ => None,
        };
        let field = || head.text("content-range").unwrap_or_default().escape_debug().to_string();
        let fail = |why: &str| Err(Malformed::new(why));
        match head.status() {
            206 => {}
            _ if holds_a_part(head, length) => {
                let field = field();
                // A faulty cache sends it.
                return fail(&format!(
                    "a 200, which is the whole file, and yet with the Content-Range of a part ('{field}')"
                ));
            }
            _ => return Ok(Self::Whole { total: length }),
        }
        if head.all("content-type").any(is_multipart) {
            // Although one range was requested (RFC 9110, section 15.3.7.2).
            return fail("a 206 in parts (multipart/byteranges), though one range was asked for");
        }
        // As curl and browsers take it. Without a length it may be a part that a cache repeats,
        // without content it is no file.
        let has_content = length.is_some_and(|length| length > Bytes::ZERO);
        if requested.is_none() && has_content && head.all("content-range").next().is_none() {
            return Ok(Self::Whole { total: length });
        }
        let Some(ContentRange::Part { range, total }) = head.content_range() else {
            return fail(&format!("a 206 without a usable Content-Range ('{}')", field()));
        };
        let Some(requested) = requested.map(RangeRequest::range) else {
            let whole = total.filter(|total| range == ByteRange::with_len(0, *total));
            let whole = whole.filter(|total| length.is_none_or(|length| length == *total));
            return whole
                .map(|total| Self::Whole { total: Some(total) })
                .ok_or_else(|| Malformed::new(UNASKED));
        };
        if range.start() != requested.start() || range.end() > requested.end() {
            return fail(&format!("{requested} was asked for, and the answer contains {range}"));
        }
        if let Some(length) = length.filter(|length| *length != range.len()) {
            let (length, part) = (length.get(), range.len().get());
            return fail(&format!("Content-Length is {length} bytes and Content-Range {part} bytes long"));
        }
        Ok(Self::Part { range, total })
    }
}

/// Returns whether a 200 has a Content-Range that is not the whole file.
fn holds_a_part(head: &ResponseHead, length: Option<Bytes>) -> bool {
    let Some(ContentRange::Part { range, total }) = head.content_range() else { return false };
    let whole = range.start() == 0 && total == Some(range.len());
    !whole || length.is_some_and(|length| length != range.len())
}

fn is_multipart(media_type: &[u8]) -> bool {
    // Parameters may contain any bytes.
    let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"multipart/byteranges")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &str, start: u64, end: u64) -> Result<RangeAnswer, Malformed> {
        let head = ResponseHead::parse(format!("HTTP/1.1 {status} X\r\n{fields}\r\n").as_bytes()).unwrap();
        RangeAnswer::of(&head, RangeRequest::of(ByteRange::new(start, end)).as_ref())
    }

    #[test]
    fn only_the_requested_part_or_its_front_is_accepted() {
        let part = |end| RangeAnswer::Part { range: ByteRange::new(5, end), total: Some(Bytes::new(9)) };
        assert_eq!(answer(206, "Content-Range: bytes 5-7/9\r\nContent-Length: 3\r\n", 5, 8), Ok(part(8)));
        assert_eq!(answer(206, "Content-Range: bytes 5-6/9\r\n", 5, 8), Ok(part(7)));
        for fields in ["Content-Length: 9\r\n", "Content-Range: bytes 0-8/9\r\nContent-Length: 9\r\n"] {
            assert_eq!(answer(200, fields, 5, 8), Ok(RangeAnswer::Whole { total: Some(Bytes::new(9)) }));
        }
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
        for fields in ["bytes 0-1/9", "bytes 0-8/*", "bytes 1-8/9", "bytes 0-8/9\r\nContent-Length: 8"] {
            let fields = format!("Content-Range: {fields}\r\n");
            assert_eq!(answer(206, &fields, 0, 0), Err(Malformed::new(UNASKED)), "{fields}");
        }
        let whole = RangeAnswer::Whole { total: Some(Bytes::new(9)) };
        for fields in ["Content-Range: bytes 0-8/9\r\n", "Content-Length: 9\r\n"] {
            assert_eq!(answer(206, fields, 0, 0), Ok(whole), "{fields}");
        }
        for fields in
            ["Content-Range: x\r\n", "Content-Type: multipart/byteranges\r\n", "Content-Length: 0\r\n"]
        {
            assert!(answer(206, fields, 0, 0).is_err(), "{fields}");
        }
    }

    #[test]
    fn status_200_with_the_content_range_of_a_part_is_refused() {
        for fields in [
            "Content-Range: bytes 5-7/9\r\nContent-Length: 3\r\n",
            "Content-Range: bytes 0-7/9\r\nContent-Length: 8\r\n",
            "Content-Range: bytes 0-7/*\r\nContent-Length: 8\r\n",
            "Content-Range: bytes 0-8/9\r\nContent-Length: 8\r\n",
        ] {
            let error = answer(200, fields, 5, 8).unwrap_err().to_string();
            assert!(error.starts_with("a 200, which is the whole file"), "{error}");
        }
    }
}
