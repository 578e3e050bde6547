//! What all code with threads needs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Names a thread to be started, for whoever looks at the process.
pub(crate) fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

/// Locks, whatever happened to another thread that held it: the data is counters and lists.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a time to a counter of nanoseconds.
pub(crate) fn add(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
