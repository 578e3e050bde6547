//! The head of a client's request.

use std::fmt::{Display, Write};

use super::{
    ContentRange, ETag, HeaderField, PARTIAL_UPLOAD, REPR_DIGEST, UPLOAD_COMPLETE, UPLOAD_LENGTH,
    UPLOAD_OFFSET, Validator, WANT_REPR_DIGEST, upload_bool,
};
use crate::proto::metalink;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The requested part of a file, and a condition on the file's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    range: ByteRange,
    if_range: Option<Validator>,
}

impl RangeRequest {
    /// Requests all bytes from the offset `start`.
    pub fn from(start: Bytes) -> Self {
        Self { range: ByteRange::new(start.get(), u64::MAX), if_range: None }
    }

    /// Requests `range`; `None` if it is empty, which HTTP cannot express.
    pub fn of(range: ByteRange) -> Option<Self> {
        (!range.is_empty()).then_some(Self { range, if_range: None })
    }

    /// Adds If-Range: the server sends the whole file if it no longer matches `validator`.
    #[must_use]
    pub fn only_if(self, validator: Option<Validator>) -> Self {
        Self { if_range: validator, ..self }
    }

    /// Returns the requested range; its end is 2^64 - 1 if all bytes from an offset are requested.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Returns the validator of If-Range.
    pub fn if_range(&self) -> Option<&Validator> {
        self.if_range.as_ref()
    }
}

/// The method of a request with its arguments.
#[derive(Debug, Clone, Copy)]
pub enum RequestMethod<'a> {
    /// Requests the file or a range of it, without a content coding.
    Get(Option<&'a RangeRequest>),
    /// Requests the head of the answer to a GET.
    Head,
    /// Requests the methods that the target supports.
    Options,
    /// Stores a whole file.
    Put {
        /// The length of the file.
        length: Bytes,
        /// Whether the body is sent only after the server's 100 (Continue), one RTT later.
        expects: bool,
    },
    /// Adds a part to an upload; the body follows at once, or after the server's 100 (Continue).
    Patch(UploadPart),
    /// Adds a range to an upload, independent of other ranges; the body follows at once.
    PatchRange(UploadRange),
    /// Stores a range of a file at its offset (RFC 9110, section 14.5); the body follows at once.
    PutRange(FileRange),
    /// Renames the target (RFC 4918, section 9.9).
    Move {
        /// The new URL, in absolute form.
        to: &'a str,
        /// The entity tag of the file that may be replaced; `None` if no file may be replaced.
        ///
        /// Anything else at the new URL is kept: to replace a collection would delete its content.
        replaces: Option<&'a ETag>,
    },
    /// Completes an upload and gives it its final name.
    Complete {
        /// The upload's size.
        whole: Bytes,
        /// The required value of the upload's Repr-Digest.
        digest: Option<&'a str>,
        /// Whether the digest may be the one computed on receipt, see [`UploadPart::hash`].
        hash: bool,
    },
    /// Deletes the target.
    Delete,
    /// Creates a directory (RFC 4918, section 9.3).
    MakeCollection,
}

/// A part of an upload (docs/uploads.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadPart {
    /// The offset of the part.
    pub offset: Bytes,
    /// The length of the part.
    pub length: Bytes,
    /// The size of the whole upload.
    pub whole: Bytes,
    /// Whether the server is to hash the upload on receipt. The upload is then completed with a
    /// BLAKE3 digest.
    pub hash: bool,
    /// Whether the body is sent only after the server's 100 (Continue), one RTT later.
    pub expects: bool,
}

/// A range of an upload, one of several that may be sent concurrently (docs/uploads.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadRange {
    /// The range, never empty.
    pub range: ByteRange,
    /// The size of the whole upload.
    pub whole: Bytes,
    /// Whether the server is to hash the upload on receipt, see [`UploadPart::hash`].
    pub hash: bool,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// The range, never empty.
    pub range: ByteRange,
    /// The size of the whole file.
    pub whole: Bytes,
}

