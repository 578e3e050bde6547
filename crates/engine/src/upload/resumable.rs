//! Uploads to a server that accepts parts (docs/uploads.md): requests the offset, sends the rest,
//! and has it verified.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::Event;
use longhaul_core::proto::http::{
    RequestMethod, ResponseHead, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_OFFSET, UPLOAD_RANGES, UploadId,
    UploadPart, parse_held_ranges, parse_upload_bool, parse_upload_bytes,
};
use longhaul_core::proto::metalink::{Metalink, Pieces};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use url::{Position, Url};

use super::answer::UploadAnswer;
use super::error::{UploadError, of_bytes};
use super::ranges::RangeTarget;
use super::session::{UploadSession, UploadStep};
use crate::send::SourceFile;
use crate::source::http::{Connection, Redirects};
use crate::verify::Verify;

/// Returns the name of the upload of this state of `source` to `url`, which is the same in every
/// run.
///
/// A write that sets mtime back does not change the name; digests detect it. If none are compared
/// (`verify` is false), the name also depends on ctime, device and inode, which no program can set
/// back.
fn id(source: &SourceFile, url: &Url, verify: bool) -> UploadId {
    let path = source.path().canonicalize().unwrap_or_else(|_| source.path().clone());
    let metadata = source.metadata();
    let mut hasher = blake3::Hasher::new();
    // Paths contain no NUL.
    hasher.update(path.as_os_str().as_bytes()).update(&[0]);
    hasher.update(&metadata.len().to_le_bytes());
    hasher.update(&metadata.mtime().to_le_bytes()).update(&metadata.mtime_nsec().to_le_bytes());
    if !verify {
        hasher.update(&metadata.ctime().to_le_bytes()).update(&metadata.ctime_nsec().to_le_bytes());
        hasher.update(&metadata.dev().to_le_bytes()).update(&metadata.ino().to_le_bytes());
    }
    hasher.update(url[Position::BeforePath..].as_bytes());
    let mut bits = [0; 16];
    hasher.finalize_xof().fill(&mut bits);
    UploadId::new(bits)
}

/// The interval at which the sender checks for an answer while it waits for the digest.
const DIGEST_TICK: Duration = Duration::from_millis(5);

/// The outcome of sending the last part of a file.
pub(super) enum PartOutcome {
    /// The part is to be sent to another server, after requesting its offset.
    Redirected,
    /// The server has all of the file, and has perhaps answered the request to complete the upload.
    Whole(Option<UploadAnswer>),
}

/// Parses the piece digests of the only file; `None` if they are not BLAKE3 digests of a file of
/// this size.
fn pieces_of(document: &[u8], size: Bytes) -> Option<Pieces> {
    let file = Metalink::parse(document).ok()?.files.pop()?;
    file.pieces.filter(|pieces| file.size == Some(size) && pieces.algorithm == Algorithm::Blake3)
}

/// An upload resource on the server.
pub(super) struct UploadResource {
    query: String,
    /// Whether this run has sent a completing request, the answer to which may be lost.
    asked_to_complete: Cell<bool>,
}

impl UploadResource {
    /// Names the upload of this state of `source` to `url`; `verify` is whether digests are
    /// compared.
    pub(super) fn new(source: &SourceFile, url: &Url, verify: bool) -> Self {
        let query = format!("upload={}", id(source, url, verify));
        Self { query, asked_to_complete: Cell::new(false) }
    }

