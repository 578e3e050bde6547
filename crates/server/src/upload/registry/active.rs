//! The uploads in progress: their locks, the liveness of their clients, and their buffers' usage.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::telemetry::{HostPages, PageCache, Segments};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::journal::Journal;
use longhaul_engine::sink::pages::{HostCounter, PageCounter};
use longhaul_engine::sink::pipeline::Pipeline;
use parking_lot::Mutex;

/// All uploads in progress of a server, and the bytes received by all so far.
#[derive(Default)]
pub(crate) struct ActiveUploads {
    received: AtomicU64,
    state: Mutex<UploadsState>,
}

#[derive(Default)]
struct UploadsState {
    next: u64,
    active: Vec<ActiveUpload>,
    /// Devices and inodes of the locked partial files.
    locked: Vec<(u64, u64)>,
    /// Bytes written by uploads that have ended.
    written: Bytes,
    host: HostCounter,
}

struct ActiveUpload {
    number: u64,
    pipeline: Arc<Pipeline>,
    liveness: Arc<UploadLiveness>,
    pages: Option<PageCounter>,
    /// The last count.
    counted: PageCache,
}

/// Whether the client of an upload still sends, and the flag that cancels the upload.
#[derive(Default)]
pub(crate) struct UploadLiveness {
    /// Raised where the connection closes, the server ends, or the client resumes on another
    /// connection.
    pub(crate) cancel: Cancel,
    /// When bytes last arrived; `None` while the upload waits for the disk or for memory.
    last_data: Mutex<Option<Instant>>,
}

/// A connection without data for this long is closed when its client resumes the upload on another
/// one.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(3);

/// The exclusive use of a partial file in this process, until dropped.
pub(crate) struct PartFileLock {
    uploads: Arc<ActiveUploads>,
    file: (u64, u64),
}

/// An upload's entry in [`ActiveUploads`], removed on drop.
pub(crate) struct ActiveEntry {
    uploads: Arc<ActiveUploads>,
    number: u64,
}

/// Buffers and written bytes of the uploads.
#[derive(Default)]
pub(crate) struct UploadUsage {
    /// Uploads in progress.
    pub(crate) uploads: usize,
    pub(crate) segments: Segments,
    /// Bytes written to files so far, those of ended uploads included.
    pub(crate) written: Bytes,
}

impl ActiveUploads {
    /// Counts received bytes of a body.
    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of bodies received so far.
    pub(crate) fn received_total(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Locks a partial file by device and inode; `None` where it is locked. Some file systems lack
    /// file locks.
    pub(crate) fn lock_part(self: &Arc<Self>, file: (u64, u64)) -> Option<PartFileLock> {
        let mut state = self.state.lock();
        if state.locked.contains(&file) {
            return None;
        }
        state.locked.push(file);
        drop(state);
        Some(PartFileLock { uploads: Arc::clone(self), file })
    }

    /// Enters an upload.
    pub(crate) fn enter(
        self: &Arc<Self>,
        pipeline: &Arc<Pipeline>,
        liveness: &Arc<UploadLiveness>,
    ) -> ActiveEntry {
        let pages = PageCounter::of(pipeline.part().file());
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let (pipeline, liveness) = (Arc::clone(pipeline), Arc::clone(liveness));
        state.active.push(ActiveUpload { number, pipeline, liveness, pages, counted: PageCache::default() });
        ActiveEntry { uploads: Arc::clone(self), number }
    }

    /// Cancels the upload to `target` whose journal `is_same`, where its connection has been silent
    /// for [`SILENT_AFTER`]; returns whether it is ending.
    pub(crate) fn cancel_silent(&self, target: &Path, is_same: impl Fn(&Journal) -> bool) -> bool {
        let state = self.state.lock();
        let found = state.active.iter().find(|active| {
            active.pipeline.part().target() == target
                && active.pipeline.journal().as_ref().is_some_and(&is_same)
        });
        let ended =
            |liveness: &UploadLiveness| liveness.cancel.is_cancelled() || liveness.is_silent(Instant::now());
        let ending = found.filter(|active| ended(&active.liveness));
        ending.inspect(|active| active.liveness.cancel.cancel()).is_some()
    }

    /// Sums up the buffers of all uploads.
    pub(crate) fn usage(&self) -> UploadUsage {
        let state = self.state.lock();
        let start =
            UploadUsage { uploads: state.active.len(), written: state.written, ..UploadUsage::default() };
        state.active.iter().fold(start, |sum, active| {
            let usage = active.pipeline.pool().usage();
            let segments = Segments {
                in_use: sum.segments.in_use + usage.in_use,
                count: sum.segments.count + usage.count,
                // One setting for all uploads.
                size: usage.size,
            };
            UploadUsage { segments, written: sum.written + active.written(), ..sum }
        })
    }

    /// Counts cached pages of the uploads' files where that is due, and those of the host; `None`
    /// without uploads.
    pub(crate) fn pages(&self, now: Duration) -> (Option<PageCache>, Option<HostPages>) {
        let mut state = self.state.lock();
        if state.active.is_empty() {
            return (None, None);
        }
        let mut fresh = false;
        for active in &mut state.active {
            if let Some(counted) = active.pages.as_mut().and_then(|pages| pages.fresh(now)) {
                (active.counted, fresh) = (counted, true);
            }
        }
        let sum =
            state.active.iter().fold(PageCache::default(), |sum, ActiveUpload { counted, .. }| PageCache {
                cached: sum.cached + counted.cached,
                dirty: sum.dirty + counted.dirty,
                writeback: sum.writeback + counted.writeback,
                evicted: sum.evicted + counted.evicted,
                recently_evicted: sum.recently_evicted + counted.recently_evicted,
            });
        (fresh.then_some(sum), state.host.fresh(now))
    }
}

impl UploadLiveness {
    /// Makes one whose flag is also raised when `cancel` is.
    pub(crate) fn below(cancel: &Cancel) -> Self {
        Self { cancel: cancel.child(), last_data: Mutex::default() }
    }

    /// Records when data last arrived; `None` while the upload waits for the disk or for memory.
    pub(crate) fn set_last_data(&self, at: Option<Instant>) {
        *self.last_data.lock() = at;
    }

    /// Returns whether the upload waits for the disk or for memory.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.last_data.lock().is_none()
    }

    /// Returns whether the client has sent nothing for [`SILENT_AFTER`].
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let last_data = *self.last_data.lock();
        last_data.is_some_and(|at| now.saturating_duration_since(at) >= SILENT_AFTER)
    }
}

impl ActiveUpload {
    fn written(&self) -> Bytes {
        self.pipeline.written() - self.pipeline.resumed()
    }
}

impl Drop for PartFileLock {
    fn drop(&mut self) {
        self.uploads.state.lock().locked.retain(|file| *file != self.file);
    }
}

impl Drop for ActiveEntry {
    fn drop(&mut self) {
        let mut state = self.uploads.state.lock();
        if let Some(at) = state.active.iter().position(|active| active.number == self.number) {
            let over = state.active.swap_remove(at);
            state.written += over.written();
            drop(state);
            // Without the lock: to close its file may wait for the file system.
            drop(over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_file_is_locked_once_at_a_time() {
        let uploads = Arc::new(ActiveUploads::default());
        let first = uploads.lock_part((1, 2));
        let others = [(1, 2), (2, 2)].map(|file| uploads.lock_part(file).is_some());
        assert_eq!((first.is_some(), others), (true, [false, true]));
        drop(first);
        assert!(uploads.lock_part((1, 2)).is_some());
    }
}
