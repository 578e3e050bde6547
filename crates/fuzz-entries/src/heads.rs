//! Heads of requests and responses, and the fields in them.

use std::time::{Duration, SystemTime};

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::{
    ContentRange, ETag, FileName, Framing, MAX_RANGES, RangeAnswer, RangeHeader, RangeRequest, RequestBody,
    RequestHead, ResponseHead, Syntax, TargetPath, UploadId, Validator, Validators, held_ranges,
    parse_concurrent_ranges, parse_held_ranges, parse_upload_bool, parse_upload_bytes,
};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

/// Reads a response's head and every field that a client uses.
pub fn response_head(bytes: &[u8]) {
    let end = ResponseHead::end(bytes, 0);
    if let Some(end) = end {
        // However the bytes were split among reads, the end is the same.
        for searched in [1, end / 2, end - 1] {
            assert_eq!(ResponseHead::end(&bytes[..searched.min(end - 1)], 0), None);
            assert_eq!(ResponseHead::end(bytes, searched.min(end - 1)), Some(end));
        }
    }
    let Ok(head) = ResponseHead::parse(&bytes[..end.unwrap_or(bytes.len())]) else { return };
    if bytes.starts_with(b"HTTP/1.") {
        assert!(end.is_some(), "a head was read whose end is not found");
    }
    let framing = head.framing();
    if let (Ok(Framing::Length(length)), Some(stated)) = (&framing, head.content_length()) {
        assert!(*length == stated || *length == Bytes::ZERO);
    }
    check_range(head.content_range());
    for asked in [ByteRange::new(0, 1), ByteRange::new(5, 10), ByteRange::new(0, u64::MAX)] {
        check_answer(&head, asked);
    }
    check_validator(head.validator());
    check_name(head.file_name());
    check_links(&head);
    let _ =
        (head.require_identity(), head.keeps_alive(), head.accepts_ranges(), head.accepts_partial_uploads());
    let _ = (head.etag(), head.retry_after(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30)));
    let _ = (head.offers_scheme("www-authenticate", "basic"), head.reason());
    let _ = head.text("upload-limit").and_then(parse_concurrent_ranges);
    check_held_ranges(head.text("upload-ranges").unwrap_or_default());
}

/// Asserts that held ranges lie inside the upload and read as written.
fn check_held_ranges(text: &str) {
    let whole = Bytes::new(1 << 20);
    if let Some(held) = parse_held_ranges(text, whole) {
        assert!(held.end() <= whole.get());
        let named = parse_held_ranges(&held_ranges(&held), whole).expect("own text");
        assert!(named.iter().all(|range| held.contains(range)));
    }
}

/// Asserts that an accepted answer is (the front of) what was asked for.
fn check_answer(head: &ResponseHead, asked: ByteRange) {
    let request = RangeRequest::of(asked);
    assert!(
        !matches!(RangeAnswer::of(head, None), Ok(RangeAnswer::Part { .. })),
        "a part that was not asked for"
    );
    if let Ok(RangeAnswer::Part { range, total }) = RangeAnswer::of(head, request.as_ref()) {
        assert!(head.status() == 206 && !range.is_empty());
        assert!(range.start() == asked.start() && range.end() <= asked.end());
        assert!(total.is_none_or(|total| range.end() <= total.get()));
        if let Ok(Framing::Length(length)) = head.framing() {
            assert_eq!(length, range.len());
        }
    }
}

