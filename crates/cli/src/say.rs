//! The program's output besides its log.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

use longhaul_sys::standard_streams::stdout_was_closed;

use crate::stderr;

/// Writes a line to stderr.
pub(crate) fn line(text: impl Display) {
    stderr::line(format!("{text}\n"));
}

/// The first error of stdout.
static STDOUT_FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes a line to stdout like `println!`, but continues on an error: [`stdout_failure`] returns it at the end.
pub(crate) fn output(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Writes bytes to stdout, with errors handled as in [`output`].
pub(crate) fn bytes(bytes: &[u8]) {
    note_stdout(stdout().and_then(|mut stdout| {
        stdout.write_all(bytes)?;
        stdout.flush()
    }));
}

/// Returns stdout.
///
/// # Errors
/// stdout was closed before the program started; output would be lost without an error.
pub(crate) fn stdout() -> io::Result<io::Stdout> {
    if stdout_was_closed() { Err(io::Error::other("it is closed")) } else { Ok(io::stdout()) }
}

/// Stores an error of stdout; a closed pipe (`| head`) is no error.
pub(crate) fn note_stdout(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = STDOUT_FAILURE.set(error);
    }
}

/// Returns the first error of stdout.
pub(crate) fn stdout_failure() -> Option<&'static io::Error> {
    STDOUT_FAILURE.get()
}

/// Formats an error with its causes; omits causes that the text already contains.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        _ if text.contains(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

/// Prints an error.
pub(crate) fn error(error: impl Display) {
    line(format_args!("longhaul: {error}"));
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use longhaul_engine::sink::output_error::OutputError;

    use super::*;

    #[test]
    fn cause_contained_in_the_error_is_not_repeated() {
        let source = io::Error::from_raw_os_error(20);
        let failed: Result<(), _> = Err(OutputError::Create { path: "d".into(), source });
        let error = failed.context("cannot begin").unwrap_err();
        assert_eq!(chain(&error), "cannot begin: cannot create d: Not a directory (os error 20)");
    }
}
