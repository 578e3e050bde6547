//! The stderr of a transfer or a server: log, progress and messages are written by one thread, so
//! that no transfer blocks on a terminal or a pipe.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_server::drop_capabilities;

use crate::line_queue::{self, LineQueue, Output};

/// Interval between drawings of progress.
const REDRAW: Duration = Duration::from_millis(200);

/// The queue, once started; until then, and in other commands, lines are written synchronously.
static QUEUE: OnceLock<LineQueue> = OnceLock::new();

/// Drains the queue on drop, until nothing was read for about a second.
pub(crate) struct Stderr(());

/// The log's writer.
pub(crate) struct LogWriter;

/// Whether the process has changed its user. Until then all threads need the capabilities for the
/// change: the C library aborts the process if the change fails in some threads only.
static USER_IS_FINAL: AtomicBool = AtomicBool::new(false);

/// The log of a server, whose thread drops its capabilities once the process has its user.
#[derive(Default)]
pub(crate) struct ServerLog {
    has_no_privileges: bool,
}

impl Output for ServerLog {
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
        // Continues after a failed write: a full disk may have space for later lines.
        let _ = line_queue::write_all(io::stderr(), lines, wrote);
        Ok(())
    }

    fn draw(&mut self) -> bool {
        if !self.has_no_privileges && USER_IS_FINAL.load(Ordering::Relaxed) {
            // On failure the thread keeps them; it cannot report that here.
            let _ = drop_capabilities();
            self.has_no_privileges = true;
        }
        false
    }
}

/// Makes the thread of a server's log drop its capabilities.
pub(crate) fn drop_privileges() {
    USER_IS_FINAL.store(true, Ordering::Relaxed);
    redraw();
}

/// Starts the thread; on failure lines are written synchronously.
pub(crate) fn start(output: impl Output + 'static) -> Stderr {
    if let Ok(queue) = LineQueue::start("stderr", output, REDRAW) {
        // Called once.
        let _ = QUEUE.set(queue);
    }
    Stderr(())
}

/// Returns whether stderr is a terminal with control sequences.
pub(crate) fn is_capable() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// Returns whether stderr may have colours: NO_COLOR and CLICOLOR=0 disable them.
pub(crate) fn has_colours() -> bool {
    is_capable() && console::colors_enabled_stderr()
}

/// Writes a line above the progress.
pub(crate) fn line(text: String) {
    match QUEUE.get() {
        Some(queue) => queue.push(text),
        // An error is ignored (`eprintln!` would panic).
        None => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Draws at once what is below the lines.
pub(crate) fn redraw() {
    if let Some(queue) = QUEUE.get() {
        queue.redraw();
    }
}

impl Write for LogWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => queue.push_frequent(String::from_utf8_lossy(text).into_owned()),
            None => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        let Some(queue) = QUEUE.get() else { return };
        let dropped = queue.take_dropped();
        if dropped > 0 {
            queue
                .push(format!("longhaul: {dropped} lines of the log were dropped: it was read too slowly\n"));
        }
        queue.drain();
    }
}
