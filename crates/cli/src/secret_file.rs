//! Files with a bearer token or a password.

use std::io;
use std::path::Path;

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;

/// Maximum size of a token or password.
const LONGEST: Bytes = Bytes::kib(8);

/// Reads a token from a file or a pipe; trims white space.
///
/// # Errors
/// As of [`input_file::read`]; `InvalidInput` unless the content is one short line.
pub(crate) fn read_token(path: &Path, cancel: &Cancel) -> io::Result<String> {
    read(path, cancel, str::trim)
}

/// Reads a password from a file or a pipe; removes only the end of the line.
///
/// # Errors
/// As of [`read_token`].
pub(crate) fn read_password(path: &Path, cancel: &Cancel) -> io::Result<String> {
    read(path, cancel, |text| {
        text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line))
    })
}

fn read(path: &Path, cancel: &Cancel, secret: impl Fn(&str) -> &str) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let Ok(text) = String::from_utf8(input_file::read(path, LONGEST, cancel)?) else {
        return refused("it is not UTF-8");
    };
    match secret(&text) {
        "" => refused("it is empty"),
        secret if secret.contains(char::is_control) => refused("it holds more than one line"),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reader = fn(&Path, &Cancel) -> io::Result<String>;

    #[test]
    fn only_a_short_line_is_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let at = |read: Reader, text: &str| {
            let path = dir.path().join("secret");
            std::fs::write(&path, text).unwrap();
            read(&path, &Cancel::new())
        };
        assert_eq!(at(read_token, "  secret\n").unwrap(), "secret");
        for (text, password) in [(" a b \n", " a b "), ("c\r\n", "c"), ("d", "d")] {
            assert_eq!(at(read_password, text).unwrap(), password);
        }
        for read in [read_token, read_password] {
            for text in ["", "\n", "two\nlines", &"x".repeat(9000)] {
                assert_eq!(at(read, text).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            }
            let zero = read(Path::new("/dev/zero"), &Cancel::new());
            assert_eq!(zero.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(read(dir.path(), &Cancel::new()).is_err());
        }
    }
}
