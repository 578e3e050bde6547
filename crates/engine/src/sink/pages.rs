//! Counts pages that are dirty or in write-back, at bounded cost.

use std::fs::File;
use std::io;
use std::time::Duration;

use longhaul_core::telemetry::{HostPages, PageCache, Sparingly};
use longhaul_sys::{cachestat, host};

/// The inverse share of CPU time for counting, which takes about 20 ns per page written through a
/// mapping: 0.2 s for 40 GB.
const FILES_SHARE: u32 = 1000;

/// The interval of reading the host's page counts, whose cost does not depend on the number of
/// pages.
const HOSTS_TURN: Duration = Duration::from_millis(250);

/// Counts the pages of the output file.
#[derive(Debug)]
pub struct PageCounter {
    /// A separate descriptor: the partial file has its final name before the last count.
    file: File,
    sparingly: Sparingly,
    /// Whether the kernel has reported that it cannot count.
    unsupported: bool,
}

impl PageCounter {
    /// Creates a counter for `file`; `None` if no descriptor is free.
    pub fn of(file: &File) -> Option<Self> {
        match file.try_clone() {
            Ok(file) => Some(Self::new(file)),
            Err(error) => {
                tracing::warn!("the file's pages in the page cache are not counted: {error}");
                None
            }
        }
    }

    fn new(file: File) -> Self {
        Self { file, sparingly: Sparingly::one_in(FILES_SHARE), unsupported: false }
    }

    /// Counts again, unless the last count was so recent that counting would cost too much.
    pub fn fresh(&mut self, now: Duration) -> Option<PageCache> {
        self.count(now, cachestat::page_cache)
    }

    fn count(
        &mut self,
        now: Duration,
        count: impl FnOnce(&File) -> io::Result<PageCache>,
    ) -> Option<PageCache> {
        if self.unsupported || !self.sparingly.is_due(now) {
            return None;
        }
        // CPU time, not elapsed time, most of which belongs to other threads on a busy host.
        let before = host::thread_cpu_time();
        let counted = count(&self.file);
        self.sparingly.took(now, host::thread_cpu_time().saturating_sub(before));
        self.unsupported = counted.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
        counted.ok()
    }
}

/// Reads the page counts of the host.
#[derive(Debug, Default)]
pub struct HostCounter {
    due: Duration,
}

impl HostCounter {
    /// Reads the counts again, unless done recently.
    pub fn fresh(&mut self, now: Duration) -> Option<HostPages> {
        if now < self.due {
            return None;
        }
        self.due = now + HOSTS_TURN;
        host::waiting_pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> PageCounter {
        PageCounter::new(tempfile::tempfile().unwrap())
    }

    #[test]
    fn unsupported_counting_is_tried_once_and_other_errors_are_retried() {
        let (mut pages, mut requested) = (counter(), 0);
        for second in 0..1000 {
            let counted = pages.count(Duration::from_secs(second), |_| {
                requested += 1;
                Err(io::ErrorKind::Unsupported.into())
            });
            assert_eq!(counted, None);
        }
        assert_eq!(requested, 1);
        let mut pages = counter();
        assert_eq!(pages.count(Duration::ZERO, |_| Err(io::ErrorKind::PermissionDenied.into())), None);
        let counted = pages.count(Duration::from_secs(1000), |_| Ok(PageCache::default()));
        assert_eq!(counted, Some(PageCache::default()));
    }

    #[test]
    fn only_cpu_time_is_charged() {
        let mut pages = counter();
        let waits = |_: &File| {
            std::thread::sleep(Duration::from_millis(100));
            Ok(PageCache::default())
        };
        let works = |_: &File| {
            let before = host::thread_cpu_time();
            while host::thread_cpu_time() - before < Duration::from_millis(20) {}
            Ok(PageCache::default())
        };
        let seconds = Duration::from_secs;
        assert!(pages.count(Duration::ZERO, waits).is_some());
        assert!(pages.count(seconds(4), works).is_some(), "a wait was charged");
        assert!(pages.count(seconds(11), waits).is_none(), "20 ms of work are worth 20 s");
        assert!(pages.count(seconds(60), waits).is_some());
    }

    #[test]
    fn host_pages_are_read_four_times_a_second() {
        let mut host = HostCounter::default();
        let read = (0..1000).filter(|ms| host.fresh(Duration::from_millis(*ms)).is_some());
        assert_eq!(read.count(), 4);
    }
}
