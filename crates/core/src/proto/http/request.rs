//! The head of a GET request, as a client sends it.

use std::fmt::Write;

use super::{HeaderField, Validator};
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The part of a file that a request asks for, and the state of the file that it must still be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    range: ByteRange,
    if_range: Option<Validator>,
}

impl RangeRequest {
    /// Asks for everything from the offset `start` on.
    pub fn from(start: Bytes) -> Self {
        Self { range: ByteRange::new(start.get(), u64::MAX), if_range: None }
    }

    /// Asks for `range`; `None` where that is empty, which HTTP cannot say.
    pub fn of(range: ByteRange) -> Option<Self> {
        (!range.is_empty()).then_some(Self { range, if_range: None })
    }

    /// Makes the server send the whole file instead where it no longer matches `validator` (If-Range).
    #[must_use]
    pub fn only_if(self, validator: Option<Validator>) -> Self {
        Self { if_range: validator, ..self }
    }

    /// Returns what is asked for; ends at 2^64 - 1 where that is the end of the file.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Returns the validator that goes with the range.
    pub fn if_range(&self) -> Option<&Validator> {
        self.if_range.as_ref()
    }
}

/// A GET request over HTTP/1.1.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// The request target: origin form ("/path?query"), or absolute form towards a proxy.
    pub target: &'a str,
    /// The value of Host, unless `headers` holds one.
    pub host: &'a str,
    /// Further fields, in order.
    pub headers: &'a [HeaderField],
    /// The range, if not everything is wanted.
    pub range: Option<&'a RangeRequest>,
}

impl GetRequest<'_> {
    /// Writes the head (RFC 9112, section 3), asking for the file's own bytes: no content coding.
    pub fn encode(&self) -> Vec<u8> {
        let mut head = format!("GET {} HTTP/1.1\r\n", self.target);
        let mut field = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a String cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        };
        if !self.headers.iter().any(|h| h.is("host")) {
            field("Host", &self.host);
        }
        for header in self.headers {
            field(header.name(), &header.value());
        }
        field("Accept-Encoding", &"identity");
        if let Some(range) = self.range {
            let (first, end) = (range.range.start(), range.range.end());
            let last = if end == u64::MAX { String::new() } else { (end - 1).to_string() };
            field("Range", &format_args!("bytes={first}-{last}"));
            if let Some(validator) = &range.if_range {
                field("If-Range", validator);
            }
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(headers: &[HeaderField], range: Option<&RangeRequest>) -> String {
        String::from_utf8(GetRequest { target: "/a?b", host: "h:81", headers, range }.encode()).unwrap()
    }

    #[test]
    fn writes_a_plain_request() {
        let agent = [HeaderField::new("User-Agent", "longhaul").unwrap()];
        assert_eq!(
            encode(&agent, None),
            "GET /a?b HTTP/1.1\r\nHost: h:81\r\nUser-Agent: longhaul\r\nAccept-Encoding: identity\r\n\r\n"
        );
    }

    #[test]
    fn writes_ranges_with_their_validator() {
        let range = RangeRequest::of(ByteRange::new(10, 20)).unwrap();
        assert!(encode(&[], Some(&range)).contains("\r\nRange: bytes=10-19\r\n"));
        let range = RangeRequest::from(Bytes::new(7)).only_if(Validator::parse("\"v1\""));
        assert!(encode(&[], Some(&range)).ends_with("Range: bytes=7-\r\nIf-Range: \"v1\"\r\n\r\n"));
        assert_eq!(RangeRequest::of(ByteRange::new(5, 5)), None);
    }

    #[test]
    fn own_host_replaces_ours() {
        let head = encode(&["host: other".parse().unwrap()], None);
        assert!(head.contains("\r\nhost: other\r\n") && !head.contains("Host"), "{head}");
    }
}
