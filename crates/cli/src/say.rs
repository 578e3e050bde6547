//! What the program says besides its log.

use std::fmt::Display;
use std::io::{self, Write};

use crate::stderr;

/// Writes a line to stderr.
pub(crate) fn line(text: impl Display) {
    stderr::line(format!("{text}\n"));
}

/// Writes a line to stdout, as `println!` would, but where nobody reads it any more (`| head`) goes on.
pub(crate) fn output(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Writes an error.
pub(crate) fn error(error: impl Display) {
    line(format_args!("longhaul: {error}"));
}
