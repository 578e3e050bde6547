//! The program's messages on stderr, besides its log.

use std::fmt::Display;

use crate::stderr;

/// Writes a line to stderr.
pub(crate) fn line(text: impl Display) {
    stderr::line(format!("{text}\n"));
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
    use std::io;

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
