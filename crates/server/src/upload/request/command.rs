//! Parses the head of an upload request; reads nothing from the disk.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::{
    ContentRange, PARTIAL_UPLOAD, REPR_DIGEST, RequestBody, RequestHead, Syntax, TargetPath, UPLOAD_COMPLETE,
    UPLOAD_LENGTH, UPLOAD_MTIME, UPLOAD_OFFSET, UploadId, WANT_REPR_DIGEST, parse_upload_bool,
    parse_upload_bytes,
};
use longhaul_core::proto::metalink;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use crate::access::Grant;
use crate::connection::targets::names_upload;
use crate::reply::Reply;
use crate::upload::request::repr_digest;

/// Header fields that must not be repeated.
const SINGLE_FIELDS: [&str; 6] =
    [UPLOAD_OFFSET, UPLOAD_LENGTH, UPLOAD_COMPLETE, "Content-Type", "Content-Range", "Authorization"];

/// The operation that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UploadOperation {
    /// HEAD: report the offset of an upload.
    Status(UploadId),
    /// PATCH: append a part.
    AppendPart(AppendPart),
    /// PATCH with Content-Range: receive a range, beside others.
    AddRange(AddRange),
    /// DELETE: discard an upload.
    Discard {
        id: UploadId,
        /// The ID in the URL: that of the client which began the upload, or that of the listing.
        named: UploadId,
    },
    /// PUT: receive a whole file in one request.
    WholeFile(WholeFile),
    /// DELETE without an upload: delete a file.
    DeleteFile,
    /// MKCOL: make a directory.
    MakeDirectory,
    /// GET with `?uploads`: list the paused uploads of a directory.
    List,
}

/// An upload request, parsed and allowed.
pub(crate) struct UploadCommand {
    pub(crate) request: RequestHead,
    pub(crate) path: TargetPath,
    pub(crate) grant: Grant,
    pub(crate) operation: UploadOperation,
}

impl UploadCommand {
    /// Parses an allowed request.
    pub(crate) fn parse(request: RequestHead, path: TargetPath, grant: Grant) -> Result<Self, Reply> {
        let operation = UploadOperation::parse(&request, &path, grant.holder.as_deref())?;
        Ok(Self { request, path, grant, operation })
    }

    /// Marks a range as unable to begin an upload, because the server is shutting down.
    pub(crate) fn only_continuing(mut self) -> Self {
        if let UploadOperation::AddRange(add) = &mut self.operation {
            add.may_begin = false;
        }
        self
    }
}

/// Returns the ID within the server of an upload that a client names `id`: two tokens never share
/// one.
pub(crate) fn upload_id(id: UploadId, holder: Option<&str>) -> UploadId {
    let Some(holder) = holder else { return id };
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.to_string().as_bytes()).update(holder.as_bytes());
    let mut bits = [0; 16];
    hasher.finalize_xof().fill(&mut bits);
    UploadId::new(bits)
}

/// A part of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppendPart {
    pub(crate) id: UploadId,
    pub(crate) offset: Bytes,
    /// The size of the whole file; required in the first part.
    pub(crate) length: Option<Bytes>,
    /// This part is the last one.
    pub(crate) complete: bool,
    pub(crate) digest: Option<Checksum>,
    /// Whether the client asks for a BLAKE3 digest of what is received, not of what is read back.
    pub(crate) hash: bool,
    /// Whether the client knows what to do with the digests of pieces where that of the file is
    /// wrong.
    pub(crate) takes_pieces: bool,
    /// The time of modification that the file is to have.
    pub(crate) modified: Option<SystemTime>,
    /// Whether an existing file may be replaced.
    pub(crate) replace: bool,
}

