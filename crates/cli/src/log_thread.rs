//! A server's log is written by a thread of its own: a reader that is slow, or stalls, delays no client.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_server::keep_file_capabilities;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// How many lines wait for a slow reader; further ones are dropped and counted.
const LINES: usize = 4096;

/// Whether the process has become the user that it stays. Before, all its threads need the capabilities for that change: the C
/// library ends a process of which some threads change their user and others fail.
static USER_IS_FINAL: AtomicBool = AtomicBool::new(false);

/// Lets the thread of the log give up its capabilities, before its next line.
pub(crate) fn drop_privileges() {
    USER_IS_FINAL.store(true, Ordering::Relaxed);
}

/// Writes to stderr, in the thread of the log.
struct LogWriter {
    has_privileges: bool,
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.has_privileges && USER_IS_FINAL.load(Ordering::Relaxed) {
            // Refused, the thread keeps them: a line about that would be written here.
            let _ = keep_file_capabilities();
            self.has_privileges = false;
        }
        io::stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

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
        .finish(LogWriter { has_privileges: true });
    let counter = writer.error_counter();
    (writer, LogThread { guard: Some(guard), counter })
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let dropped = self.counter.dropped_lines();
        if dropped > 0 {
            tracing::warn!(lines = dropped, "lines of this log were dropped: it was read too slowly");
        }
        // Where even this line found no room the log has no reader, and the guard would wait for one and
        // then print to stdout, which may be the same pipe.
        if self.counter.dropped_lines() > dropped {
            std::mem::forget(self.guard.take());
        }
    }
}
