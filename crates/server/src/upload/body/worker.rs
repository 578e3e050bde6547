//! Receives an upload on a thread of its own: socket to segments, then digest and final name.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::http::{
    ReplyHead, UPLOAD_COMPLETE, UPLOAD_MTIME, UPLOAD_OFFSET, UploadId, upload_bool,
};
use longhaul_core::proto::metalink::{MetalinkName, Pieces};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::digest::WantedDigests;
use longhaul_engine::sink::part_file::PartFile;
use longhaul_engine::sink::pipeline::PipelineError;
use longhaul_engine::tree_digest::TreeDigest;
use parking_lot::Mutex;

use crate::reply::Reply;
use crate::reply::piece_digests;
use crate::upload::Uploads;
use crate::upload::body::body_receiver::{
    BodyConnection, BodyReceiver, BodyTarget, UnknownSize, UploadOutcome,
};
use crate::upload::body::opened::OpenedUpload;
use crate::upload::registry::active::UploadLiveness;
use crate::upload::registry::completed::{CompletedUpload, FileVersion};
use crate::upload::request::refusal;

/// What to do when the body is received.
pub(crate) enum AfterBody {
    /// Keep the partial file for further parts.
    KeepPartial,
    /// The file is complete: verify its digest, and give it its final name. Where the digest is wrong, the upload is kept for a
    /// client that takes the digests of pieces, and deleted for any other.
    Finish { digest: Option<Checksum>, modified: Option<SystemTime>, replace: bool, takes_pieces: bool },
}

/// An upload that receives one body at a time; dropping it removes a partial file that cannot be resumed.
pub(crate) struct InboundUpload {
    opened: OpenedUpload,
    after: AfterBody,
    /// Whether a file of this name existed before.
    exists: bool,
    uploads: Arc<Uploads>,
    /// The ID of a resumable upload, under which it is entered when it is complete.
    id: Option<UploadId>,
    /// The digest of a resumable upload, which its next request continues.
    digest: Option<Arc<TreeDigest>>,
}

impl InboundUpload {
    pub(crate) fn new(opened: OpenedUpload, after: AfterBody, exists: bool, uploads: &Arc<Uploads>) -> Self {
        Self { opened, after, exists, uploads: Arc::clone(uploads), id: None, digest: None }
    }

    /// Names a resumable upload, and the digest that it continues.
    pub(crate) fn resumable(mut self, id: UploadId, digest: Option<Arc<TreeDigest>>) -> Self {
        (self.id, self.digest) = (Some(id), digest);
        self
    }

    pub(crate) fn liveness(&self) -> &Arc<UploadLiveness> {
        &self.opened.liveness
    }

    /// Receives the body, then concludes the request.
    pub(crate) fn run(self, mut connection: BodyConnection) -> UploadOutcome {
        let OpenedUpload { pipeline, writer, liveness, .. } = &self.opened;
        let before = pipeline.resumed();
        let failure: Mutex<Option<PipelineError>> = Mutex::default();
        let stop = liveness.cancel.child();
        let fail = |error: PipelineError| {
            failure.lock().get_or_insert(error);
            stop.cancel();
        };
        let mut received = Bytes::ZERO;
        let body = thread::scope(|threads| {
            let (inlet, segments) = pipeline.inlet();
            let running = pipeline.start(threads, writer, &segments, &fail);
            let range = ByteRange::new(before.get(), pipeline.size().map_or(u64::MAX, Bytes::get));
            let partials = &*self.uploads.partials;
            let unknown_size = pipeline.size().is_none().then_some(UnknownSize { partials, pipeline });
            let target = BodyTarget { range, active: &self.uploads.active, liveness, unknown_size };
            let body = BodyReceiver::new(target, &mut connection, inlet, &stop).run(&mut received);
            liveness.set_last_data(None);
            running.end();
            body
        });
        let failure = failure.into_inner();
        let reply = match (failure, body) {
            (Some(error), _) => Err(refusal::pipeline(&error)),
            (None, Err(refused)) => Err(refused),
            (None, Ok(())) => self.conclude(before + received, &liveness.cancel),
        };
        connection.end(reply.unwrap_or_else(|refused| refused), received)
    }