    fn step<'a>(&'a self, name: &'static str, method: RequestMethod<'a>) -> UploadStep<'a> {
        UploadStep { query: Some(&self.query), ..UploadStep::new(name, method) }
    }

    /// Returns the target for ranges of the upload; `began` is whether the server has a part of it.
    pub(super) fn ranges(&self, session: &UploadSession<'_>, began: bool) -> RangeTarget<'_> {
        let (url, hash) = (session.target.clone(), hashes_in_passing(session));
        RangeTarget { url, query: Some(&self.query), hash, began }
    }

    /// Creates the request for the server's offset.
    pub(super) fn status_step(&self) -> UploadStep<'_> {
        self.step("to report its offset", RequestMethod::Head)
    }

    /// Requests the server's offset, unless the answer has arrived `ahead`; `None` if the upload is
    /// unknown to the server, its name is refused, or an earlier run has completed it.
    pub(super) fn held(
        &self,
        session: &mut UploadSession<'_>,
        ahead: Option<UploadAnswer>,
    ) -> Result<Option<RangeSet>, UploadError> {
        let step = self.status_step();
        // A redirect or challenge is handled by a separate request.
        let ahead = ahead.filter(|answer| !matches!(answer.head.status(), 300..=399 | 401));
        let answer = ahead.map_or_else(|| session.exchange(step), Ok)?;
        // An answer to HEAD has no body with the reason, unlike one to PATCH, which is therefore
        // requested before the file is sent.
        session.asks_first |= matches!(answer.head.status(), 400 | 403 | 409 | 410);
        if matches!(answer.head.status(), 400 | 403 | 404 | 409 | 410) {
            return Ok(None);
        }
        session.require_success(step.name, &answer)?;
        let is_complete = answer.head.text(UPLOAD_COMPLETE).and_then(parse_upload_bool) == Some(true);
        if is_complete && !self.asked_to_complete.get() {
            return Ok(None);
        }
        let length = answer.head.text(UPLOAD_LENGTH).and_then(parse_upload_bytes);
        let size = session.context.progress.size;
        match offset_of(&answer.head) {
            Some(offset) if offset <= size && length.is_none_or(|length| length == size) => {
                let ranges = answer.head.text(UPLOAD_RANGES).and_then(|text| parse_held_ranges(text, size));
                let mut held = ranges.unwrap_or_default();
                held.insert(ByteRange::with_len(0, offset));
                Ok(Some(held))
            }
            offset => {
                let (offset, length) = (of_bytes(offset), of_bytes(length));
                let why = format!(
                    "it reports {offset} of {length} bytes of a file of {}; start over with --no-resume",
                    size.get()
                );
                Err(UploadError::answer(&session.at(), &why))
            }
        }
    }

    /// Deletes the server's part of the upload; returns the answer to the following offset request,
    /// if it has arrived.
    pub(super) fn start_over(
        &self,
        session: &mut UploadSession<'_>,
    ) -> Result<Option<UploadAnswer>, UploadError> {
        let step = self.step("to start over", RequestMethod::Delete);
        let (answer, ahead) = session.exchange_both(step, self.status_step())?;
        if answer.head.status() != 404 {
            session.require_success(step.name, &answer)?;
        }
        Ok(ahead)
    }

    /// Sends the file from `offset` on, followed by the completing request, unless the digest takes
    /// longer than the server's answer.
    pub(super) fn send(
        &self,
        session: &mut UploadSession<'_>,
        offset: Bytes,
    ) -> Result<PartOutcome, UploadError> {
        let whole = session.context.progress.size;
        let (hash, expects) = (hashes_in_passing(session), session.asks_first);
        let part = UploadPart { offset, length: whole - offset, whole, hash, expects };
        let body = Some(ByteRange::new(offset.get(), whole.get()));
        let step = UploadStep { body, ..self.step("the upload", RequestMethod::Patch(part)) };
        let (source, progress) = (session.context.source, session.context.progress);
        let mut complete = |connection: &mut Connection| {
            let digest = match &mut *progress.hashing.lock() {
                Some(hashing) => match hashing.within(DIGEST_TICK)? {
                    Some(digest) => Some(digest),
                    None => return Ok(false),
                },
                None => None,
            };
            source.check()?;
            progress.emit(&Event::Verifying);
            let digest = digest.as_ref().map(repr_digest);
            self.asked_to_complete.set(true);
            connection.send(RequestMethod::Complete { whole, digest: digest.as_deref(), hash })?;
            Ok(true)
        };
        let answer = session.exchange_before(step, Some(&mut complete))?;
        if Redirects::keeps_method(answer.head.status()) {
            // The completing request was sent to the old target, so its answer is not read.
            session.close();
            return Ok(PartOutcome::Redirected);
        }
        require_whole(session, offset, &answer).inspect_err(|_| session.close())?;
        session.trailing_answer().map(PartOutcome::Whole)
    }

    /// Completes the upload, which gives the file its name if the digest is right; the server's
    /// answer may have arrived `ahead`. If the digest is wrong, returns the digests of the server's
    /// pieces.
    pub(super) fn complete(
        &self,
        session: &mut UploadSession<'_>,
        digest: Option<&Checksum>,
        ahead: Option<UploadAnswer>,
    ) -> Result<Option<Pieces>, UploadError> {
        let digest = digest.map(repr_digest);
        let (whole, hash) = (session.context.progress.size, hashes_in_passing(session));
        let method = RequestMethod::Complete { whole, digest: digest.as_deref(), hash };
        let step = self.step("to complete the upload", method);
        // A redirect is followed by a separate request.
        let ahead = ahead.filter(|answer| !Redirects::keeps_method(answer.head.status()));
        self.asked_to_complete.set(true);
        let answer = ahead.map_or_else(|| session.exchange(step), Ok)?;
        if let Some(pieces) = answer.metalink.as_deref().and_then(|text| pieces_of(text, whole)) {
            return Ok(Some(pieces));
        }
        require_at(session, whole, step.name, &answer)?;
        Ok(None)
    }
}