/// A range of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddRange {
    pub(crate) id: UploadId,
    /// Never empty.
    pub(crate) range: ByteRange,
    /// The size of the whole file.
    pub(crate) whole: Bytes,
    /// Whether the range may be the first of its upload.
    pub(crate) may_begin: bool,
    /// As of [`AppendPart::hash`].
    pub(crate) hash: bool,
    /// Whether an existing file may be replaced.
    pub(crate) replace: bool,
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WholeFile {
    /// `None` with chunked coding.
    pub(crate) length: Option<Bytes>,
    pub(crate) digest: Option<Checksum>,
    /// The time of modification that the file is to have.
    pub(crate) modified: Option<SystemTime>,
    /// Whether an existing file may be replaced.
    pub(crate) replace: bool,
}

impl UploadOperation {
    /// Returns the upload's ID; `None` for operations that name no upload.
    pub(crate) fn id(&self) -> Option<UploadId> {
        match self {
            Self::Status(id) | Self::Discard { id, .. } => Some(*id),
            Self::AppendPart(append) => Some(append.id),
            Self::AddRange(add) => Some(add.id),
            Self::WholeFile(_) | Self::DeleteFile | Self::MakeDirectory | Self::List => None,
        }
    }

    /// Returns whether the operation may begin an upload that counts against the quota.
    pub(crate) fn takes_quota(&self) -> bool {
        matches!(self, Self::AppendPart(_) | Self::AddRange(_) | Self::WholeFile(_))
    }

    /// Parses the operation of a request's head, with the token of `holder`.
    fn parse(request: &RequestHead, path: &TargetPath, holder: Option<&str>) -> Result<Self, Reply> {
        let bad = |why: &str| Err(Reply::text(400, why));
        let named = path.query().and_then(UploadId::of_query);
        let names_upload = names_upload(request.target());
        // Another query may mean no file: S3's ?acl and ?partNumber= would replace it, and
        // ?uploadId= would delete it.
        let query = path.query().unwrap_or_default();
        let is_known = match request.method() {
            "GET" => true,
            "PUT" | "MKCOL" => query.is_empty(),
            // A front may have added its signature.
            _ => query.is_empty() || names_upload,
        };
        if !is_known {
            return bad(
                "the server knows no such query, and leaves the file as it is: send the request without",
            );
        }
        if request.method() == "MKCOL" {
            return Ok(Self::MakeDirectory);
        }
        // A repeated field is ambiguous.
        if let Some(name) = SINGLE_FIELDS.iter().find(|name| request.repeats(name)) {
            return bad(&format!("there may be one {name} only"));
        }
        let replace = may_replace(request)?;
        match (request.method(), named) {
            ("PUT", _) => Self::whole(request, replace),
            ("DELETE", None) if !names_upload && request.body() != RequestBody::None => {
                bad("this request carries no body")
            }
            ("DELETE", None) if !names_upload => Ok(Self::DeleteFile),
            ("GET", _) => Ok(Self::List),
            (_, None) => bad("an upload is named by ?upload= and 32 hexadecimal digits"),
            ("PATCH", Some(named)) => Self::append(request, upload_id(named, holder), replace),
            (_, Some(_)) if request.body() != RequestBody::None => bad("this request carries no body"),
            (_, Some(_)) if !replace => Err(Reply::text(412, "no condition is known for this request")),
            ("DELETE", Some(named)) => Ok(Self::Discard { id: upload_id(named, holder), named }),
            (_, Some(named)) => Ok(Self::Status(upload_id(named, holder))),
        }
    }

    fn whole(request: &RequestHead, replace: bool) -> Result<Self, Reply> {
        // Ignoring Content-Range would replace the file by a part of it (RFC 9110, section 14.5).
        if request.header("content-range").is_some() {
            return Err(Reply::text(400, "PUT writes whole files; parts go by PATCH, see OPTIONS"));
        }
        if request.header("content-encoding").is_some() {
            return Err(Reply::text(415, "files are stored as they come; send it without Content-Encoding"));
        }
        let length = match request.body() {
            // The body would be empty (RFC 9112, section 6.3), and a forgotten header would empty
            // the file.
            RequestBody::None if request.header("content-length").is_none() => {
                return Err(Reply::text(
                    411,
                    "say how long the file is with Content-Length, or send it chunked",
                ));
            }
            RequestBody::None => Some(Bytes::ZERO),
            RequestBody::Length(length) => Some(length),
            RequestBody::Chunked => None,
        };
        let (digest, modified) = (digest(request)?, modified(request)?);
        Ok(Self::WholeFile(WholeFile { length, digest, modified, replace }))
    }

