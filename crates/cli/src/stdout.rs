//! Standard output: its first error makes a command fail that has otherwise succeeded.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

use longhaul_sys::standard_streams::stdout_was_closed;

/// The first error of stdout.
static FIRST_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes a line to stdout like `println!`, but continues on an error: [`failure`] returns it at
/// the end.
pub(crate) fn line(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes bytes to stdout, with errors handled as in [`line`](line()).
pub(crate) fn bytes(bytes: &[u8]) {
    note(open().and_then(|mut stdout| {
        stdout.write_all(bytes)?;
        stdout.flush()
    }));
}

/// Returns stdout.
///
/// # Errors
/// stdout was closed before the program started; output would be lost without an error.
pub(crate) fn open() -> io::Result<io::Stdout> {
    if stdout_was_closed() { Err(io::Error::other("it is closed")) } else { Ok(io::stdout()) }
}

/// Stores an error of stdout; a closed pipe (`| head`) is no error.
pub(crate) fn note(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = FIRST_FAILURE.set(error);
    }
}

/// Returns the first error of stdout.
pub(crate) fn failure() -> Option<&'static io::Error> {
    FIRST_FAILURE.get()
}