    /// Concludes a request whose body is written; the file is received up to `end`.
    fn conclude(&self, end: Bytes, cancel: &Cancel) -> Result<Reply, Reply> {
        let (pipeline, Uploads { partials, completed, digests, .. }) =
            (&self.opened.pipeline, &*self.uploads);
        let AfterBody::Finish { digest, modified, replace, takes_pieces } = &self.after else {
            pipeline.sync_names().map_err(|error| refusal::output(&error))?;
            let head = ReplyHead::new(204)
                .with(UPLOAD_OFFSET, &end.get().to_string())
                .with(UPLOAD_COMPLETE, upload_bool(false));
            return Ok(Reply::empty(head));
        };
        if pipeline.size().is_some() && !pipeline.is_complete() {
            return Err(refusal::incomplete(&pipeline.written_ranges(), pipeline.size().unwrap_or_default()));
        }
        if let Some(wanted) = digest {
            if let Some(tree) = &self.digest {
                digests.remove(tree);
            }
            let found = pipeline.digest(wanted.algorithm, cancel).map_err(|error| refusal::output(&error))?;
            match found {
                None => return Err(refusal::ended()),
                Some(found) if found != *wanted => {
                    tracing::warn!(path = %pipeline.part().target().display(), %found, %wanted, "wrong digest");
                    if let Some(pieces) = takes_pieces.then(|| self.pieces(cancel)).flatten() {
                        return Err(pieces);
                    }
                    partials.discard(pipeline.part());
                    return Err(Reply::text(422, &format!("the file has the digest {found}, not {wanted}")));
                }
                Some(_) => {}
            }
        }
        let timed = modified.map(|modified| set_modified(pipeline.part(), modified));
        if let Some(Err(error)) = &timed {
            tracing::warn!("{} does not get its time: {error}", pipeline.part().target().display());
        }
        if let Some(id) = self.id
            && let Ok(file) = FileVersion::of(pipeline.part().file())
        {
            completed.add(CompletedUpload { id, file, digest: digest.clone() });
        }
        let counted = partials.forget(pipeline.part().path());
        let finished = pipeline.finish(*replace).map_err(|error| {
            partials.restore(pipeline.part().path(), counted);
            self.id.into_iter().for_each(|id| completed.forget(id));
            refusal::pipeline(&error)
        })?;
        finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let mut head = ReplyHead::new(if self.exists { 204 } else { 201 });
        if let Some(Ok(())) = timed {
            head.add(UPLOAD_MTIME, "accepted");
        }
        Ok(Reply::empty(head))
    }

    /// Returns the reply with the digests of the file's pieces as the device has them; `None` where they cannot be told.
    fn pieces(&self, cancel: &Cancel) -> Option<Reply> {
        let pipeline = &self.opened.pipeline;
        let size = pipeline.size()?;
        // The client knows which file it has sent. Some names of files cannot be written in a metalink.
        let name = MetalinkName::parse("file").ok()?;
        let length = Pieces::length_for(size);
        let wanted = WantedDigests { whole: None, pieces: Some((Algorithm::Blake3, length)) };
        let read = pipeline.read_back(wanted, cancel);
        let read = read.inspect_err(|error| tracing::warn!("the pieces are not hashed: {error}")).ok()??;
        let pieces = Pieces { length, algorithm: Algorithm::Blake3, digests: read.pieces };
        Some(piece_digests::document(422, name, size, pieces))
    }
}

impl Drop for InboundUpload {
    /// Removes the partial file of a PUT, which cannot be resumed.
    fn drop(&mut self) {
        // After completion the part file has the target's name, and its former name may belong to another upload.
        let pipeline = &self.opened.pipeline;
        if pipeline.journal().is_none() && pipeline.part().check_name().is_ok() {
            self.uploads.partials.discard(pipeline.part());
        }
    }
}

/// Gives a file the client's time, and the fraction of a second of this moment: files of one size and time have different entity tags,
/// whatever time their clients choose.
///
/// Fails on a file system without fractions of a second; the file keeps the time of its last write.
fn set_modified(part: &PartFile, modified: SystemTime) -> io::Result<()> {
    let written = part.file().metadata()?.modified()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Some file systems have a resolution of a microsecond.
    let fraction = Duration::from_nanos(u64::from(now.subsec_nanos().max(1_000)));
    part.set_modified(modified.checked_add(fraction).unwrap_or(modified))?;
    if part.file().metadata()?.mtime_nsec() != 0 {
        return Ok(());
    }
    part.set_modified(written)?;
    Err(io::Error::other(
        "its file system has no fractions of a second, so that its entity tag could be that of another file",
    ))
}
