//! Steps that wait for a file system: one that hangs cannot be interrupted, but is visible to other
//! threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use parking_lot::Mutex;

/// The lowest rate at which a working file system stores the cached bytes of one file; a slower one
/// counts as hung. 4 MB/s is the share of one of ten files on a disk of 40 MB/s.
const MIN_SYNC_RATE: Rate = Rate::bits_per_sec(32_000_000);

/// Shows for how long steps on file systems have not ended.
#[derive(Debug, Default)]
pub struct PendingSteps(Mutex<Vec<Arc<Step>>>);

#[derive(Debug)]
struct Step {
    path: PathBuf,
    since: Mutex<Instant>,
}

impl PendingSteps {
    /// Executes a step on the file at `path`.
    pub fn during<T>(&self, path: &Path, step: impl FnOnce() -> T) -> T {
        let _step = self.begin(path);
        step()
    }

    /// Executes a step that stores at most `size` bytes of the file at `path`; the time for these
    /// does not count.
    pub fn during_sync<T>(&self, path: &Path, size: Bytes, step: impl FnOnce() -> T) -> T {
        let _step = self.begin_at(path, Instant::now() + MIN_SYNC_RATE.time_for(size));
        step()
    }

    /// Begins a step on the file at `path`, which ends when it is dropped.
    pub fn begin(&self, path: &Path) -> PendingStep<'_> {
        self.begin_at(path, Instant::now())
    }

    fn begin_at(&self, path: &Path, since: Instant) -> PendingStep<'_> {
        let step = Arc::new(Step { path: path.to_owned(), since: Mutex::new(since) });
        self.0.lock().push(Arc::clone(&step));
        PendingStep { steps: self, step }
    }

    /// Returns the path of a step that has not ended for `stall`.
    pub fn hung(&self, stall: Duration) -> Option<PathBuf> {
        let steps = self.0.lock();
        let hung = steps
            .iter()
            .find(|step| step.since.lock().checked_add(stall).is_some_and(|end| end <= Instant::now()));
        hung.map(|step| step.path.clone())
    }
}

/// A step that has not ended.
#[derive(Debug)]
pub struct PendingStep<'a> {
    steps: &'a PendingSteps,
    step: Arc<Step>,
}

impl PendingStep<'_> {
    /// Begins the next step on the same file.
    pub fn renew(&self) {
        *self.step.since.lock() = Instant::now();
    }
}

impl Drop for PendingStep<'_> {
    fn drop(&mut self) {
        self.steps.0.lock().retain(|step| !Arc::ptr_eq(step, &self.step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_that_has_not_ended_is_found_until_it_ends_even_by_a_panic() {
        let (steps, hour) = (PendingSteps::default(), Duration::from_secs(3600));
        let (one, other) = (steps.begin(Path::new("a")), steps.begin(Path::new("b")));
        assert_eq!((steps.hung(Duration::ZERO), steps.hung(hour)), (Some("a".into()), None));
        drop(one);
        assert_eq!(steps.hung(Duration::ZERO), Some("b".into()));
        std::thread::sleep(Duration::from_millis(2));
        assert!(steps.hung(Duration::from_millis(2)).is_some());
        other.renew();
        assert_eq!(steps.hung(hour), None);
        drop(other);
        let panicked = std::panic::AssertUnwindSafe(|| steps.during(Path::new("c"), || panic!("in a step")));
        std::panic::catch_unwind(panicked).unwrap_err();
        assert_eq!(steps.hung(Duration::ZERO), None);
    }

    #[test]
    fn sync_of_many_bytes_may_take_their_time() {
        let steps = PendingSteps::default();
        steps.during_sync(Path::new("a"), Bytes::gib(1), || {
            assert_eq!(steps.hung(Duration::from_secs(60)), None)
        });
        steps.during_sync(Path::new("a"), Bytes::ZERO, || assert!(steps.hung(Duration::ZERO).is_some()));
        steps.during_sync(Path::new("a"), Bytes::gib(1), || assert_eq!(steps.hung(Duration::ZERO), None));
    }
}
