//! Options of curl, wget and aria2, and their equivalents.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Unsupported options, and their replacements.
const KNOWN: [(&[&str], &str); 11] = [
    (
        &["-O", "--remote-name", "--output-document"],
        "the file gets the name of its URL; -o FILE gives it another",
    ),
    (&["-L", "--location"], "redirects are followed without an option"),
    (&["-c", "--continue", "-C", "--continue-at"], "what was interrupted is resumed without an option"),
    (&["-P", "--directory-prefix", "-d", "--dir", "--output-dir"], "-o DIR/ names the directory"),
    (&["-s", "--silent", "-S", "--show-error"], "-q prints nothing but errors"),
    (&["-f", "--fail"], "what a server refuses is an error without an option"),
    (
        &["--compressed"],
        "a file comes in ranges, which are not decoded, so no coding is asked for: gunzip decodes one that is stored so",
    ),
    (&["-T", "--upload-file"], "longhaul put FILE URL sends files"),
    (&["--split", "--max-connection-per-server"], "--streams N sets the number of connections"),
    (&["--limit-rate", "--max-download-limit"], "--limit RATE sets the highest rate, as 60MB/s"),
    (&["--no-check-certificate", "--check-certificate"], "-k trusts any server"),
];

/// Adds the equivalent option of `get` to the error of an unknown option of curl, wget or aria2.
pub(crate) fn with_hint(mut error: clap::Error) -> clap::Error {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(unknown))) => unknown.clone(),
        _ => return error,
    };
    let name = unknown.split('=').next().unwrap_or_default();
    if let Some((_, hint)) = KNOWN.iter().find(|(names, _)| names.contains(&name)) {
        let hint = ContextValue::StyledStrs(vec![StyledStr::from(*hint)]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn foreign_option_is_answered_by_its_equivalent() {
        for (option, hint) in [
            ("-O", "-o FILE"),
            ("-LO", "redirects are followed"),
            ("--continue", "resumed"),
            ("--limit-rate=1M", "--limit RATE"),
            ("--compressed", "gunzip"),
        ] {
            let error = Cli::try_parse_from(["longhaul", "get", option, "http://h/f"]).unwrap_err();
            let text = with_hint(error).to_string();
            assert!(text.contains(hint) && !text.contains("as a value"), "{option}: {text}");
        }
        let typo = Cli::try_parse_from(["longhaul", "get", "--outptu", "x", "http://h/f"]).unwrap_err();
        assert!(with_hint(typo).to_string().contains("'--output'"));
    }

    #[test]
    fn own_options_are_not_foreign() {
        let mut program = Cli::command();
        program.build();
        let get = program.find_subcommand("get").unwrap();
        for arg in get.get_arguments() {
            let own = [
                arg.get_long().map(|long| format!("--{long}")),
                arg.get_short().map(|short| format!("-{short}")),
            ];
            for own in own.into_iter().flatten() {
                assert!(KNOWN.iter().all(|(names, _)| !names.contains(&own.as_str())), "{own}");
            }
        }
    }
}