/// An HTTP/1.1 request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The request target: in origin form ("/path?query"), or in absolute form for a proxy.
    pub target: &'a str,
    /// The value of Host, unless `headers` contains one.
    pub host: &'a str,
    /// Further fields, in order.
    pub headers: &'a [HeaderField],
    /// The method and its arguments.
    pub method: RequestMethod<'a>,
}

impl Request<'_> {
    /// Encodes the head (RFC 9112, section 3).
    pub fn encode(&self) -> Vec<u8> {
        let mut head = Head(format!("{} {} HTTP/1.1\r\n", self.method.name(), self.target));
        if !self.headers.iter().any(|h| h.is("host")) {
            head.field("Host", &self.host);
        }
        for header in self.headers.iter().filter(|h| !self.method.sets(h)) {
            head.field(header.name(), &header.value());
        }
        self.method.write(&mut head);
        head.0.push_str("\r\n");
        head.0.into_bytes()
    }
}

impl RequestMethod<'_> {
    /// Returns the name of the method.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Get(_) => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Put { .. } | Self::PutRange(_) => "PUT",
            Self::Move { .. } => "MOVE",
            Self::Patch(_) | Self::PatchRange(_) | Self::Complete { .. } => "PATCH",
            Self::Delete => "DELETE",
            Self::MakeCollection => "MKCOL",
        }
    }

    /// Returns whether the method is HEAD, whose answer has no body (RFC 9112, section 6.3).
    pub fn is_head(&self) -> bool {
        matches!(self, Self::Head)
    }

    /// Returns whether the request changes nothing on the server (RFC 9110, section 9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Get(_) | Self::Head | Self::Options)
    }

    /// Returns whether a body follows the head.
    pub fn has_body(&self) -> bool {
        match self {
            Self::PatchRange(UploadRange { range, .. }) | Self::PutRange(FileRange { range, .. }) => {
                !range.is_empty()
            }
            Self::Put { length, .. } | Self::Patch(UploadPart { length, .. }) => *length > Bytes::ZERO,
            _ => false,
        }
    }

    /// Returns whether the body is sent only after the server's 100 (Continue).
    pub fn expects_continue(&self) -> bool {
        let expects =
            matches!(self, Self::Put { expects: true, .. } | Self::Patch(UploadPart { expects: true, .. }));
        expects && self.has_body()
    }

    /// Returns the request with a body that is sent at once, for a server that refuses the
    /// expectation (417).
    #[must_use]
    pub fn without_expectation(self) -> Self {
        match self {
            Self::Put { length, .. } => Self::Put { length, expects: false },
            Self::Patch(part) => Self::Patch(UploadPart { expects: false, ..part }),
            method => method,
        }
    }

    /// Returns whether the request sets this field itself and overrides the user's header.
    fn sets(&self, header: &HeaderField) -> bool {
        const OF_A_PART: [&str; 8] = [
            "accept",
            "content-type",
            "content-range",
            UPLOAD_OFFSET,
            UPLOAD_LENGTH,
            UPLOAD_COMPLETE,
            REPR_DIGEST,
            WANT_REPR_DIGEST,
        ];
        match self {
            Self::Patch(_) | Self::PatchRange(_) | Self::Complete { .. } => {
                OF_A_PART.iter().any(|name| header.is(name))
            }
            Self::PutRange(_) => header.is("content-range"),
            Self::Move { .. } => ["destination", "overwrite", "if"].iter().any(|name| header.is(name)),
            _ => false,
        }
    }

    fn write(&self, head: &mut Head) {
        match self {
            Self::Get(range) => {
                head.field("Accept-Encoding", &"identity");
                if let Some(range) = range {
                    range.write(head);
                }
            }
            // The length in the answer is then that of the unencoded file, as for a GET.
            Self::Head => head.field("Accept-Encoding", &"identity"),
            Self::Options | Self::Delete | Self::MakeCollection => {}
            Self::Put { length, .. } => head.body(*length, self.expects_continue()),
            Self::PutRange(FileRange { range, whole }) => {
                head.field("Content-Range", &ContentRange::Part { range: *range, total: Some(*whole) });
                head.body(range.len(), false);
            }
            Self::Move { to, replaces } => {
                head.field("Destination", to);
                head.field("Overwrite", if replaces.is_some() { &"T" } else { &"F" });
                if let Some(tag) = replaces {
                    // RFC 4918, section 10.4: a tagged list applies to the destination alone.
                    head.field("If", &format_args!("<{to}> ([{tag}])"));
                }
            }
            Self::Patch(part) => {
                head.part(part.offset, part.whole, false, part.hash);
                head.body(part.length, self.expects_continue());
            }
            Self::PatchRange(UploadRange { range, whole, hash }) => {
                head.field("Content-Type", &PARTIAL_UPLOAD);
                head.field("Content-Range", &ContentRange::Part { range: *range, total: Some(*whole) });
                head.field(UPLOAD_COMPLETE, &upload_bool(false));
                head.want_digest(*hash);
                // Without Expect, because other ranges are already in flight.
                head.body(range.len(), false);
            }
            Self::Complete { whole, digest, hash } => {
                head.part(*whole, *whole, true, *hash);
                if let Some(digest) = digest {
                    head.field(REPR_DIGEST, digest);
                    // If the digest is wrong, the answer is a metalink with the digests of the
                    // pieces.
                    head.field("Accept", &metalink::MEDIA_TYPE);
                }
                head.body(Bytes::ZERO, false);
            }
        }
    }
}