    fn append(request: &RequestHead, id: UploadId, replace: bool) -> Result<Self, Reply> {
        let bad = |why: &str| Err(Reply::text(400, why));
        let typed = request.header("content-type").is_some_and(|media| {
            media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(PARTIAL_UPLOAD)
        });
        if !typed {
            return Err(Reply::text(415, "a part of an upload has the type application/partial-upload"));
        }
        if let Some(range) = request.header("content-range") {
            return Ok(Self::AddRange(AddRange::of(request, id, range, replace)?));
        }
        let Some(offset) = request.header(UPLOAD_OFFSET).and_then(parse_upload_bytes) else {
            return bad("Upload-Offset must say where the part begins, in bytes");
        };
        let Some(complete) = request.header(UPLOAD_COMPLETE).and_then(parse_upload_bool) else {
            return bad("Upload-Complete must be ?0 or ?1");
        };
        let length = match request.header(UPLOAD_LENGTH).map(parse_upload_bytes) {
            None => None,
            Some(Some(length)) => Some(length),
            Some(None) => return bad("Upload-Length must be the file's size in bytes"),
        };
        if length.is_some_and(|length| offset > length) {
            return bad("the part begins past the end of the file");
        }
        let (digest, hash, modified) = (digest(request)?, wants_blake3(request), modified(request)?);
        let takes_pieces = request.list("accept").is_some_and(|accepted| {
            accepted.split(',').any(|media| media.trim().eq_ignore_ascii_case(metalink::MEDIA_TYPE))
        });
        let part = AppendPart { id, offset, length, complete, digest, hash, takes_pieces, modified, replace };
        Ok(Self::AppendPart(part))
    }
}

impl AddRange {
    /// Parses a PATCH whose Content-Range is `range`.
    fn of(request: &RequestHead, id: UploadId, range: &str, replace: bool) -> Result<Self, Reply> {
        let bad = |why: &str| Err(Reply::text(400, why));
        let Some(ContentRange::Part { range, total: Some(whole) }) =
            ContentRange::parse(range, Syntax::Strict)
        else {
            return bad("Content-Range must be as bytes 0-99/1000, with the size of the whole file");
        };
        if request.header(UPLOAD_OFFSET).is_some() {
            return bad("a part begins where Content-Range says; leave Upload-Offset out");
        }
        if request.header(UPLOAD_COMPLETE).and_then(parse_upload_bool) != Some(false) {
            return bad("Upload-Complete must be ?0; an upload is completed without Content-Range");
        }
        if request.header(UPLOAD_LENGTH).is_some_and(|length| parse_upload_bytes(length) != Some(whole)) {
            return bad("Upload-Length and Content-Range give the file different sizes");
        }
        if request.body() != RequestBody::Length(range.len()) {
            return bad("Content-Length must be that of the range");
        }
        Ok(Self { id, range, whole, may_begin: true, hash: wants_blake3(request), replace })
    }
}

/// Returns whether an existing file may be replaced; refuses conditions other than `If-None-Match:
/// *`, and `If-Match` of a PUT or of a file's DELETE, which is compared with the file later.
fn may_replace(request: &RequestHead) -> Result<bool, Reply> {
    let unknown = || {
        Reply::text(
            412,
            "writing knows the conditions If-None-Match: *, and for PUT and DELETE of files If-Match",
        )
    };
    let compares =
        matches!(request.method(), "PUT") || request.method() == "DELETE" && !names_upload(request.target());
    let unknown_match = !compares && request.header("if-match").is_some();
    if unknown_match || request.header("if-unmodified-since").is_some() {
        return Err(unknown());
    }
    match request.list("if-none-match") {
        None => Ok(true),
        Some(tags) if tags.trim() == "*" => Ok(false),
        Some(_) => Err(unknown()),
    }
}

