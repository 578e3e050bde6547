//! Limits the number of concurrent jobs: few for large files, many for small files, whose time is
//! round trips and not bandwidth.

use std::time::Duration;

use crate::units::Bytes;

/// The largest size of a small file, which fits into a window or two of a warm connection.
const SMALL: Bytes = Bytes::mib(4);
/// The largest number of concurrent jobs of small files: at an RTT of 100 ms some 300 files a
/// second.
const MAX_SMALL_FILES: usize = 32;
/// A job of unknown size that runs longer than this counts as one of a large file.
const LONG: Duration = Duration::from_secs(2);

/// Admits the jobs of one command. A file has a weight, by its size, from that of a small file, 1,
/// to that of a large one, of which `parallel` fill the limit. All times are durations since one
/// fixed moment.
#[derive(Debug)]
pub struct JobAdmission {
    parallel: usize,
    /// The largest number of concurrent jobs of small files.
    small: usize,
    running: Vec<RunningJob>,
    /// The size of the file that ended last; one of unknown size is expected to have it.
    last: Option<Bytes>,
    next: u64,
}

#[derive(Debug)]
struct RunningJob {
    number: AdmittedJob,
    since: Duration,
    size: Option<Bytes>,
}

/// A job that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedJob(u64);

impl JobAdmission {
    /// Admits `parallel` concurrent jobs of large files.
    pub fn new(parallel: usize) -> Self {
        Self { parallel: parallel.max(1), small: MAX_SMALL_FILES, running: Vec::new(), last: None, next: 0 }
    }

    /// Sets the largest number of concurrent jobs of small files.
    #[must_use]
    pub fn with_small(self, small: usize) -> Self {
        Self { small, ..self }
    }

    /// Starts the job of a file of `size`, `None` if unknown, at `now` if the limit permits.
    pub fn start(&mut self, size: Option<Bytes>, now: Duration) -> Option<AdmittedJob> {
        let used: usize =
            self.running.iter().map(|job| self.weight(job.size, now.saturating_sub(job.since))).sum();
        let limit = self.parallel * self.large_weight();
        let has_room =
            used + self.weight(size, Duration::ZERO) <= limit && self.running.len() < self.max_jobs();
        has_room.then(|| {
            let number = AdmittedJob(self.next);
            self.next += 1;
            self.running.push(RunningJob { number, since: now, size });
            number
        })
    }

    /// Ends a job; `size` is the size of its file, `None` if the job failed.
    pub fn end(&mut self, job: AdmittedJob, size: Option<Bytes>) {
        self.running.retain(|running| running.number != job);
        self.last = size.or(self.last);
    }

    /// Returns the largest number of concurrent jobs; `--parallel 1` is one job at a time.
    fn max_jobs(&self) -> usize {
        if self.parallel == 1 { 1 } else { self.parallel.max(self.small) }
    }

    /// Returns the weight of a large file.
    fn large_weight(&self) -> usize {
        self.max_jobs().div_ceil(self.parallel)
    }

    /// Returns the weight of a file whose job has run for so long.
    fn weight(&self, size: Option<Bytes>, ran: Duration) -> usize {
        let expected = self.last.filter(|_| ran <= LONG);
        let smalls = size.or(expected).map_or(u64::MAX, |size| size.get().div_ceil(SMALL.get()).max(1));
        usize::try_from(smalls).unwrap_or(usize::MAX).min(self.large_weight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn admitted(admission: &mut JobAdmission, size: Option<Bytes>, now: Duration) -> Vec<AdmittedJob> {
        (0..100).map_while(|_| admission.start(size, now)).collect()
    }

    #[test]
    fn known_sizes_fill_the_limit() {
        let large = Some(Bytes::gib(1));
        for (parallel, size, at_once) in [
            (3, large, 3),
            (3, Some(SMALL), 32),
            (3, Some(Bytes::mib(9)), 11),
            (1, Some(Bytes::ZERO), 1),
            (20, large, 20),
            (50, large, 50),
            (50, Some(SMALL), 50),
        ] {
            let found = admitted(&mut JobAdmission::new(parallel), size, MS(0)).len();
            assert_eq!(found, at_once, "{parallel} {size:?}");
        }
        // Small files take what large ones leave.
        let mut admission = JobAdmission::new(3);
        assert!(admission.start(large, MS(0)).is_some() && admission.start(large, MS(0)).is_some());
        assert_eq!(admitted(&mut admission, Some(SMALL), MS(9000)).len(), 11);
        assert_eq!(admission.start(large, MS(9000)), None);
        let mut admission = JobAdmission::new(3).with_small(16);
        assert_eq!(admitted(&mut admission, Some(SMALL), MS(0)).len(), 16);
    }

    #[test]
    fn file_of_unknown_size_is_expected_to_be_as_the_last_one_until_it_runs_long() {
        let mut admission = JobAdmission::new(3);
        let first = admitted(&mut admission, None, MS(0));
        assert_eq!(first.len(), 3);
        first.into_iter().for_each(|job| admission.end(job, Some(Bytes::kib(100))));
        let small = admitted(&mut admission, None, MS(300));
        assert_eq!(small.len(), MAX_SMALL_FILES);
        small.into_iter().skip(2).for_each(|job| admission.end(job, Some(SMALL)));
        // A failure has no size.
        let failed = admission.start(None, MS(2000)).unwrap();
        admission.end(failed, None);
        // Those two weigh as large ones.
        assert_eq!(admitted(&mut admission, None, MS(2400)).len(), 11);
        let mut admission = JobAdmission::new(3);
        let job = admission.start(None, MS(0)).unwrap();
        admission.end(job, Some(Bytes::gib(1)));
        assert_eq!(admitted(&mut admission, None, MS(700)).len(), 3);
    }
}
