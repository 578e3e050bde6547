//! Files that hold a bearer token or a password.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No token and no password is longer; a device or a pipe would never end.
const LONGEST: u64 = 8 << 10;

/// Reads a token file, which must be a regular and small one. White space around the token is no part of it.
///
/// # Errors
/// What the kernel says of it; `InvalidInput` for anything else than a short text in a regular file.
pub(crate) fn read_token(path: &Path) -> io::Result<String> {
    read(path, str::trim)
}

/// Reads a password file, which must be a regular and small one. Only the end of its line is no part of the password.
///
/// # Errors
/// As of [`read_token`].
pub(crate) fn read_password(path: &Path) -> io::Result<String> {
    read(path, |text| text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line)))
}

fn read(path: &Path, secret: impl Fn(&str) -> &str) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // Before it is opened: a pipe would wait for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return refused("it is no regular file");
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    match secret(&text) {
        "" => refused("it is empty"),
        _ if text.len() as u64 > LONGEST => refused("it is longer than 8 KiB"),
        secret if secret.contains(char::is_control) => refused("it holds more than one line"),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reader = fn(&Path) -> io::Result<String>;

    #[test]
    fn only_a_short_line_is_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let at = |read: Reader, text: &str| {
            let path = dir.path().join("secret");
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        assert_eq!(at(read_token, "  secret\n").unwrap(), "secret");
        for (text, password) in [(" a b \n", " a b "), ("c\r\n", "c"), ("d", "d")] {
            assert_eq!(at(read_password, text).unwrap(), password);
        }
        for read in [read_token, read_password] {
            for text in ["", "\n", "two\nlines", &"x".repeat(9000)] {
                assert_eq!(at(read, text).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
            for path in [Path::new("/dev/zero"), dir.path()] {
                assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
        }
    }
}
