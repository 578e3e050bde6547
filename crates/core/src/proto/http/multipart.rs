//! Several ranges in one reply: `multipart/byteranges` (RFC 9110, section 14.6).

use super::ContentRange;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The framing around the parts of one reply; the caller sends the parts' bytes.
#[derive(Debug, Clone)]
pub struct MultipartByteranges {
    boundary: String,
    part_type: String,
    size: Bytes,
}

impl MultipartByteranges {
    /// Creates the framing for ranges of a file of `size` bytes and media type `part_type`.
    /// `boundary` must be hard to guess, because a file that contains it would appear to end early,
    /// and consist of letters and digits.
    pub fn new(boundary: &str, part_type: &str, size: Bytes) -> Self {
        Self { boundary: boundary.to_owned(), part_type: part_type.to_owned(), size }
    }

    /// Returns the reply's `Content-Type`.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    /// Returns the framing before a part's bytes.
    pub fn before(&self, part: ByteRange) -> String {
        format!(
            "\r\n--{}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
            self.boundary,
            self.part_type,
            ContentRange::Part { range: part, total: Some(self.size) }
        )
    }

    /// Returns the framing after the last part.
    pub fn end(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }

    /// Returns the length of the whole body.
    pub fn content_length(&self, parts: &[ByteRange]) -> Bytes {
        let text = |text: String| Bytes::new(text.len() as u64);
        parts.iter().fold(text(self.end()), |sum, part| sum + text(self.before(*part)) + part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::http::RangeHeader;

    #[test]
    fn content_length_is_that_of_the_framed_parts() {
        let size = Bytes::new(10);
        let RangeHeader::Parts(parts) = RangeHeader::parse("bytes=0-1,7-", size) else { panic!() };
        let frame = MultipartByteranges::new("SEP", "text/plain", size);
        let file = b"0123456789";
        let mut body = String::new();
        for &part in &parts {
            body += &frame.before(part);
            body += std::str::from_utf8(&file[part.start() as usize..part.end() as usize]).unwrap();
        }
        body += &frame.end();
        assert_eq!(
            body,
            "\r\n--SEP\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\
             \r\n--SEP\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\n789\r\n--SEP--\r\n"
        );
        assert_eq!(frame.content_length(&parts).get(), body.len() as u64);
        assert_eq!(frame.content_type(), "multipart/byteranges; boundary=SEP");
    }
}
