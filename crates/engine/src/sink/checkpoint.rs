//! Committed ranges on their way to the journal: durable first, journalled second.

use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

/// What the writers have written, and the thread that makes it durable from time to time.
#[derive(Debug)]
pub struct Checkpoint {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    written: RangeSet,
    ended: bool,
    /// A write has failed: what the kernel still holds of earlier ones may be lost too.
    failed: bool,
}

/// How much work a crash may cost. A sync under way disturbs the writers too little to be measured at this interval.
const INTERVAL: Duration = Duration::from_secs(2);

impl Checkpoint {
    /// Starts with what an earlier run has committed.
    pub const fn new(committed: RangeSet) -> Self {
        Self {
            state: Mutex::new(State { written: committed, ended: false, failed: false }),
            ended: Condvar::new(),
        }
    }

    /// Accounts for a piece handed to the kernel.
    pub fn wrote(&self, range: ByteRange) {
        self.lock().written.insert(range);
    }

    /// Returns which ranges have been handed to the kernel, in this run or before.
    pub fn ranges(&self) -> RangeSet {
        self.lock().written.clone()
    }

    /// Returns how many bytes of the file have been handed to the kernel, in this run or before.
    pub fn written(&self) -> Bytes {
        self.lock().written.total()
    }

    /// Returns whether all of `range` has been.
    pub fn covers(&self, range: ByteRange) -> bool {
        self.lock().written.contains(range)
    }

    /// Ends all committing: a write has failed, and the kernel tells of a lost page only once.
    pub fn write_failed(&self) {
        self.lock().failed = true;
    }

    /// Ends [`Self::run`].
    pub fn end(&self) {
        self.lock().ended = true;
        self.ended.notify_all();
    }

    /// Commits every two seconds until ended, and once more then; nothing after a failed write.
    ///
    /// `store` puts what is on the device into the journal.
    /// `file` must be an open file description of its own, made before the first write: each hears of a
    /// write-back error once, and this one must hear of all.
    ///
    /// # Errors
    /// The first error of a sync or of the journal; a range is journalled only after it is on the device,
    /// so that not even a power failure makes the journal lie.
    pub fn run(&self, file: &File, store: impl Fn(&RangeSet) -> io::Result<()>) -> io::Result<()> {
        let mut committed = RangeSet::new();
        loop {
            let (state, _) = self
                .ended
                .wait_timeout_while(self.lock(), INTERVAL, |state| !state.ended)
                .unwrap_or_else(PoisonError::into_inner);
            let (written, ended, failed) = (state.written.clone(), state.ended, state.failed);
            drop(state);
            if failed {
                return Ok(());
            }
            if written != committed {
                file.sync_data()?;
                if self.lock().failed {
                    return Ok(());
                }
                store(&written)?;
                committed = written;
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_committed_after_a_failed_write() {
        let checkpoint = Checkpoint::new(RangeSet::new());
        checkpoint.wrote(ByteRange::new(0, 60));
        checkpoint.write_failed();
        checkpoint.end();
        let never = |_: &RangeSet| Err(io::Error::other("stored"));
        checkpoint.run(&tempfile::tempfile().unwrap(), never).unwrap();
    }

    #[test]
    fn the_last_piece_is_journalled_too() {
        let (file, stored) = (tempfile::tempfile().unwrap(), Mutex::new(RangeSet::new()));
        let checkpoint = Checkpoint::new([ByteRange::new(0, 10)].into_iter().collect());
        let store = |ranges: &RangeSet| {
            stored.lock().unwrap().clone_from(ranges);
            Ok(())
        };
        std::thread::scope(|scope| {
            let run = scope.spawn(|| checkpoint.run(&file, store));
            checkpoint.wrote(ByteRange::new(10, 60));
            checkpoint.end();
            run.join().unwrap().unwrap();
        });
        assert!(stored.into_inner().unwrap().contains(ByteRange::new(0, 60)));
        assert!(checkpoint.covers(ByteRange::new(0, 60)) && checkpoint.written() == Bytes::new(60));
    }
}