impl RangeRequest {
    fn write(&self, head: &mut Head) {
        let (first, end) = (self.range.start(), self.range.end());
        let last = if end == u64::MAX { String::new() } else { (end - 1).to_string() };
        head.field("Range", &format_args!("bytes={first}-{last}"));
        if let Some(validator) = &self.if_range {
            head.field("If-Range", validator);
        }
    }
}

/// A head under construction.
struct Head(String);

impl Head {
    fn field(&mut self, name: &str, value: &dyn Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}: {value}\r\n");
    }

    fn part(&mut self, offset: Bytes, whole: Bytes, complete: bool, hash: bool) {
        self.field("Content-Type", &PARTIAL_UPLOAD);
        self.field(UPLOAD_OFFSET, &offset.get());
        self.field(UPLOAD_LENGTH, &whole.get());
        self.field(UPLOAD_COMPLETE, &upload_bool(complete));
        self.want_digest(hash);
    }

    fn want_digest(&mut self, wanted: bool) {
        if wanted {
            self.field(WANT_REPR_DIGEST, &"blake3=10");
        }
    }

    fn body(&mut self, length: Bytes, expects: bool) {
        self.field("Content-Length", &length.get());
        if expects {
            self.field("Expect", &"100-continue");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(headers: &[HeaderField], range: Option<&RangeRequest>) -> String {
        ask(headers, RequestMethod::Get(range))
    }

    fn ask(headers: &[HeaderField], method: RequestMethod<'_>) -> String {
        String::from_utf8(Request { target: "/a?b", host: "h:81", headers, method }.encode()).unwrap()
    }

    /// Asserts the method and the lines between Host and the end of the head.
    #[track_caller]
    fn assert_head(head: &str, method: &str, lines: &str) {
        assert_eq!(head, format!("{method} /a?b HTTP/1.1\r\nHost: h:81\r\n{lines}\r\n"));
    }

    #[test]
    fn plain_and_range_requests_are_encoded_with_the_users_fields() {
        let agent = [HeaderField::new("User-Agent", "longhaul").unwrap()];
        assert_head(&encode(&agent, None), "GET", "User-Agent: longhaul\r\nAccept-Encoding: identity\r\n");
        let head = encode(&["host: other".parse().unwrap()], None);
        assert!(head.contains("\r\nhost: other\r\n") && !head.contains("Host"), "{head}");
        let range = RangeRequest::of(ByteRange::new(10, 20)).unwrap();
        assert!(encode(&[], Some(&range)).contains("\r\nRange: bytes=10-19\r\n"));
        let range = RangeRequest::from(Bytes::new(7)).only_if(Validator::parse("\"v1\""));
        assert!(encode(&[], Some(&range)).ends_with("Range: bytes=7-\r\nIf-Range: \"v1\"\r\n\r\n"));
        assert_eq!(RangeRequest::of(ByteRange::new(5, 5)), None);
    }

    #[test]
    fn upload_requests_are_encoded() {
        let (offset, length, whole) = (Bytes::new(5), Bytes::new(2), Bytes::new(7));
        let part = UploadPart { offset, length, whole, hash: false, expects: true };
        let lines = "Content-Type: application/partial-upload\r\nUpload-Offset: 5\r\nUpload-Length: 7\r\n\
            Upload-Complete: ?0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n";
        assert_head(&ask(&[], RequestMethod::Patch(part)), "PATCH", lines);
        let complete =
            ask(&[], RequestMethod::Complete { whole, digest: Some("blake3=:AA==:"), hash: false });
        let lines = "Content-Type: application/partial-upload\r\nUpload-Offset: 7\r\nUpload-Length: 7\r\nUpload-Complete: ?1\r\n\
            Repr-Digest: blake3=:AA==:\r\nAccept: application/metalink4+xml\r\nContent-Length: 0\r\n";
        assert_head(&complete, "PATCH", lines);
        let unasked = ask(&[], RequestMethod::Patch(UploadPart { expects: false, ..part }));
        assert!(unasked.ends_with("\r\nContent-Length: 2\r\n\r\n"), "{unasked}");
        let hashed = ask(&[], RequestMethod::Patch(UploadPart { hash: true, ..part }));
        assert!(hashed.contains("\r\nWant-Repr-Digest: blake3=10\r\n"), "{hashed}");
        let typed = ["Content-Type: text/plain".parse().unwrap()];
        assert_eq!(ask(&typed, RequestMethod::Patch(part)), ask(&[], RequestMethod::Patch(part)));
        let put =
            |headers: &[HeaderField]| ask(headers, RequestMethod::Put { length: Bytes::ZERO, expects: true });
        assert!(put(&typed).contains("\r\nContent-Type: text/plain\r\n"));
        assert_head(&put(&[]), "PUT", "Content-Length: 0\r\n");
        assert_head(&ask(&[], RequestMethod::Options), "OPTIONS", "");
    }

    #[test]
    fn ranges_and_renaming_replace_the_users_fields() {
        let (range, whole) = (ByteRange::new(5, 7), Bytes::new(9));
        let own = ["Content-Range: bytes 0-0/1".parse().unwrap(), "Overwrite: T".parse().unwrap()];
        let patch = ask(&own[..1], RequestMethod::PatchRange(UploadRange { range, whole, hash: true }));
        let lines = "Content-Type: application/partial-upload\r\nContent-Range: bytes 5-6/9\r\nUpload-Complete: ?0\r\n\
            Want-Repr-Digest: blake3=10\r\nContent-Length: 2\r\n";
        assert_head(&patch, "PATCH", lines);
        let put = ask(&own[..1], RequestMethod::PutRange(FileRange { range, whole }));
        assert_head(&put, "PUT", "Content-Range: bytes 5-6/9\r\nContent-Length: 2\r\n");
        let tag = ETag::parse("W/\"1-2\"");
        let rename = |own, replaces| ask(own, RequestMethod::Move { to: "http://h:81/c", replaces });
        assert_head(&rename(&own[1..], None), "MOVE", "Destination: http://h:81/c\r\nOverwrite: F\r\n");
        let over = "Destination: http://h:81/c\r\nOverwrite: T\r\nIf: <http://h:81/c> ([W/\"1-2\"])\r\n";
        assert_head(&rename(&[], tag.as_ref()), "MOVE", over);
    }
}
