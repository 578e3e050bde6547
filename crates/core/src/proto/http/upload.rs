//! Resumable uploads: header names and values (draft-ietf-httpbis-resumable-upload;
//! docs/uploads.md).

use std::fmt;
use std::str::FromStr;

use crate::proto::{Malformed, number};
use crate::units::Bytes;

/// The media type of a part of an upload.
pub const PARTIAL_UPLOAD: &str = "application/partial-upload";
/// The offset of a part; in an answer, the number of bytes received.
pub const UPLOAD_OFFSET: &str = "Upload-Offset";
/// The size of the whole upload.
pub const UPLOAD_LENGTH: &str = "Upload-Length";
/// Whether the part is the last one: a structured field's boolean, `?0` or `?1`.
pub const UPLOAD_COMPLETE: &str = "Upload-Complete";
/// The digest of the whole file (RFC 9530).
pub const REPR_DIGEST: &str = "Repr-Digest";
/// The digests that the sender requests, each with a weight from 0 to 10 (RFC 9530, section 4).
pub const WANT_REPR_DIGEST: &str = "Want-Repr-Digest";
/// The requested modification time of an uploaded file, in seconds since 1970. The answer
/// `accepted` confirms it. The field is also used by ownCloud and Nextcloud.
pub const UPLOAD_MTIME: &str = "X-OC-Mtime";

/// The identifier of an upload, different for each state of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UploadId([u8; 16]);

impl UploadId {
    /// Creates an identifier from bits unique to the upload, such as a digest.
    pub const fn new(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Finds the identifier in a request's query, as in `upload=0123...`.
    pub fn of_query(query: &str) -> Option<Self> {
        query.split('&').find_map(|pair| pair.strip_prefix("upload="))?.parse().ok()
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for UploadId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bits = [0; 16];
        hex::decode_to_slice(text, &mut bits)
            .map_err(|_| Malformed::new("an upload is named by 32 hexadecimal digits"))?;
        Ok(Self(bits))
    }
}

/// Parses a structured field's integer as bytes (RFC 9651: at most 15 digits).
pub fn parse_upload_bytes(text: &str) -> Option<Bytes> {
    Some(text.trim()).filter(|text| text.len() <= 15).and_then(number).map(Bytes::new)
}

/// Parses a structured field's boolean.
pub fn parse_upload_bool(text: &str) -> Option<bool> {
    match text.trim() {
        "?1" => Some(true),
        "?0" => Some(false),
        _ => None,
    }
}

/// Formats a structured field's boolean.
pub const fn upload_bool(value: bool) -> &'static str {
    if value { "?1" } else { "?0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_formatted_values_are_parsed() {
        let id = UploadId::new([0xa5; 16]);
        assert_eq!(UploadId::of_query(&format!("x=1&upload={id}")), Some(id));
        for query in ["", "upload=", "upload=+5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a", "Upload=00"] {
            assert_eq!(UploadId::of_query(query), None, "{query}");
        }
        assert_eq!(parse_upload_bytes(" 12 "), Some(Bytes::new(12)));
        for text in ["", "-1", "+1", "1.0", "1000000000000000"] {
            assert_eq!(parse_upload_bytes(text), None, "{text}");
        }
        for value in [true, false] {
            assert_eq!(parse_upload_bool(upload_bool(value)), Some(value));
        }
        assert_eq!(parse_upload_bool("1"), None);
    }
}
