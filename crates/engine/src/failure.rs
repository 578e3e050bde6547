//! The classes of failure of `get` and `put`, their exit codes, and the texts of their errors at other doors.

/// The class of an error, for exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The command or the environment is wrong (EX_USAGE).
    Usage,
    /// The data is corrupt or differs from what was expected (EX_DATAERR).
    Data,
    /// The server does not have the file, or a named local file cannot be read (EX_NOINPUT).
    NotFound,
    /// The host name does not resolve (EX_NOHOST).
    NoHost,
    /// The server cannot be reached or cannot serve (EX_UNAVAILABLE).
    Unavailable,
    /// An error in the program (EX_SOFTWARE).
    Internal,
    /// This host lacks memory or threads (EX_OSERR).
    Host,
    /// The output cannot be created (EX_CANTCREAT).
    CannotCreate,
    /// The disk failed: it is full, or cannot be read or written (EX_IOERR).
    Disk,
    /// Temporary: run again (EX_TEMPFAIL).
    Temporary,
    /// The server broke the protocol, or is not trusted (EX_PROTOCOL).
    Protocol,
    /// Access is denied (EX_NOPERM).
    Denied,
    /// The user interrupted the command.
    Interrupted,
}

/// Returns an error's text for other doors than the command line: without advice that names options.
///
/// Such advice is the last clause of a text, after a semicolon, and no command in backquotes.
pub fn without_options(text: &str) -> &str {
    let is_option = |word: &str| {
        let name = word.trim_start_matches('(').strip_prefix('-');
        name.is_some_and(|name| name.starts_with(|first: char| first == '-' || first.is_ascii_alphabetic()))
    };
    match text.rsplit_once("; ") {
        Some((why, advice)) if !advice.contains('`') && advice.split(' ').any(is_option) => why,
        _ => text,
    }
}

impl FailureKind {
    /// Returns the exit code of sysexits(3); 130 for an interruption, as shells report it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Data => 65,
            Self::NotFound => 66,
            Self::NoHost => 68,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::Host => 71,
            Self::CannotCreate => 73,
            Self::Disk => 74,
            Self::Temporary => 75,
            Self::Protocol => 76,
            Self::Denied => 77,
            Self::Interrupted => 130,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_options_is_left_out_where_there_are_none() {
        for (why, advice) in [
            ("h answered 401: no; yes", "; give a login with --user, in ~/.netrc or in the URL"),
            ("f exists", "; replace it with -N"),
            ("it - f - exists", ""),
            ("no files", ""),
            ("it takes none; start `longhaul serve --writable`", ""),
        ] {
            assert_eq!(without_options(&format!("{why}{advice}")), why);
        }
    }
}