/// Reads a request's head and every field that a server uses.
pub fn request_head(bytes: &[u8]) {
    let Ok(Some((head, length))) = RequestHead::parse(bytes) else { return };
    assert!(length <= bytes.len());
    assert_eq!(RequestHead::parse(&bytes[..length]), Ok(Some((head.clone(), length))));
    assert_eq!(RequestHead::parse(&bytes[..length - 1]).ok().flatten().map(|(_, length)| length), None);
    assert_ne!(head.body(), RequestBody::Length(Bytes::ZERO));
    if let Ok(path) = TargetPath::parse(head.target()) {
        for name in path.names() {
            assert!(!matches!(name.as_slice(), b"" | b"." | b".."));
            assert!(!name.contains(&b'/') && !name.contains(&0));
        }
        if let Some(id) = path.query().and_then(UploadId::of_query) {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
    for size in [0, 1, 1000, u64::MAX] {
        check_ranges(&head.list("range").unwrap_or_default(), size);
    }
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    if let Some(etag) = ETag::parse("\"a\"") {
        let validators = Validators::new(etag, modified);
        let _ = (validators.evaluate(&head), validators.range_applies(&head, modified));
    }
    let field = |name: &str| head.header(name).unwrap_or_default();
    let _ = (parse_upload_bytes(field("upload-offset")), parse_upload_bool(field("upload-complete")));
    let _ = head.keeps_alive();
}

/// Asserts that ranges lie inside the file and do not overlap.
fn check_ranges(header: &str, size: u64) {
    let RangeHeader::Parts(mut parts) = RangeHeader::parse(header, Bytes::new(size)) else { return };
    assert!((1..=MAX_RANGES).contains(&parts.len()));
    assert!(parts.iter().all(|part| !part.is_empty() && part.end() <= size));
    parts.sort_by_key(|part| part.start());
    assert!(parts.is_sorted_by(|a, b| a.end() <= b.start()));
}

/// Reads a Content-Range.
pub fn content_range(bytes: &[u8]) {
    check_range(ContentRange::parse(&String::from_utf8_lossy(bytes), Syntax::Lenient));
}

fn check_range(range: Option<ContentRange>) {
    let Some(range) = range else { return };
    if let ContentRange::Part { range, total } = range {
        assert!(!range.is_empty() && total.is_none_or(|total| range.end() <= total.get()));
    }
    assert_eq!(ContentRange::parse(&range.to_string(), Syntax::Strict), Some(range));
}

fn check_validator(validator: Option<Validator>) {
    if let Some(validator) = validator {
        assert_eq!(Validator::parse(&validator.to_string()), Some(validator));
    }
}

/// Reads a Content-Disposition, and a URL's path, for a file's name.
pub fn disposition(bytes: &[u8]) {
    check_name(FileName::from_disposition(bytes));
    let quoted = [b"attachment; filename=\"".as_slice(), bytes].concat();
    check_name(FileName::from_disposition(&quoted));
    check_name(FileName::from_url_path(&String::from_utf8_lossy(bytes)));
}

fn check_name(name: Option<FileName>) {
    let Some(name) = name else { return };
    let text = name.as_str();
    assert!(!text.is_empty() && text.len() <= 200);
    assert!(
        !text.starts_with(['.', '-']) && !text.contains(['/', '\\']) && !text.chars().any(char::is_control)
    );
    assert_eq!(FileName::sanitise(text).as_ref(), Some(&name), "what is harmless stays as it is");
}

/// Reads Link, Digest and Repr-Digest; each line of the input is the value of all three.
pub fn link_and_digest(bytes: &[u8]) {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for line in bytes.split(|b| matches!(b, b'\r' | b'\n')).take(50) {
        for name in ["Link: ", "Digest: ", "Repr-Digest: "] {
            head.extend_from_slice(&[name.as_bytes(), line, b"\r\n"].concat());
        }
    }
    head.extend_from_slice(b"\r\n");
    if let Ok(head) = ResponseHead::parse(&head) {
        check_links(&head);
    }
}

fn check_links(head: &ResponseHead) {
    let duplicates = head.duplicates();
    assert!(duplicates.is_sorted_by_key(|duplicate| duplicate.priority));
    let plain = |url: &str| !url.is_empty() && !url.chars().any(|c| c.is_control() || c.is_whitespace());
    assert!(
        duplicates
            .iter()
            .all(|duplicate| (1..=999_999).contains(&duplicate.priority) && plain(&duplicate.url))
    );
    assert!(head.metalinks().iter().all(|url| plain(url)));
    let digests = head.digests();
    assert!(digests.is_sorted_by(|a, b| a.algorithm > b.algorithm));
    for digest in digests {
        assert_eq!(digest.to_string().parse::<Checksum>().as_ref(), Ok(&digest));
    }
}
