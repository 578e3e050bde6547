//! Writes a server's log on its own thread: a slow or stalled reader delays no client.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_server::drop_capabilities;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Maximum of queued lines; further ones are dropped and counted.
const LINES: usize = 4096;

/// Whether the process has changed its user. Until then all threads need the capabilities for the change: the C library
/// aborts the process if the change fails in some threads only.
static USER_IS_FINAL: AtomicBool = AtomicBool::new(false);

/// Wakes the log thread.
static WRITER: OnceLock<NonBlocking> = OnceLock::new();

/// Makes the log thread drop its capabilities.
pub(crate) fn drop_privileges() {
    USER_IS_FINAL.store(true, Ordering::Relaxed);
    if let Some(writer) = WRITER.get() {
        // An empty line is not written: after it, the thread flushes. A full queue does so too.
        let _ = writer.clone().write(b"");
    }
}

/// Writes to stderr, on the log thread.
struct LogWriter {
    has_privileges: bool,
}

impl LogWriter {
    fn check_privileges(&mut self) {
        if self.has_privileges && USER_IS_FINAL.load(Ordering::Relaxed) {
            // On failure the thread keeps them; it cannot report that here.
            let _ = drop_capabilities();
            self.has_privileges = false;
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.check_privileges();
        io::stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_privileges();
        io::stderr().flush()
    }
}

/// The log thread; dropping this waits for about a second at most for unwritten lines.
pub(crate) struct LogThread {
    guard: Option<WorkerGuard>,
    counter: ErrorCounter,
}

/// Starts the thread; returns the writer for lines.
pub(crate) fn start() -> (NonBlocking, LogThread) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES)
        .thread_name("log")
        .finish(LogWriter { has_privileges: true });
    let counter = writer.error_counter();
    // There is one log of the process.
    let _ = WRITER.set(writer.clone());
    (writer, LogThread { guard: Some(guard), counter })
}

impl Drop for LogThread {
    fn drop(&mut self) {
        let dropped = self.counter.dropped_lines();
        if dropped > 0 {
            tracing::warn!(lines = dropped, "lines of this log were dropped: it was read too slowly");
        }
        // If the queue has no room for this line either, the log has no reader. The guard would then wait for one, and
        // print to stdout, which may be the same pipe.
        if self.counter.dropped_lines() > dropped {
            std::mem::forget(self.guard.take());
        }
    }
}
