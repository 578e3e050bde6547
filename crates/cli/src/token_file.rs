//! Files that hold a bearer token.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No token is longer; a device or a pipe would never end.
const LONGEST: u64 = 8 << 10;

/// Reads a token file, which must be a regular and small one.
///
/// # Errors
/// What the kernel says of it; `InvalidInput` for anything else than a short text in a regular file.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // Before it is opened: a pipe would wait for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return refused("it is no regular file");
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    match text.trim() {
        "" => refused("it is empty"),
        _ if text.len() as u64 > LONGEST => refused("it is too long for a token"),
        token if token.contains(char::is_control) => refused("it holds more than one line"),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_line_is_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let at = |text: &str| {
            let path = dir.path().join("token");
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        assert_eq!(at("  secret\n").unwrap(), "secret");
        for text in ["", "\n", "two\nlines", &"x".repeat(9000)] {
            assert_eq!(at(text).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        for path in [Path::new("/dev/zero"), dir.path()] {
            assert_eq!(read(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
