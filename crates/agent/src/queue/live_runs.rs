//! The transfers that run, and what wakes and ends the runner.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_engine::rate_limit::RateLimit;
use parking_lot::{Condvar, Mutex};

use crate::live::Live;

/// The timeout for ending a cancelled run.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The runs of transfers, at most one of each.
pub(crate) struct LiveRuns {
    /// The rate limit of all runs together.
    pub(crate) limit: RateLimit,
    live: Mutex<HashMap<i64, Arc<Live>>>,
    /// Notified when a run ends.
    ended: Condvar,
    /// The bytes moved by all runs.
    pub(crate) moved: AtomicU64,
    /// A call that wakes the runner; it persists until waited for.
    is_called: Mutex<bool>,
    called: Condvar,
    is_stopping: AtomicBool,
}

impl LiveRuns {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self {
            limit,
            live: Mutex::default(),
            ended: Condvar::new(),
            moved: AtomicU64::new(0),
            is_called: Mutex::new(false),
            called: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Returns the run of a transfer.
    pub(crate) fn get(&self, id: i64) -> Option<Arc<Live>> {
        self.live.lock().get(&id).cloned()
    }

    /// Returns all runs.
    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.live.lock().values().cloned().collect()
    }

    /// Adds a run; returns whether the transfer had none.
    pub(crate) fn insert(&self, live: Arc<Live>) -> bool {
        match self.live.lock().entry(live.id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(live);
                true
            }
        }
    }

    /// Wakes the runner: ends its current wait, or the next one.
    pub(crate) fn wake(&self) {
        *self.is_called.lock() = true;
        self.called.notify_all();
    }

    /// Waits until [`wake`](Self::wake) is called, up to `most` if given.
    pub(crate) fn wait(&self, most: Option<Duration>) {
        let mut is_called = self.is_called.lock();
        let is_quiet = |is_called: &mut bool| !*is_called;
        match most {
            None => self.called.wait_while(&mut is_called, is_quiet),
            Some(most) => {
                self.called.wait_while_for(&mut is_called, is_quiet, most);
            }
        }
        *is_called = false;
    }

    /// Says from now on that the runner is to end.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn remove(&self, id: i64) {
        self.live.lock().remove(&id);
        self.ended.notify_all();
    }

    /// Cancels the run of a transfer, if there is one.
    pub(crate) fn cancel(&self, id: i64) {
        if let Some(live) = self.get(id) {
            live.cancel.cancel();
        }
    }

    /// Waits until the cancelled run of a transfer has ended.
    pub(crate) fn wait_for_end(&self, id: i64) {
        let is_running = |live: &mut HashMap<_, _>| live.contains_key(&id);
        self.ended.wait_while_for(&mut self.live.lock(), is_running, END_TIMEOUT);
    }
}
