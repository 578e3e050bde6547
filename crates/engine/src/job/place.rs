//! Where the finished file will stand.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::sink::output_error::OutputError;

/// As many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Follows `path` through symbolic links to the file that will be replaced, which need not exist.
///
/// A link is a wish to have the file elsewhere; renaming onto it would put the file on this side.
///
/// # Errors
/// [`OutputError::NotAFile`] for a device, a pipe or a socket: replacing those would break what uses
/// them. [`OutputError::Create`] for links that go round in a circle and
/// names that are too long.
pub(super) fn file(path: &Path) -> Result<PathBuf, OutputError> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        // A link there leads to an open file of a process, as /dev/stdout does, and not to a name.
        if place.starts_with("/proc") {
            return Err(OutputError::NotAFile(path.to_owned()));
        }
        match fs::read_link(&place) {
            Ok(to) => place = place.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => {
                return match fs::metadata(&place) {
                    Ok(meta) if !meta.is_file() && !meta.is_dir() => Err(OutputError::NotAFile(place)),
                    // The partial file's name would be shortened, and only the last step would fail.
                    Err(source) if source.kind() == io::ErrorKind::InvalidFilename => {
                        Err(OutputError::Create { path: place, source })
                    }
                    _ => Ok(place),
                };
            }
        }
    }
    Err(OutputError::Create { path: path.to_owned(), source: Errno::LOOP.into() })
}

/// Finds out before the network is asked whether `path` can hold files.
///
/// # Errors
/// [`OutputError::Create`] where it is missing or no directory.
pub(super) fn directory(path: &Path) -> Result<(), OutputError> {
    let failed = |source| OutputError::Create { path: path.to_owned(), source };
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() { Ok(()) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_to_the_file_they_mean() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink("sub/../real", at("one")).unwrap();
        symlink(at("one"), at("two")).unwrap();
        assert_eq!(file(&at("two")).unwrap(), at("sub/../real"));
        symlink("round", at("round")).unwrap();
        assert!(matches!(file(&at("round")), Err(OutputError::Create { .. })));
        assert!(matches!(file(Path::new("/dev/stdout")), Err(OutputError::NotAFile(_))));
        symlink("/dev/null", at("null")).unwrap();
        assert!(
            matches!(file(&at("null")), Err(OutputError::NotAFile(path)) if path == Path::new("/dev/null"))
        );
    }

    #[test]
    fn a_directory_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(directory(dir.path()).is_ok());
        fs::write(dir.path().join("file"), "").unwrap();
        for name in ["missing", "file", "file/"] {
            assert!(matches!(directory(&dir.path().join(name)), Err(OutputError::Create { .. })), "{name}");
        }
    }
}
