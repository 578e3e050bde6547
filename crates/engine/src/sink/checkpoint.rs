//! Commits ranges: first makes them durable, then records them in the journal.

use std::fs::File;
use std::io;
use std::time::Duration;

use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use parking_lot::{Condvar, Mutex};

/// The written ranges of a file, which a thread syncs and journals every two seconds, those of a
/// slow transfer sooner.
#[derive(Debug)]
pub struct Checkpoint {
    resumed: Bytes,
    state: Mutex<CheckpointState>,
    ended: Condvar,
    /// The ranges in the journal; locked while the journal is written, and before `state`.
    journalled: Mutex<RangeSet>,
}

#[derive(Debug)]
struct CheckpointState {
    written: RangeSet,
    /// Ranges forgotten since the last sync started: that sync covered wrong bytes.
    forgotten: RangeSet,
    /// Whether the journal must be written even though no range has changed.
    stale: bool,
    /// Whether a round of writing has started.
    begun: bool,
    ended: bool,
    /// Whether a write has failed: the kernel may have lost earlier writes too.
    failed: bool,
}

/// The maximum work lost by a crash. A sync at this interval has no measurable effect on the
/// writers.
const INTERVAL: Duration = Duration::from_secs(2);
/// The interval of a slow transfer, for which few bytes are many seconds.
const SLOW_INTERVAL: Duration = Duration::from_millis(500);
/// A transfer that wrote less since the last commit is slow: a segment of the usual size.
const SLOW: Bytes = Bytes::mib(4);
/// The first interval: before the first journal, a later run cannot identify the partial file.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// Returns the interval after one in which so many bytes were written.
fn next_interval(interval: Duration, grown: Bytes) -> Duration {
    (interval * 2).min(if grown < SLOW { SLOW_INTERVAL } else { INTERVAL })
}

impl Checkpoint {
    /// Starts with the ranges committed by an earlier run.
    pub fn new(committed: RangeSet) -> Self {
        let resumed = committed.total();
        let state = CheckpointState {
            stale: resumed > Bytes::ZERO,
            written: committed.clone(),
            forgotten: RangeSet::new(),
            begun: false,
            ended: false,
            failed: false,
        };
        Self { resumed, state: Mutex::new(state), ended: Condvar::new(), journalled: Mutex::new(committed) }
    }

    /// Returns the bytes committed at the start.
    pub fn resumed(&self) -> Bytes {
        self.resumed
    }

    /// Adds a range passed to the kernel.
    pub fn wrote(&self, range: ByteRange) {
        self.state.lock().written.insert(range);
    }

    /// Returns the ranges passed to the kernel, in this or an earlier run.
    pub fn ranges(&self) -> RangeSet {
        self.state.lock().written.clone()
    }

    /// Returns the end of the last range passed to the kernel.
    pub fn end_of_written(&self) -> u64 {
        self.state.lock().written.end()
    }

    /// Returns the bytes of the file passed to the kernel, in this or an earlier run.
    pub fn written(&self) -> Bytes {
        self.state.lock().written.total()
    }

    /// Returns whether all bytes of `range` were passed to the kernel.
    pub fn covers(&self, range: ByteRange) -> bool {
        self.state.lock().written.contains(range)
    }

    /// Removes a range with wrong bytes from the written and the journalled ranges.
    ///
    /// `store` writes the journal without the range before this returns: after a crash during the
    /// rewrite, the journal must not contain the range.
    ///
    /// # Errors
    /// The error of `store`; the journal may then still contain the range.
    pub fn forget(
        &self,
        range: ByteRange,
        store: impl FnOnce(&RangeSet) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut journalled = self.journalled.lock();
        {
            let mut state = self.state.lock();
            state.written.remove(range);
            state.forgotten.insert(range);
        }
        let mut left = journalled.clone();
        left.remove(range);
        if left != *journalled {
            store(&left)?;
            *journalled = left;
        }
        Ok(())
    }

    /// Requests that the next checkpoint writes the journal even if no range has changed.
    pub fn journal_changed(&self) {
        self.state.lock().stale = true;
    }

    /// Ends all committing after a failed write, because the kernel reports a lost page only once.
    pub fn write_failed(&self) {
        self.state.lock().failed = true;
    }

    /// Starts a round of writing, the first or another one after [`Self::end`].
    pub fn begin(&self) {
        let mut state = self.state.lock();
        (state.ended, state.begun) = (false, true);
    }

    /// Returns whether no round of writing has started.
    pub fn is_untouched(&self) -> bool {
        !self.state.lock().begun
    }

