//! A server's log leaves through a thread of its own: whoever reads it slowly, or not at all, delays no client.

use std::io;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// How many lines wait for a slow reader; further ones are dropped and counted.
const LINES: usize = 4096;

/// Keeps the thread; dropping it waits about a second at most for the lines not yet written.
pub(crate) struct LogThread {
    guard: Option<WorkerGuard>,
    counter: ErrorCounter,
}

/// Starts the thread; gives where to write lines.
pub(crate) fn start() -> (NonBlocking, LogThread) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES)
        .thread_name("log")
        .finish(io::stderr());
    let counter = writer.error_counter();
    (writer, LogThread { guard: Some(guard), counter })
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let dropped = self.counter.dropped_lines();
        if dropped > 0 {
            tracing::warn!(lines = dropped, "lines of this log were dropped: it was read too slowly");
        }
        // Where even this line found no room nobody reads, and the guard would wait for them and
        // then print to stdout, which may be the same pipe.
        if self.counter.dropped_lines() > dropped {
            std::mem::forget(self.guard.take());
        }
    }
}
