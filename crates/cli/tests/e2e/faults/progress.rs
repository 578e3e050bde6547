//! What a scripted server has done: bytes and activity of a run, and a log of all runs.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub(crate) struct Progress {
    served: AtomicU64,
    activity: AtomicU64,
    log: Mutex<String>,
    began: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let (served, activity) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { served, activity, log: Mutex::default(), began: Instant::now() }
    }

    pub(crate) fn begin(&self) {
        self.served.store(0, Ordering::SeqCst);
    }

    /// Counts bytes of content; none for another activity.
    pub(crate) fn count(&self, bytes: u64) {
        self.served.fetch_add(bytes, Ordering::SeqCst);
        self.activity.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// Counts all activity; a client without activity hangs.
    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::SeqCst)
    }

    pub(crate) fn note(&self, line: &str) {
        let at = self.began.elapsed().as_secs_f64();
        let _ = writeln!(self.log.lock().unwrap_or_else(PoisonError::into_inner), "{at:8.3} {line}");
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
