//! Checks that a server's name of an entry may become a local file name.

use crate::proto::Malformed;

/// The longest name of a file (NAME_MAX of Linux).
pub const MAX_NAME: usize = 255;

/// Checks that `name` names an entry of a directory, and no other directory.
///
/// # Errors
/// [`Malformed`] for any other name.
pub fn check_name(name: &[u8]) -> Result<(), Malformed> {
    let why = match name {
        b"" => "its name is empty",
        b"." | b".." => "its name leads to another directory",
        _ if name.contains(&b'/') => "its name holds a slash",
        _ if name.contains(&0) => "its name holds a NUL",
        _ if name.len() > MAX_NAME => "its name is longer than 255 bytes",
        _ => return Ok(()),
    };
    Err(Malformed::new(why))
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
            (&[b'x'; 256], Err("its name is longer than 255 bytes")),
            (b"", Err("its name is empty")),
            (b"..", Err("its name leads to another directory")),
            (b".", Err("its name leads to another directory")),
            (b"../a", Err("its name holds a slash")),
            (b"/etc", Err("its name holds a slash")),
            (b"a\0", Err("its name holds a NUL")),
        ] {
            assert_eq!(check_name(name), expected.map_err(Malformed::new), "{}", name.escape_ascii());
        }
    }
}
