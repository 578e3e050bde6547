//! What the program says besides its log.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

use crate::stderr;

/// Writes a line to stderr.
pub(crate) fn line(text: impl Display) {
    stderr::line(format!("{text}\n"));
}

/// Why stdout could not be written.
static STDOUT_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes a line to stdout, as `println!` would, but goes on where that fails: [`stdout_failure`] returns the error at the end.
pub(crate) fn output(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes bytes to stdout, as [`output`].
pub(crate) fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout();
    note_stdout(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Notes why stdout could not be written; a reader that has closed the pipe (`| head`) is no failure.
pub(crate) fn note_stdout(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = STDOUT_FAILURE.set(error);
    }
}

/// Returns why stdout could not be written.
pub(crate) fn stdout_failure() -> Option<&'static io::Error> {
    STDOUT_FAILURE.get()
}

/// Writes an error.
pub(crate) fn error(error: impl Display) {
    line(format_args!("longhaul: {error}"));
}
