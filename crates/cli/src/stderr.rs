//! stderr of a transfer: log, progress and messages leave through one thread, so that no transfer waits for a terminal
//! or a pipe.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use crate::line_queue::LineQueue;
use crate::progress::Drawing;

/// How often progress is drawn.
const REDRAW: Duration = Duration::from_millis(200);

/// The queue, once it is started; until then, and in other commands, lines are written at once.
static QUEUE: OnceLock<LineQueue> = OnceLock::new();

/// Waits for the reader of the last lines when dropped, for about a second after it has read anything.
pub(crate) struct Stderr(());

/// Where the log writes.
pub(crate) struct LogWriter;

/// Starts the thread; without one, lines are written at once.
pub(crate) fn start() -> Stderr {
    if let Ok(queue) = LineQueue::start("stderr", Drawing::default(), REDRAW) {
        // It is started once.
        let _ = QUEUE.set(queue);
    }
    Stderr(())
}

/// Returns whether stderr is a terminal that understands control sequences.
pub(crate) fn is_capable() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// Returns whether text on stderr may have colours: NO_COLOR and CLICOLOR=0 forbid them.
pub(crate) fn has_colours() -> bool {
    is_capable() && console::colors_enabled_stderr()
}

/// Writes a line above what is drawn.
pub(crate) fn line(text: String) {
    match QUEUE.get() {
        Some(queue) => queue.push(text),
        // Without a reader there is nothing to do about it (`eprintln!` would panic).
        None => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// Draws progress anew.
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
