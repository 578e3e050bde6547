//! Counts the output file's pages, as often as that is cheap.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use longhaul_core::telemetry::{PageCache, Sparingly};
use longhaul_sys::cachestat;

/// Counts the pages of one file.
pub(super) struct PageCounter<'a> {
    file: &'a File,
    sparingly: Sparingly,
    latest: Option<PageCache>,
    /// The kernel has told that it cannot.
    unsupported: bool,
}

impl<'a> PageCounter<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, sparingly: Sparingly::default(), latest: None, unsupported: false }
    }

    /// Counts anew, unless that was done so lately that doing it again would cost too much.
    pub(super) fn fresh(&mut self, now: Duration) -> Option<PageCache> {
        if self.unsupported || !self.sparingly.is_due(now) {
            return None;
        }
        let began = Instant::now();
        let counted = cachestat::page_cache(self.file);
        self.sparingly.took(now, began.elapsed());
        self.unsupported =
            counted.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::Unsupported);
        self.latest = counted.ok();
        self.latest
    }

    /// Returns the latest count; counts anew where that is due.
    pub(super) fn latest(&mut self, now: Duration) -> Option<PageCache> {
        self.fresh(now).or(self.latest)
    }
}
