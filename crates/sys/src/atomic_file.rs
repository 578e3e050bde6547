//! Replaces small files atomically.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::if_exists::if_exists;

/// The suffix of an incomplete file.
const UNFINISHED: &str = "~";

/// Replaces a file's content in one step, or creates the file with `mode` less the process's umask.
///
/// A reader sees the old or the new content, never a part, even after a crash; after an error it
/// sees the old one.
///
/// # Errors
/// The kernel's error.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, content, mode, |_| Ok(()))
}

/// As [`replace`], with `mode` whatever the process's umask is.
///
/// # Errors
/// The kernel's error.
pub fn replace_despite_umask(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, content, mode, |file| file.set_permissions(Permissions::from_mode(mode)))
}

/// Checks that [`replace`] could write a file beside the one of this path, without changing that.
///
/// # Errors
/// The kernel's error.
pub fn check_place(path: &Path) -> io::Result<()> {
    let (fresh, _) = create_fresh(path, 0o600)?;
    fs::remove_file(fresh)
}

fn replace_with(
    path: &Path,
    content: &[u8],
    mode: u32,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let (fresh, mut file) = create_fresh(path, mode)?;
    let write = || -> io::Result<()> {
        prepare(&file)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// Creates a file that was not there, so that a link with its name is not followed.
fn create_fresh(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let fresh = fresh(path);
    // An earlier process with this id may have left it.
    if_exists(fs::remove_file(&fresh))?;
    let file = File::options().write(true).create_new(true).mode(mode).open(&fresh)?;
    Ok((fresh, file))
}

/// Removes incomplete files left beside a file by interrupted replacements.
///
/// # Errors
/// The kernel's error.
pub fn remove_unfinished(path: &Path) -> io::Result<()> {
    let mut start = path.file_name().unwrap_or_default().to_os_string();
    start.push(".");
    for entry in fs::read_dir(parent(path))? {
        let entry = entry?;
        let (name, start) = (entry.file_name().into_encoded_bytes(), start.as_encoded_bytes());
        let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes()));
        if middle.is_some_and(|middle| !middle.is_empty() && middle.iter().all(u8::is_ascii_digit)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns a path in the file's directory that no other process writes to: "name.PID~".
fn fresh(path: &Path) -> PathBuf {
    let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}{UNFINISHED}", std::process::id()));
    parent(path).join(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_mode_are_replaced_without_leftovers_despite_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (content, mode) in [("first", 0o644), ("second", 0o600)] {
            replace(&path, content.as_bytes(), mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // No usual umask leaves this one.
        replace_despite_umask(&path, b"content", 0o666).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn link_with_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, fresh(&path)).unwrap();
        replace(&path, b"content", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        assert!(!fresh(&path).exists());
    }

    #[test]
    fn error_keeps_the_old_file_and_leftovers_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"new", 0o600).is_err(), "a directory is not replaced");
        assert!(path.is_dir());
        for name in ["file.12~", "file.x~", "file.~", "other.12~"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_unfinished(&path).unwrap();
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["file", "file.x~", "file.~", "other.12~"]);
    }
}
