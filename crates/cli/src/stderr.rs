//! The stderr of a transfer: log, progress and messages are written by one thread, so that no transfer blocks on a terminal or a pipe.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use crate::line_queue::LineQueue;
use crate::progress::Drawing;

/// Interval between drawings of progress.
const REDRAW: Duration = Duration::from_millis(200);

/// The queue, once started; until then, and in other commands, lines are written synchronously.
static QUEUE: OnceLock<LineQueue> = OnceLock::new();

/// Drains the queue on drop, until nothing was read for about a second.
pub(crate) struct Stderr(());

/// The log's writer.
pub(crate) struct LogWriter;

/// Starts the thread; on failure lines are written synchronously.
pub(crate) fn start() -> Stderr {
    if let Ok(queue) = LineQueue::start("stderr", Drawing::default(), REDRAW) {
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

/// Draws the progress at once.
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
