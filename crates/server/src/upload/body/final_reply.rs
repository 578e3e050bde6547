//! The end of an upload: the digest is compared, the file gets its time and its final name.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::http::{ReplyHead, UPLOAD_COMPLETE, UPLOAD_MTIME, UPLOAD_OFFSET, upload_bool};
use longhaul_core::proto::metalink::{MetalinkName, Pieces};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::digest::WantedDigests;
use longhaul_engine::sink::part_file::PartFile;

use crate::reply::{Reply, piece_digests};
use crate::upload::Uploads;
use crate::upload::body::worker::{AfterBody, InboundUpload};
use crate::upload::registry::recently_completed::{CompletedUpload, FileVersion};
use crate::upload::request::refusal;

impl InboundUpload {
    /// Concludes a request whose body is written; the file is received up to `end`.
    pub(super) fn conclude(&self, end: Bytes, cancel: &Cancel) -> Result<Reply, Reply> {
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
            refusal::output(&error)
        })?;
        finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let mut head = ReplyHead::new(if self.exists { 204 } else { 201 });
        if let Some(Ok(())) = timed {
            head.add(UPLOAD_MTIME, "accepted");
        }
        Ok(Reply::empty(head))
    }

    /// Returns the reply with the digests of the file's pieces as the device has them; `None` where
    /// they cannot be told.
    fn pieces(&self, cancel: &Cancel) -> Option<Reply> {
        let pipeline = &self.opened.pipeline;
        let size = pipeline.size()?;
        // The client knows which file it has sent. Some names of files cannot be written in a
        // metalink.
        let name = MetalinkName::parse("file").ok()?;
        let length = Pieces::length_for(size);
        let wanted = WantedDigests { whole: None, pieces: Some((Algorithm::Blake3, length)) };
        let read = pipeline.read_back(wanted, cancel);
        let read = read.inspect_err(|error| tracing::warn!("the pieces are not hashed: {error}")).ok()??;
        let pieces = Pieces { length, algorithm: Algorithm::Blake3, digests: read.pieces };
        Some(piece_digests::document(422, name, size, pieces))
    }
}

/// Gives a file the client's time, and the fraction of a second of this moment: files of one size
/// and time have different entity tags, whatever time their clients choose.
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
