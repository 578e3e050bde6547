//! Starts named threads, and adds to shared time counters.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};

/// Starts a named thread whose panic is reported through `panicked` instead of ending the scope.
pub(crate) fn spawn_guarded<'scope>(
    threads: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() + Send + 'scope,
    panicked: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    // The state that `run` shares tolerates a panic or is not used after one, because the transfer
    // fails.
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            panicked();
        }
    };
    named(name).spawn_scoped(threads, guarded).map(drop)
}

/// Creates a builder of a thread with a name, which `top -H` and debuggers show.
pub(crate) fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

/// Creates the failure of a thread that could not be started.
pub(crate) fn not_started(whose: &str, error: &io::Error) -> Failure {
    Failure::new(FailureKind::Host, format!("cannot start a thread for {whose}: {error}"))
}

/// Adds a time to a counter in nanoseconds.
pub(crate) fn add(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}
