//! Uploads: whole files by PUT, and resumable uploads by PATCH (docs/uploads.md).
//!
//! ```text
//!   routes -> UploadCommand::parse -> Uploads::start (a blocking thread: names, lock, space)
//!                                        |  refused: the reply precedes the body
//!                                        v  100 Continue
//!   transport -> BodyReader -> InboundUpload (a worker thread) -> engine::sink::pipeline -> file
//!      plain: the socket itself  RangeClaim (a thread for each) ------'
//!                                                                     |
//!      TLS:   a socket pair                         sync, journal, digest, final name
//! ```

mod body;
mod registry;
mod request;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_engine::sink::memory_budget::MemoryBudget;
use tokio::time::{sleep, timeout};

use crate::reply::static_files::StaticFiles;
use crate::{Limits, Timeouts, UploadLimits};

pub(crate) use body::handler::handle;
pub(crate) use body::ranged::MAX_UPLOAD_RANGES;
pub(crate) use registry::active::{ActiveUploads, UploadUsage};
pub(crate) use request::command::UploadCommand;

use body::ranged_uploads::RangedUploads;
use registry::digests::UploadDigests;
use registry::partials::PartialUploads;
use registry::recently_completed::CompletedUploads;

/// The settings and shared state of a writable server's uploads.
pub(crate) struct Uploads {
    /// The application buffer of all uploads together.
    pub(crate) memory: MemoryBudget,
    pub(crate) active: Arc<ActiveUploads>,
    digests: Arc<UploadDigests>,
    completed: Arc<CompletedUploads>,
    ranged: Arc<RangedUploads>,
    partials: Arc<PartialUploads>,
    pub(crate) static_files: Arc<StaticFiles>,
    pub(crate) timeouts: Timeouts,
}

/// How long the last syncs of cancelled uploads may take at the end of the server.
const LAST_SYNC: Duration = Duration::from_secs(20);

impl Uploads {
    pub(crate) fn new(static_files: Arc<StaticFiles>, limits: &Limits) -> Self {
        let &Limits { timeouts, uploads: UploadLimits { app_buffer, quota, expiry, .. }, .. } = limits;
        let (memory, active) = (MemoryBudget::new(app_buffer), Arc::default());
        let (digests, completed, ranged) = (Arc::default(), Arc::default(), Arc::default());
        let root = static_files.root.path();
        let partials = Arc::new(PartialUploads::new(root, quota, expiry));
        Self { memory, active, digests, completed, ranged, partials, static_files, timeouts }
    }

    /// Finds the partial files of earlier runs, then deletes those that expire, until the task is
    /// aborted.
    pub(crate) async fn follow_partials(self: Arc<Self>) {
        let (partials, disks) = (&self.partials, &self.static_files.disks);
        // File systems that hang are scanned again: they may answer by then.
        let mut unscanned = partials.scan(disks, vec![Vec::new()]).await;
        loop {
            sleep(partials.check_interval()).await;
            let check = partials.check(disks, &self.active, SystemTime::now());
            (unscanned, ()) = tokio::join!(partials.scan(disks, unscanned), check);
        }
    }

    /// Waits until every upload has ended, at most [`LAST_SYNC`].
    pub(crate) async fn drained(&self) {
        self.ranged.retire_all();
        if timeout(LAST_SYNC, self.static_files.disks.uploads_ended()).await.is_err() {
            tracing::warn!("uploads are cut off while the disk is busy with them");
        }
    }
}