    /// Ends [`Self::run`].
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.ended.notify_all();
    }

    /// Commits until ended, at growing intervals of up to two seconds, and a last time then;
    /// commits nothing after a failed write.
    ///
    /// `store` writes the journal with the ranges on the device. `file` must be a separate open
    /// file description, opened before the first write, because the kernel reports a write-back
    /// error once to each description.
    ///
    /// # Errors
    /// The first error of a sync or of the journal. A range is journalled only once it is on the
    /// device, so that the journal is right even after a power failure.
    pub fn run(&self, file: &File, store: impl Fn(&RangeSet) -> io::Result<()>) -> io::Result<()> {
        let mut interval = FIRST_INTERVAL;
        loop {
            let mut state = self.state.lock();
            self.ended.wait_while_for(&mut state, |state| !state.ended, interval);
            let (written, ended, failed) = (state.written.clone(), state.ended, state.failed);
            let stale = std::mem::take(&mut state.stale);
            state.forgotten = RangeSet::new();
            drop(state);
            if failed {
                return Ok(());
            }
            let journalled = self.journalled.lock().clone();
            interval = next_interval(interval, written.total().saturating_sub(journalled.total()));
            if stale || written != journalled {
                file.sync_data()?;
                self.commit(written, &store)?;
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Journals the synced ranges, except those forgotten since the sync started.
    fn commit(&self, mut durable: RangeSet, store: impl Fn(&RangeSet) -> io::Result<()>) -> io::Result<()> {
        let mut journalled = self.journalled.lock();
        {
            let state = self.state.lock();
            if state.failed {
                return Ok(());
            }
            state.forgotten.iter().for_each(|range| durable.remove(range));
        }
        store(&durable)?;
        *journalled = durable;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|&(start, end)| ByteRange::new(start, end)).collect()
    }

    #[test]
    fn slow_transfer_is_committed_more_often() {
        let after = |grown: &[u64]| {
            grown.iter().fold(FIRST_INTERVAL, |now, mib| next_interval(now, Bytes::mib(*mib)))
        };
        let intervals = [&[1, 1, 1][..], &[9, 9, 9, 9], &[9, 9, 9, 9, 3]].map(after);
        assert_eq!(intervals, [SLOW_INTERVAL, INTERVAL, SLOW_INTERVAL]);
    }

    #[test]
    fn forgotten_range_leaves_the_journal_before_its_rewrite() {
        let checkpoint = Checkpoint::new(ranges(&[(0, 60)]));
        let stored = Mutex::new(RangeSet::new());
        let store = |ranges: &RangeSet| {
            stored.lock().clone_from(ranges);
            Ok(())
        };
        checkpoint.forget(ByteRange::new(10, 20), store).unwrap();
        let left = ranges(&[(0, 10), (20, 60)]);
        assert_eq!((stored.into_inner(), checkpoint.written()), (left, Bytes::new(50)));
        let again = |_: &RangeSet| Err(io::Error::other("the journal does not hold it any more"));
        checkpoint.forget(ByteRange::new(10, 20), again).unwrap();
        assert!(checkpoint.forget(ByteRange::new(0, 5), again).is_err());
    }

    #[test]
    fn what_cannot_be_synced_is_not_journalled() {
        let checkpoint = Checkpoint::new(RangeSet::new());
        checkpoint.wrote(ByteRange::new(0, 60));
        checkpoint.end();
        // A pipe has no device: fdatasync fails.
        let (_reader, pipe) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(pipe));
        let error = checkpoint.run(&file, |_| Err(io::Error::other("it is journalled"))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }

    #[test]
    fn range_forgotten_during_a_sync_is_journalled_by_the_last_only() {
        let (checkpoint, file) = (Checkpoint::new(RangeSet::new()), tempfile::tempfile().unwrap());
        checkpoint.wrote(ByteRange::new(0, 60));
        let snapshot = checkpoint.ranges();
        checkpoint.forget(ByteRange::new(0, 30), |_| Ok(())).unwrap();
        checkpoint.wrote(ByteRange::new(0, 30));
        let stored = Mutex::new(Vec::new());
        let store = |ranges: &RangeSet| {
            stored.lock().push(ranges.clone());
            Ok(())
        };
        // The state after a sync that started before the range was forgotten.
        checkpoint.commit(snapshot, store).unwrap();
        checkpoint.end();
        checkpoint.run(&file, store).unwrap();
        assert_eq!(stored.into_inner(), [ranges(&[(30, 60)]), ranges(&[(0, 60)])]);
        assert!(checkpoint.covers(ByteRange::new(0, 60)) && checkpoint.written() == Bytes::new(60));
    }
}
