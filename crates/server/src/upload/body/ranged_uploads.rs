//! The uploads whose ranges arrive over several connections, by target: one at a time, and the next
//! one waits for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::proto::http::UploadId;
use parking_lot::Mutex;

use crate::access::Grant;
use crate::reply::Reply;
use crate::upload::body::opened::OpenedUpload;
use crate::upload::body::ranged::RangedUpload;
use crate::upload::registry::active::SILENT_AFTER;
use crate::upload::request::command::UploadOperation;
use crate::upload::request::refusal;
use crate::upload::request::start::NotStarted;

/// The uploads of a server whose ranges arrive over several connections.
#[derive(Default)]
pub(crate) struct RangedUploads(Mutex<RangedTable>);

#[derive(Default)]
struct RangedTable {
    open: Vec<Arc<RangedUpload>>,
    /// Targets and IDs of uploads whose space is being reserved.
    opening: Vec<(PathBuf, UploadId)>,
    reserved: Vec<Reservation>,
}

/// A target that is kept for an upload that has ended here for a request of its own.
struct Reservation {
    target: PathBuf,
    id: UploadId,
    until: Instant,
}

/// The right to open the upload to a target, until dropped.
pub(crate) struct Opening<'a>(&'a RangedUploads, PathBuf);

/// What [`RangedUploads::find_or_open`] finds of a target.
pub(crate) enum RangedLookup<'a> {
    Open(Arc<RangedUpload>),
    /// There is none: the caller opens it.
    Absent(Opening<'a>),
    /// Another request of this upload, or of another one, is opening it.
    OpenedElsewhere {
        same: bool,
    },
}

impl RangedUploads {
    /// Returns the upload to `target`, or what has to be done to open that of this ID.
    pub(crate) fn find_or_open(&self, target: &Path, id: UploadId) -> RangedLookup<'_> {
        let mut uploads = self.0.lock();
        if let Some(upload) = uploads.open.iter().find(|upload| upload.target() == target) {
            return RangedLookup::Open(Arc::clone(upload));
        }
        if let Some((_, other)) = uploads.opening.iter().find(|(other, _)| other == target) {
            return RangedLookup::OpenedElsewhere { same: *other == id };
        }
        uploads.opening.push((target.to_owned(), id));
        RangedLookup::Absent(Opening(self, target.to_owned()))
    }

    /// Ends the upload to `target` for `operation`, where that is of the same upload and no range
    /// is being received, or all connections are silent.
    ///
    /// # Errors
    /// What the operation waits for. An upload is not ended for another one: its next range may be
    /// on its way.
    pub(crate) fn make_way(
        &self,
        target: &Path,
        operation: &UploadOperation,
        grant: &Grant,
    ) -> Result<(), NotStarted> {
        use UploadOperation::{AddRange, Discard, Status};
        let (mut uploads, now) = (self.0.lock(), Instant::now());
        uploads.reserved.retain(|reserved| reserved.until > now);
        let asks_only = matches!(operation, Status(_) | Discard { .. });
        let Some(upload) = uploads.open.iter().find(|upload| upload.target() == target).cloned() else {
            let mut others = uploads.reserved.iter().filter(|other| Some(other.id) != operation.id());
            return match others.any(|other| other.target == target) && !asks_only {
                true => Err(NotStarted::BetweenRanges),
                false => Ok(()),
            };
        };
        match operation {
            AddRange(_) => Ok(()),
            _ if operation.id() == Some(upload.id()) => {
                if !upload.retire() {
                    return Ok(());
                }
                // Once it has ended, its own request comes before any other upload's.
                let (target, id) = (target.to_owned(), upload.id());
                uploads.reserved.retain(|reserved| reserved.target != target);
                uploads.reserved.push(Reservation { target, id, until: now + SILENT_AFTER });
                Err(NotStarted::Superseding)
            }
            _ if asks_only => Ok(()),
            _ => Err(upload.occupied(grant)),
        }
    }

    /// Ends the reservation of a target for an upload whose request has locked the file.
    pub(crate) fn has_locked(&self, target: &Path) {
        self.0.lock().reserved.retain(|reserved| reserved.target != target);
    }

    /// Ends every upload as soon as the ranges that arrive now have ended.
    pub(crate) fn retire_all(&self) {
        self.0.lock().open.iter().for_each(|upload| upload.retire_later());
    }

    /// Enters an upload whose space is reserved, and starts its thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        id: UploadId,
        opened: OpenedUpload,
    ) -> Result<Arc<RangedUpload>, Reply> {
        let (upload, receive) = RangedUpload::new(id, &opened);
        let entry = RangedEntry(Arc::clone(self), Arc::clone(&upload));
        self.0.lock().open.push(Arc::clone(&upload));
        let run = move || {
            receive(&opened.writer);
            // The lock of the file first: another upload waits longer for an entry than for a lock.
            drop(opened);
            drop(entry);
        };
        let started = std::thread::Builder::new().name("upload".to_owned()).spawn(run);
        started.map_err(|error| refusal::exhausted(&error))?;
        Ok(upload)
    }
}

/// The entry of an upload among the others, until dropped.
struct RangedEntry(Arc<RangedUploads>, Arc<RangedUpload>);

impl Drop for RangedEntry {
    fn drop(&mut self) {
        self.0.0.lock().open.retain(|upload| !Arc::ptr_eq(upload, &self.1));
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.0.lock().opening.retain(|(target, _)| *target != self.1);
    }
}
