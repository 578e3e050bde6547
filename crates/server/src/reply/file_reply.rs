//! Replies with a file, or ranges of one.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::http::{
    Condition, ContentRange, ETag, MultipartByteranges, RangeHeader, ReplyHead, RequestHead, Validators,
};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::send::{Piece, SourceFile};

use crate::reply::etag::{entity_tag, settles_in};
use crate::reply::{Reply, piece_digests};

/// What the replies of a server say of its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOffer {
    /// The files may be uploads: a browser stores them and does not run their scripts.
    pub(crate) untrusted: bool,
    /// They have a Metalink with digests.
    pub(crate) digests: bool,
}

/// Answers a GET or HEAD for an open file: evaluates its conditions, then its range (RFC 9110,
/// section 13.2.2).
pub(crate) fn file_reply(
    source: &Arc<SourceFile>,
    request: &RequestHead,
    now: SystemTime,
    offer: FileOffer,
) -> io::Result<Reply> {
    let FileOffer { untrusted, digests } = offer;
    let metadata = source.metadata();
    let size = Bytes::new(metadata.size());
    let written = metadata.modified()?;
    // A Last-Modified in the future must not be sent (RFC 9110, section 8.8.2.1).
    let modified = written.min(now);
    let settles_in = settles_in(written, now);
    let validators =
        Validators::new(entity_tag(size.get(), (metadata.mtime(), metadata.mtime_nsec()), now)?, modified);
    let head = |status| {
        ReplyHead::new(status)
            .with("ETag", &validators.etag().to_string())
            .with("Last-Modified", &httpdate::fmt_http_date(validators.modified()))
            .with("Accept-Ranges", "bytes")
    };
    match validators.evaluate(request) {
        Condition::Proceed => {}
        Condition::NotModified => return Ok(Reply::empty(head(304))),
        Condition::Failed => {
            return Ok(Reply::explained(head(412), "the file is not the one that the request means"));
        }
    }
    let part = |range: &ByteRange| piece(source, Bytes::new(range.start()), range.len());
    let typed = |status, media: &str| {
        let head = head(status).with("Content-Type", media).with("X-Content-Type-Options", "nosniff");
        let head = if digests { head.with("Link", piece_digests::LINK) } else { head };
        match runs_scripts(media) {
            // A page that someone has uploaded must not act with the rights of the site's own
            // pages.
            true if untrusted => {
                head.with("Content-Security-Policy", "sandbox").with("Content-Disposition", "attachment")
            }
            _ => head,
        }
    };
    let media = media_type(source);
    let range = if untrusted && is_conditional_on_date(request) {
        RangeHeader::Whole
    } else {
        wanted(request, &validators, size, now)
    };
    let reply = match range {
        RangeHeader::Unsatisfiable => {
            let head =
                head(416).with("Content-Range", &ContentRange::Unsatisfied { total: size }.to_string());
            return Ok(Reply::explained(
                head,
                "the file has no such bytes, or too many ranges were asked for",
            ));
        }
        RangeHeader::Whole => Reply::new(typed(200, &media), vec![piece(source, Bytes::ZERO, size)]),
        RangeHeader::Parts(parts) if parts.len() == 1 => {
            let head = typed(206, &media).with(
                "Content-Range",
                &ContentRange::Part { range: parts[0], total: Some(size) }.to_string(),
            );
            Reply::new(head, parts.iter().map(part).collect())
        }
        RangeHeader::Parts(parts) => {
            let frame = MultipartByteranges::new(&boundary(), &media, size);
            let text = |text: String| Piece::Text(text.into_bytes());
            let mut body: Vec<Piece> =
                parts.iter().flat_map(|range| [text(frame.before(*range)), part(range)]).collect();
            body.push(text(frame.end()));
            Reply::new(typed(206, &frame.content_type()), body)
        }
    };
    Ok(Reply { settles_in, ..reply })
}

/// Returns whether a browser runs scripts of this type in the site's origin.
fn runs_scripts(media: &str) -> bool {
    let kind = media.split(';').next().unwrap_or_default().trim();
    kind == "text/html" || kind.ends_with("+xml") || kind.ends_with("/xml")
}

/// Returns the requested ranges; Range applies to GET only (RFC 9110, section 14.2).
fn wanted(request: &RequestHead, validators: &Validators, size: Bytes, now: SystemTime) -> RangeHeader {
    match request.list("range") {
        Some(range) if request.method() == "GET" && validators.range_applies(request, now) => {
            RangeHeader::parse(&range, size)
        }
        _ => RangeHeader::Whole,
    }
}

/// Returns whether a range is requested of the file of a date, which a client may have given to two
/// uploads.
fn is_conditional_on_date(request: &RequestHead) -> bool {
    request.header("if-range").is_some_and(|condition| ETag::parse(condition).is_none())
}

fn piece(source: &Arc<SourceFile>, start: Bytes, length: Bytes) -> Piece {
    Piece::File { source: Arc::clone(source), start, length }
}

fn media_type(source: &SourceFile) -> String {
    let media = mime_guess::from_path(source.path()).first_or_octet_stream();
    if media.type_() == mime_guess::mime::TEXT {
        format!("{media}; charset=utf-8")
    } else {
        media.to_string()
    }
}

/// Makes an unpredictable boundary, so that no file can contain it on purpose.
fn boundary() -> String {
    let word = || RandomState::new().hash_one("boundary");
    format!("longhaul{:016x}{:016x}", word(), word())
}
