//! The walk of a local directory.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use walkdir::{DirEntry, IntoIter, WalkDir};

use super::{WalkError, Walked};
use crate::cancel::Cancel;
use crate::sink::part_names::is_partial;

/// An entry of a local directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEntry {
    /// A directory, before what it holds: its path below the root, which is empty for the root
    /// itself.
    Directory(PathBuf),
    /// A file.
    File(LocalFile),
}

/// A local file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// The path.
    pub path: PathBuf,
    /// The path below the root of the walk.
    pub below: PathBuf,
    /// The size.
    pub size: Bytes,
    /// The modification time in seconds since 1970; `None` if earlier.
    pub modified: Option<u64>,
    /// Its type and permissions, as `st_mode` of stat(2).
    pub mode: u32,
    /// The number of the user that owns it.
    pub owner: u32,
}

/// The walk of a local directory; a directory is returned before its entries. Symbolic links are
/// not followed, except at the root.
pub struct LocalWalk {
    root: PathBuf,
    cancel: Cancel,
    entries: IntoIter,
}

impl LocalWalk {
    /// Begins a walk, which ends early once `cancel` is set.
    ///
    /// # Errors
    /// [`Failure`] if there is no directory at `root`.
    pub fn new(root: &Path, cancel: &Cancel) -> Result<Self, Failure> {
        check_directory(root)?;
        Ok(Self::of_directory(root, cancel))
    }

    /// Begins the walk of what was a directory before.
    pub(super) fn of_directory(root: &Path, cancel: &Cancel) -> Self {
        let entries = WalkDir::new(root).into_iter();
        Self { root: root.to_owned(), cancel: cancel.clone(), entries }
    }

    /// Leaves out what the directory that was returned last holds.
    pub fn skip_directory(&mut self) {
        self.entries.skip_current_dir();
    }

    fn file(&self, entry: &DirEntry) -> Walked<LocalFile> {
        let kind = entry.file_type();
        let skipped = |why| Walked::Skipped { what: entry.path().display().to_string(), why };
        match kind {
            kind if kind.is_symlink() => skipped("it is a symbolic link"),
            kind if !kind.is_file() => skipped("it is neither a file nor a directory"),
            _ if is_partial(entry.file_name().as_encoded_bytes()) => {
                skipped("it is a partial file of an unfinished transfer")
            }
            _ => match entry.metadata() {
                Ok(metadata) => Walked::File(LocalFile {
                    path: entry.path().to_owned(),
                    below: self.below(entry),
                    size: Bytes::new(metadata.len()),
                    modified: metadata.modified().ok().and_then(seconds),
                    mode: metadata.mode(),
                    owner: metadata.uid(),
                }),
                Err(error) => Walked::Failed(unreadable(entry.path(), error)),
            },
        }
    }

    fn below(&self, entry: &DirEntry) -> PathBuf {
        entry.path().strip_prefix(&self.root).unwrap_or(Path::new("")).to_owned()
    }
}

/// Returns whether a directory has the name of those in which the workers of a plan stage what they
/// receive.
fn is_of_plan(entry: &DirEntry) -> bool {
    let id = entry.file_name().as_encoded_bytes().strip_prefix(b".longhaul-");
    id.is_some_and(|id| id.len() == 16 && id.iter().all(u8::is_ascii_hexdigit))
}

/// Checks that there is a directory at `root`.
pub(super) fn check_directory(root: &Path) -> Result<(), Failure> {
    let failed = |error| {
        let message = format!("cannot read the directory {}: {error}", root.display());
        Failure::new(FailureKind::NotFound, message)
    };
    match std::fs::metadata(root).map_err(failed)?.is_dir() {
        true => Ok(()),
        false => Err(failed(io::ErrorKind::NotADirectory.into())),
    }
}

pub(super) fn seconds(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn unreadable(path: &Path, error: walkdir::Error) -> WalkError {
    let (what, error) = (path.display().to_string(), io::Error::from(error));
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => FailureKind::Denied,
        _ => FailureKind::NotFound,
    };
    let failure = Failure::new(kind, format!("cannot read {what}: {error}"));
    WalkError { what, failure }
}

impl Iterator for LocalWalk {
    type Item = Walked<LocalEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cancel.is_cancelled() {
            return None;
        }
        Some(match self.entries.next()? {
            Ok(entry) if entry.depth() > 0 && entry.file_type().is_dir() && is_of_plan(&entry) => {
                self.entries.skip_current_dir();
                let what = entry.path().display().to_string();
                Walked::Skipped { what, why: "it is the directory of a plan's unfinished files" }
            }
            // A link at the root is followed, and has the type of a link.
            Ok(entry) if entry.depth() == 0 || entry.file_type().is_dir() => {
                Walked::File(LocalEntry::Directory(self.below(&entry)))
            }
            Ok(entry) => self.file(&entry).map(LocalEntry::File),
            Err(error) => {
                let path = error.path().map(Path::to_owned).unwrap_or_default();
                Walked::Failed(unreadable(&path, error))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn files_of_any_name_are_found_through_a_link_at_the_root_and_others_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("d/empty")).unwrap();
        let odd = Path::new(OsStr::from_bytes(b"d/\xff\n%"));
        fs::write(root.join(odd), "abc").unwrap();
        fs::write(root.join("f.longhaul-part"), "").unwrap();
        fs::create_dir_all(root.join(".longhaul-0123456789abcdef/3-worker")).unwrap();
        symlink("d", root.join("link")).unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        symlink("root", dir.path().join("to-root")).unwrap();
        for root in [root, dir.path().join("to-root")] {
            let (mut directories, mut files, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
            for walked in LocalWalk::new(&root, &Cancel::new()).unwrap() {
                match walked {
                    Walked::File(LocalEntry::Directory(below)) => directories.push(below),
                    Walked::File(LocalEntry::File(file)) => files.push(file),
                    Walked::Skipped { what, why } => skipped.push((what, why)),
                    Walked::Failed(error) => panic!("{error:?}"),
                }
            }
            directories.sort();
            skipped.sort();
            assert_eq!(directories, ["", "d", "d/empty"].map(PathBuf::from));
            let [file] = &files[..] else { panic!("{files:?}") };
            assert_eq!((&*file.below, &file.path, file.size), (odd, &root.join(odd), Bytes::new(3)));
            let whys: Vec<_> = skipped.iter().map(|(_, why)| *why).collect();
            let expected = ["a plan's", "partial file", "symbolic link", "neither a file"];
            assert!(
                whys.len() == 4 && whys.iter().zip(expected).all(|(why, word)| why.contains(word)),
                "{whys:?}"
            );
        }
        assert!(LocalWalk::new(&dir.path().join("none"), &Cancel::new()).is_err());
    }

    #[test]
    fn directory_that_is_skipped_or_cancelled_yields_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "").unwrap();
        let cancel = Cancel::new();
        let mut walk = LocalWalk::new(dir.path(), &cancel).unwrap();
        let is_directory = |walked| matches!(walked, Some(Walked::File(LocalEntry::Directory(_))));
        assert!(is_directory(walk.next()) && is_directory(walk.next()));
        walk.skip_directory();
        assert!(walk.next().is_none());
        let mut walk = LocalWalk::new(dir.path(), &cancel).unwrap();
        cancel.cancel();
        assert!(walk.next().is_none());
    }
}
