//! Limits the number of concurrent jobs: few for large files, many for small files, whose time is round trips and not
//! bandwidth.

use std::time::Duration;

use crate::units::Bytes;

/// The largest size of a small file, which fits into a window or two of a warm connection.
const SMALL: Bytes = Bytes::mib(4);
/// The largest number of concurrent jobs of small files: at an RTT of 100 ms some 300 files a second.
const MAX_SMALL_FILES: usize = 32;
/// A job that runs longer than this counts as one of a large file.
const LONG: Duration = Duration::from_secs(2);

/// Admits the jobs of one command. All times are durations since one fixed moment.
#[derive(Debug)]
pub struct JobAdmission {
    parallel: usize,
    /// The largest number of concurrent jobs while files are small.
    small: usize,
    /// The start time of each running job.
    running: Vec<Duration>,
    /// The number of small files that have ended since the last large one.
    small_in_a_row: usize,
}

impl JobAdmission {
    /// Admits `parallel` concurrent jobs until their files prove to be small.
    pub fn new(parallel: usize) -> Self {
        Self { parallel: parallel.max(1), small: MAX_SMALL_FILES, running: Vec::new(), small_in_a_row: 0 }
    }

    /// Sets the largest number of concurrent jobs of small files.
    #[must_use]
    pub fn with_small(self, small: usize) -> Self {
        Self { small, ..self }
    }

    /// Starts a job at `now` if the limit permits; returns whether it has started.
    pub fn start(&mut self, now: Duration) -> bool {
        let admitted = self.running.len() < self.limit(now);
        if admitted {
            self.running.push(now);
        }
        admitted
    }

    /// Ends the job that was started at `started`; `size` is the size of its file, `None` if the job failed.
    pub fn end(&mut self, started: Duration, size: Option<Bytes>) {
        if let Some(at) = self.running.iter().position(|other| *other == started) {
            self.running.swap_remove(at);
        }
        match size {
            Some(size) if size <= SMALL => self.small_in_a_row += 1,
            Some(_) => self.small_in_a_row = 0,
            None => {}
        }
    }

    fn limit(&self, now: Duration) -> usize {
        let long = self.running.iter().any(|started| now.saturating_sub(*started) > LONG);
        // The limit is raised after one round of small files; `--parallel 1` remains one job at a time.
        let small = self.small_in_a_row >= self.parallel && self.parallel > 1 && !long;
        if small { self.parallel.max(self.small) } else { self.parallel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn admitted(admission: &mut JobAdmission, now: Duration) -> usize {
        (0..100).take_while(|n| admission.start(now + Duration::from_nanos(*n))).count()
    }

    #[test]
    fn large_file_narrows_the_limit_while_it_runs_and_at_its_end() {
        let mut admission = JobAdmission::new(3);
        assert_eq!(admitted(&mut admission, MS(0)), 3);
        (0..3).for_each(|n| admission.end(Duration::from_nanos(n), Some(Bytes::kib(100))));
        assert_eq!(admitted(&mut admission, MS(300)), MAX_SMALL_FILES);
        (0..MAX_SMALL_FILES as u64)
            .for_each(|n| admission.end(MS(300) + Duration::from_nanos(n), Some(SMALL)));
        assert!(admission.start(MS(600)));
        admission.end(MS(600), Some(Bytes::gib(1)));
        assert_eq!(admitted(&mut admission, MS(700)), 3);
        // Before its end.
        let mut admission = JobAdmission::new(2);
        (0..2).for_each(|n| {
            assert!(admission.start(MS(n)));
            admission.end(MS(n), Some(Bytes::new(1)));
        });
        assert!(admission.start(MS(10)));
        assert_eq!(admitted(&mut admission, MS(3000)), 1);
    }
}