/// Returns whether Want-Repr-Digest names blake3 with a weight above 0 (RFC 9530, section 4).
fn wants_blake3(request: &RequestHead) -> bool {
    let wanted = request.list(WANT_REPR_DIGEST).unwrap_or_default();
    let wanted = wanted.split(',').filter_map(|member| member.split_once('='));
    wanted.into_iter().any(|(name, weight)| name.trim() == "blake3" && weight.trim() != "0")
}

/// Reads the time of modification that the file is to have.
fn modified(request: &RequestHead) -> Result<Option<SystemTime>, Reply> {
    let Some(field) = request.header(UPLOAD_MTIME) else { return Ok(None) };
    let time =
        field.trim().parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let refused = || Reply::text(400, "X-OC-Mtime must be a time in seconds since 1970");
    time.map(Some).ok_or_else(refused)
}

fn digest(request: &RequestHead) -> Result<Option<Checksum>, Reply> {
    match request.list(REPR_DIGEST) {
        None => Ok(None),
        Some(field) => match repr_digest::parse(&field) {
            None => Err(Reply::text(400, "of Repr-Digest blake3, sha-256 and sha-512 are known here")),
            digest => Ok(digest),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: &str, lines: &[&str]) -> Result<UploadOperation, u16> {
        let text = format!("{first} HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", lines.join("\r\n"));
        let request = RequestHead::parse(text.as_bytes()).unwrap().unwrap().0;
        let path = TargetPath::parse(request.target()).unwrap();
        UploadOperation::parse(&request, &path, None).map_err(|reply| reply.status())
    }

    const PART: &str = "PATCH /f?upload=00112233445566778899aabbccddeeff";
    const TYPE: &str = "Content-Type: application/partial-upload";

    #[test]
    fn patch_with_content_range_adds_a_range() {
        let lines = [TYPE, "Content-Range: bytes 3-6/9", "Upload-Complete: ?0", "Content-Length: 4"];
        let Ok(UploadOperation::AddRange(add)) = read(PART, &lines) else { panic!() };
        assert_eq!((add.range, add.whole, add.hash), (ByteRange::new(3, 7), Bytes::new(9), false));
        for (at, line) in [
            (1, "Content-Range: bytes 3-6/*"),
            (1, "Content-Range: bytes */9"),
            (1, "Content-Range: bytes 3-9/9"),
            (1, "Content-Range: bytes 4-3/9"),
            (1, "Content-Range: items 3-6/9"),
            (2, "Upload-Complete: ?1"),
            (2, "X: y"),
            (3, "Content-Length: 5"),
            (3, "Transfer-Encoding: chunked"),
            (3, "X: y"),
        ] {
            let mut lines = lines;
            lines[at] = line;
            assert_eq!(read(PART, &lines), Err(400), "{line}");
        }
        for line in ["Upload-Offset: 3", "Upload-Length: 8", "content-range: bytes 3-6/9"] {
            assert_eq!(read(PART, &[lines.as_slice(), &[line]].concat()), Err(400), "{line}");
        }
    }

    #[test]
    fn ambiguous_and_unsupported_requests_are_refused() {
        let chunked = "Transfer-Encoding: chunked";
        for (first, lines, status) in [
            (PART, vec!["Upload-Offset: 0", "Upload-Complete: ?0"], 415),
            (PART, vec![TYPE, "Upload-Complete: ?0"], 400),
            (PART, vec![TYPE, "Upload-Offset: -1", "Upload-Complete: ?0"], 400),
            (PART, vec![TYPE, "Upload-Offset: 0"], 400),
            (PART, vec![TYPE, "Upload-Offset: 0", "Upload-Complete: yes"], 400),
            (PART, vec![TYPE, "Upload-Offset: 0", "Upload-Complete: ?0", "Upload-Length: x"], 400),
            (PART, vec![TYPE, "Upload-Offset: 5", "Upload-Complete: ?0", "Upload-Length: 4"], 400),
            (PART, vec![TYPE, "Upload-Offset: 0", "Upload-Complete: ?1", "Repr-Digest: md5=:AA==:"], 400),
            ("PATCH /f", vec![TYPE], 400),
            ("PATCH /f?upload=0", vec![TYPE], 400),
            ("DELETE /f?upload=", vec!["X: y"], 400),
            ("DELETE /f", vec![chunked], 400),
            ("DELETE /f?upload=00112233445566778899aabbccddeeff", vec![chunked], 400),
            ("PUT /f", vec!["Content-Range: bytes 0-1/2"], 400),
            ("PUT /f", vec!["Content-Encoding: gzip"], 415),
            ("PUT /f?acl", vec!["Content-Length: 1"], 400),
            ("DELETE /f?partNumber=1&uploadId=x", vec!["X: y"], 400),
            ("PUT /f?partNumber=1&upload=x", vec!["Content-Length: 1"], 400),
            ("PUT /f?upload=00112233445566778899aabbccddeeff", vec!["Content-Length: 1"], 400),
            ("MKCOL /d?x", vec!["X: y"], 400),
            ("PATCH /f?upload=00112233445566778899aabbccddeeff", vec!["If-Match: \"a\""], 412),
            ("PUT /f", vec!["If-None-Match: \"a\""], 412),
            ("PUT /f", vec!["If-None-Match: *", "If-None-Match: \"a\""], 412),
            (PART, vec![TYPE, "If-Unmodified-Since: Sun, 22 Nov 2026 00:00:00 GMT"], 412),
            ("DELETE /f?upload=00112233445566778899aabbccddeeff", vec!["If-None-Match: *"], 412),
            ("HEAD /f?upload=00112233445566778899aabbccddeeff", vec!["If-None-Match: \"a\""], 412),
            (PART, vec![TYPE, "Upload-Offset: 0", "Upload-Complete: ?0", "upload-offset: 0"], 400),
            (PART, vec![TYPE, "Upload-Offset: 0", "Upload-Complete: ?0", "Upload-Complete: ?1"], 400),
            (PART, vec![TYPE, "Upload-Length: 1", "Upload-Length: 2"], 400),
            (PART, vec![TYPE, TYPE], 400),
            ("PUT /f", vec!["Authorization: Bearer a", "Authorization: Bearer b"], 400),
        ] {
            assert_eq!(read(first, &lines), Err(status), "{first} {lines:?}");
        }
    }

    #[test]
    fn put_receives_a_whole_file_and_patch_appends_a_part() {
        let whole = |length, replace| {
            Ok(UploadOperation::WholeFile(WholeFile { length, digest: None, modified: None, replace }))
        };
        assert_eq!(read("PUT /f", &["Content-Length: 7"]), whole(Some(Bytes::new(7)), true));
        let kept = read("PUT /f", &["If-None-Match: *", "Content-Length: 0"]);
        assert_eq!(kept, whole(Some(Bytes::ZERO), false));
        assert_eq!(read("PUT /f", &["Transfer-Encoding: chunked"]), whole(None, true));
        assert_eq!(read("PUT /f", &[]), Err(411));
        let lines = [TYPE, "Upload-Offset: 3", "Upload-Length: 9", "Upload-Complete: ?0"];
        let Ok(UploadOperation::AppendPart(part)) = read(PART, &lines) else { panic!() };
        let of = (part.offset, part.length, part.complete, part.digest);
        assert_eq!(of, (Bytes::new(3), Some(Bytes::new(9)), false, None));
        let kept = read(PART, &[lines.as_slice(), &["If-None-Match: *"]].concat());
        assert!(matches!(kept, Ok(UploadOperation::AppendPart(AppendPart { replace: false, .. }))));
    }
}
