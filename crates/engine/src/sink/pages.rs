//! Counts pages that wait for the disk, as often as that is cheap.

use std::fs::File;
use std::io;
use std::time::Duration;

use longhaul_core::telemetry::{HostPages, PageCache, Sparingly};
use longhaul_sys::{cachestat, host};

/// Counting takes a CPU some 20 ns for each page that was written through a mapping: 0.2 s for 40 GB.
const FILES_SHARE: u32 = 1000;

/// How often the host's pages are read, which takes as long however many there are.
const HOSTS_TURN: Duration = Duration::from_millis(250);

/// Counts the pages of the output file.
#[derive(Debug)]
pub struct PageCounter {
    /// A descriptor of its own: the part file is gone, under its final name, before the last count.
    file: File,
    sparingly: Sparingly,
    /// The kernel has told that it cannot.
    unsupported: bool,
}

impl PageCounter {
    /// Makes one for `file`; without a descriptor left for it, its pages are not counted.
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

    /// Counts anew, unless that was done so lately that doing it again would cost too much.
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
        // Not the time on the clock: on a busy host most of that is others'.
        let before = host::thread_cpu_time();
        let counted = count(&self.file);
        self.sparingly.took(now, host::thread_cpu_time().saturating_sub(before));
        self.unsupported = counted.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported);
        counted.ok()
    }
}

/// Reads the pages of all of the host's files.
#[derive(Debug, Default)]
pub struct HostCounter {
    due: Duration,
}

impl HostCounter {
    /// Reads anew, unless that was done lately.
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

    #[test]
    fn a_kernel_that_cannot_count_is_asked_once() {
        let mut pages = PageCounter::new(tempfile::tempfile().unwrap());
        let mut asked = 0;
        for second in 0..1000 {
            let counted = pages.count(Duration::from_secs(second), |_| {
                asked += 1;
                Err(io::ErrorKind::Unsupported.into())
            });
            assert_eq!(counted, None);
        }
        assert_eq!(asked, 1);
    }

    #[test]
    fn another_error_may_pass() {
        let mut pages = PageCounter::new(tempfile::tempfile().unwrap());
        assert_eq!(pages.count(Duration::ZERO, |_| Err(io::ErrorKind::PermissionDenied.into())), None);
        let counted = pages.count(Duration::from_secs(1000), |_| Ok(PageCache::default()));
        assert_eq!(counted, Some(PageCache::default()));
    }

    #[test]
    fn waiting_costs_nothing_and_work_does() {
        let mut pages = PageCounter::new(tempfile::tempfile().unwrap());
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
    fn the_hosts_pages_are_read_four_times_a_second() {
        let mut host = HostCounter::default();
        let read = (0..1000).filter(|ms| host.fresh(Duration::from_millis(*ms)).is_some());
        assert_eq!(read.count(), 4);
    }
}
