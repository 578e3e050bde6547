//! An upload whose file is open and locked, and whose space is reserved.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_engine::sink::pipeline::Pipeline;
use longhaul_engine::sink::writer::Writer;

use crate::paths::disks::UploadSlot;
use crate::reply::Reply;
use crate::upload::Uploads;
use crate::upload::registry::active::{ActiveEntry, PartFileLock, UploadLiveness};
use crate::upload::registry::disk_reserve::leaves_reserve;
use crate::upload::request::refusal;

/// What an upload holds until its last byte is in the journal. The order of the fields is that in
/// which they are dropped.
pub(crate) struct OpenedUpload {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) writer: Arc<dyn Writer>,
    pub(crate) liveness: Arc<UploadLiveness>,
    /// Dropped before the lock, so that a resumed upload finds a free slot.
    _slot: UploadSlot,
    /// Dropped before the entry, which closes the file: a closed file's inode number may be reused.
    _lock: PartFileLock,
    _entry: ActiveEntry,
}

impl Uploads {
    /// Reserves the file's space, and opens its writer and its journal; where that fails, or too
    /// little stays free, removes a partial file that holds nothing to resume.
    pub(crate) fn open(
        &self,
        pipeline: Pipeline,
        (lock, slot): (PartFileLock, UploadSlot),
    ) -> Result<OpenedUpload, Reply> {
        let writer = prepare(&pipeline).inspect_err(|_| self.partials.abandon(pipeline.part()))?;
        let (pipeline, liveness) = (Arc::new(pipeline), Arc::new(UploadLiveness::default()));
        let entry = self.active.enter(&pipeline, &liveness);
        Ok(OpenedUpload { pipeline, writer, liveness, _slot: slot, _lock: lock, _entry: entry })
    }
}

fn prepare(pipeline: &Pipeline) -> Result<Arc<dyn Writer>, Reply> {
    let writer = pipeline.prepare().map_err(|error| refusal::output(&error))?;
    // One that continues has had its space from the beginning.
    if pipeline.resumed() == Bytes::ZERO && !leaves_reserve(pipeline.part().file(), unreserved(pipeline)) {
        return Err(refusal::reserve_reached());
    }
    pipeline.note().map_err(|error| refusal::output(&error))?;
    Ok(writer)
}

/// Returns what the file will take beyond its present blocks, which are counted in units of 512
/// bytes.
fn unreserved(pipeline: &Pipeline) -> Bytes {
    let held = pipeline.part().file().metadata().map_or(0, |part| part.blocks().saturating_mul(512));
    pipeline.size().unwrap_or_default().saturating_sub(Bytes::new(held))
}
