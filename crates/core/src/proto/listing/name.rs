//! Checks that a server's name of an entry may become a local file name.

use thiserror::Error;

/// The longest name of a file (NAME_MAX of Linux).
pub const MAX_NAME: usize = 255;

/// The reason why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name is empty.
    #[error("its name is empty")]
    Empty,
    /// The name is `.` or `..`.
    #[error("its name leads to another directory")]
    Dots,
    /// The name contains a slash.
    #[error("its name holds a slash")]
    Slash,
    /// The name contains a NUL.
    #[error("its name holds a NUL")]
    Nul,
    /// The name is too long for a file.
    #[error("its name is longer than {MAX_NAME} bytes")]
    TooLong,
}

/// Checks that `name` names an entry of a directory, and no other directory.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    match name {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if name.contains(&b'/') => Err(NameError::Slash),
        _ if name.contains(&0) => Err(NameError::Nul),
        _ if name.len() > MAX_NAME => Err(NameError::TooLong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_one_entry_are_accepted() {
        for (name, expected) in [
            (&b"a"[..], Ok(())),
            (b"...", Ok(())),
            (b".hidden", Ok(())),
            (b"a\nb \xff\\", Ok(())),
            (&[b'x'; 255], Ok(())),
            (&[b'x'; 256], Err(NameError::TooLong)),
            (b"", Err(NameError::Empty)),
            (b"..", Err(NameError::Dots)),
            (b".", Err(NameError::Dots)),
            (b"../a", Err(NameError::Slash)),
            (b"/etc", Err(NameError::Slash)),
            (b"a\0", Err(NameError::Nul)),
        ] {
            assert_eq!(check_name(name), expected, "{}", name.escape_ascii());
        }
    }
}