fn repr_digest(digest: &Checksum) -> String {
    format!("blake3=:{}:", STANDARD.encode(digest.bytes()))
}

fn hashes_in_passing(session: &UploadSession<'_>) -> bool {
    session.context.request.verify == Some(Verify::Passing)
}

/// Returns an error if the answer is not a success. The error is retried if the server's offset is
/// not `offset`, as after another upload to the name.
fn require_at(
    session: &UploadSession<'_>,
    offset: Bytes,
    step: &'static str,
    answer: &UploadAnswer,
) -> Result<(), UploadError> {
    if answer.head.status() == 409 && offset_of(&answer.head).is_some_and(|there| there != offset) {
        return Err(UploadError::moved(&session.at()));
    }
    session.require_success(step, answer)
}

/// Returns an error if the answer to the part from `offset` on does not show that the server has
/// the whole file.
fn require_whole(
    session: &UploadSession<'_>,
    offset: Bytes,
    answer: &UploadAnswer,
) -> Result<(), UploadError> {
    require_at(session, offset, "the upload", answer)?;
    let whole = session.context.progress.size;
    match offset_of(&answer.head) {
        Some(there) if there == whole => Ok(()),
        Some(there) if there > offset && there < whole => Err(UploadError::moved(&session.at())),
        there => {
            let (whole, there) = (whole.get(), of_bytes(there));
            let why = format!("of {whole} bytes it reports {there}; start over with --no-resume");
            Err(UploadError::answer(&session.at(), &why))
        }
    }
}

fn offset_of(head: &ResponseHead) -> Option<Bytes> {
    head.text(UPLOAD_OFFSET).and_then(parse_upload_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};

    use super::*;
    use crate::send::source_file::tests::overwrite;

    #[test]
    fn upload_name_depends_on_source_state_and_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let named = |url: &str, verify| {
            let source = SourceFile::new(File::open(&path).unwrap(), path.clone()).unwrap();
            id(&source, &url.parse().unwrap(), verify)
        };
        std::fs::write(&path, "a").unwrap();
        let (first, unverified) = (named("http://h/a", true), named("http://h/a", false));
        assert_eq!(first, named("http://other/a", true), "one server may have many names");
        assert_ne!(first, named("http://h/b", true));
        // Changed content with the time set back.
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        overwrite(&file, b"b");
        file.set_times(FileTimes::new().set_modified(written)).unwrap();
        assert_eq!(first, named("http://h/a", true), "for the digests to tell");
        assert_ne!(unverified, named("http://h/a", false));
        std::fs::write(&path, "ab").unwrap();
        assert_ne!(first, named("http://h/a", true));
    }
}
