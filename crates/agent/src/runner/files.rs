//! Sums the progress of the files of a tree, or of a worker of a plan.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer};
use parking_lot::Mutex;

use super::observe::send_progress;
use crate::live::Live;
use crate::queue::Queue;

/// The progress of the files of one run.
pub(super) struct FilesProgress<'a> {
    pub(super) queue: &'a Queue,
    pub(super) live: &'a Live,
    /// Whether bytes of earlier runs count as present.
    counts_resumed: bool,
    totals: Mutex<FileTotals>,
}

#[derive(Debug, Default)]
struct FileTotals {
    ended: FileBytes,
    running: HashMap<JobId, (FileBytes, usize)>,
}

/// The bytes of files.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileBytes {
    pub(super) present: u64,
    /// Those that this run has moved.
    pub(super) moved: u64,
}

impl FileTotals {
    /// Returns the bytes of all files, and the streams of the running ones.
    fn sums(&self) -> (FileBytes, usize) {
        let add = |(sum, streams): (FileBytes, usize), (bytes, more): &(FileBytes, usize)| {
            let (present, moved) = (sum.present + bytes.present, sum.moved + bytes.moved);
            (FileBytes { present, moved }, streams + more)
        };
        self.running.values().fold((self.ended, 0), add)
    }
}

impl<'a> FilesProgress<'a> {
    pub(super) fn new(queue: &'a Queue, live: &'a Live, counts_resumed: bool) -> Self {
        Self { queue, live, counts_resumed, totals: Mutex::default() }
    }

    /// Counts a file that has ended: `bytes` receives the last bytes reported of it, and returns
    /// those that count.
    pub(super) fn end(&self, job: JobId, bytes: impl FnOnce(FileBytes) -> FileBytes) {
        self.change(|totals| {
            let last = totals.running.remove(&job).map(|(bytes, _)| bytes).unwrap_or_default();
            let FileBytes { present, moved } = bytes(last);
            totals.ended.present += present;
            totals.ended.moved += moved;
        });
    }

    /// Returns the bytes of all files.
    pub(super) fn bytes(&self) -> FileBytes {
        self.totals.lock().sums().0
    }

    /// Changes the totals, and shows them.
    fn change(&self, change: impl FnOnce(&mut FileTotals)) {
        let mut totals = self.totals.lock();
        let (before, _) = totals.sums();
        change(&mut totals);
        let (bytes, streams) = totals.sums();
        self.live.note_total(bytes.present, bytes.moved, streams);
        drop(totals);
        self.queue.runs.moved.fetch_add(bytes.moved.saturating_sub(before.moved), Ordering::Relaxed);
        send_progress(self.queue, self.live);
    }
}

impl Observer for FilesProgress<'_> {
    fn on(&self, job: &JobTag, _at: Duration, event: &Event) {
        match event {
            Event::Progress(progress) => self.change(|totals| {
                let moved = progress.bytes.received.get();
                let present = if self.counts_resumed { progress.bytes.present.get() } else { moved };
                totals.running.insert(job.id(), (FileBytes { present, moved }, progress.streams));
            }),
            Event::Warning(warning) => tracing::warn!("transfer {}, {}: {warning}", self.live.id, job.url()),
            _ => {}
        }
    }
}
