//! A file being sent, with detection of changes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::failure::{Cause, Failure, FailureKind};

use crate::input_file;
use crate::pending_steps::PendingSteps;
use crate::sink::directory::Directory;

/// A file open for sending, with its path.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    metadata: Metadata,
    may_grow: bool,
    steps: Option<Arc<PendingSteps>>,
}

/// The waits for the size of a file that grows: a write sets the file's time first.
const GROWTH_WAITS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(10)];

impl SourceFile {
    /// Opens a file; refuses anything but a file before a read can block.
    ///
    /// # Errors
    /// [`Failure`], of the kind [`FailureKind::Denied`] or [`FailureKind::NotFound`].
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::opened(input_file::open(path), path, FailureKind::NotFound)
    }

    /// Opens the file at `below` a directory as [`open`](Self::open) does, but follows symbolic
    /// links in `root` only.
    ///
    /// # Errors
    /// See [`open`](Self::open); [`FailureKind::Data`] for a link.
    pub fn open_beneath(root: &Path, below: &Path) -> Result<Self, Failure> {
        let open = || {
            let directory = Directory::open(root)?.beneath(below.parent().unwrap_or(Path::new("")))?;
            directory.open_to_read(below.file_name().ok_or(io::ErrorKind::InvalidInput)?)
        };
        Self::opened(open(), &root.join(below), FailureKind::Data)
    }

    /// Wraps what was opened at `path`; where something else stands in the place of a file or
    /// directory, the failure is `misplaced`.
    fn opened(file: io::Result<File>, path: &Path, misplaced: FailureKind) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::PermissionDenied => FailureKind::Denied,
                io::ErrorKind::InvalidInput | io::ErrorKind::NotADirectory => misplaced,
                _ => FailureKind::NotFound,
            };
            Failure::new(kind, format!("cannot open {}: {error}", path.display()))
        };
        let file = file.map_err(fail)?;
        let what = match file.metadata().map_err(fail)?.file_type() {
            kind if kind.is_file() => {
                let source = Self::new(file, path.to_owned()).map_err(fail)?;
                if !source.has_unstated_content() {
                    return Ok(source);
                }
                "a file of the kernel, which has content but states a size of 0; copy it to a regular file first"
            }
            kind if kind.is_dir() => "a directory; send it with all below it by -r",
            kind if kind.is_fifo() => "a pipe, and only files are sent",
            _ => "a device, and only files are sent",
        };
        let message = format!("cannot send {}: it is {what}", path.display());
        Err(Failure::new(FailureKind::NotFound, message))
    }

    /// Wraps an open file, with its current metadata. Fails if the kernel cannot read the metadata.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self::described(file, path, metadata, false))
    }

    /// Wraps an open file with `metadata` read just before. If it `may_grow`, bytes added to its
    /// end are no change: those that it had are sent.
    pub fn described(file: File, path: PathBuf, metadata: Metadata, may_grow: bool) -> Self {
        Self { file, path, metadata, may_grow, steps: None }
    }

    /// Shows in `steps` when the file is read.
    #[must_use]
    pub fn watched(self, steps: &Arc<PendingSteps>) -> Self {
        Self { steps: Some(Arc::clone(steps)), ..self }
    }

    /// Executes a step that reads the file.
    pub(crate) fn during<T>(&self, step: impl FnOnce() -> T) -> T {
        match &self.steps {
            Some(steps) => steps.during(&self.path, step),
            None => step(),
        }
    }

    /// Returns the file; read by position only, because several senders share it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path under which the file was opened.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns the metadata at the time of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Fails if the file was written to since it was opened, except for its growth if that is
    /// expected.
    ///
    /// # Errors
    /// [`Failure`], also if its metadata cannot be read.
    pub fn check(&self) -> Result<(), Failure> {
        for wait in GROWTH_WAITS {
            std::thread::sleep(wait);
            let now = self.during(|| self.file.metadata()).map_err(|error| self.unreadable(&error))?;
            let has_grown = self.may_grow && now.size() > self.metadata.size();
            if has_grown || self.is_same(&now) {
                return Ok(());
            }
            if !self.may_grow {
                break;
            }
        }
        Err(self.changed())
    }

    /// Returns whether a file of size 0 has content, as in /proc.
    fn has_unstated_content(&self) -> bool {
        let is_read = |file: &File| file.read_at(&mut [0], 0).is_ok_and(|read| read > 0);
        self.metadata.len() == 0 && is_read(&self.file) && self.check().is_ok()
    }

    /// Creates the failure of a file that cannot be read. Its cause tells it from a full disk of a
    /// server: other files may be readable.
    pub fn unreadable(&self, error: &io::Error) -> Failure {
        let message = format!("cannot read {}: {error}", self.path.display());
        Failure::new(FailureKind::Disk, message).caused_by(Cause::OtherFile)
    }

    /// Creates the failure of a file that changed while it was sent.
    pub(crate) fn changed(&self) -> Failure {
        let path = self.path.display();
        let message = format!(
            "{path} changed while it was sent; run again once no program writes to it, and replace served files by renaming"
        );
        Failure::new(FailureKind::Data, message)
    }

    /// Compares the metadata that a write changes.
    ///
    /// A program can set mtime back, but not ctime. However, unlinking, and so replacement by a
    /// rename, also changes ctime without changing the content. Therefore ctime is compared only
    /// while the number of links is unchanged.
    fn is_same(&self, now: &Metadata) -> bool {
        let content = |m: &Metadata| (m.size(), m.mtime(), m.mtime_nsec());
        let change = |m: &Metadata| (m.ctime(), m.ctime_nsec());
        let then = &self.metadata;
        content(then) == content(now) && (then.nlink() != now.nlink() || change(then) == change(now))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::FileTimes;

    /// Writes `bytes` to the start of the file until the kernel's timestamp clock, which advances
    /// every few milliseconds, shows a change.
    pub(crate) fn overwrite(file: &File, bytes: &[u8]) {
        let changed = || file.metadata().map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
        let before = changed();
        while changed() == before {
            file.write_all_at(bytes, 0).unwrap();
        }
    }

    #[test]
    fn symbolic_links_are_followed_above_the_root_of_a_walk_only() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("real/d")).unwrap();
        std::fs::write(at("real/d/f"), "f").unwrap();
        for (to, link) in [("real", "root"), ("d", "real/e"), ("d/f", "real/g"), ("none", "real/dangling")] {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        for (below, expected) in [
            ("d/f", None),
            ("e/f", Some(FailureKind::Data)),
            ("g", Some(FailureKind::Data)),
            ("dangling", Some(FailureKind::Data)),
            ("d/../d/f", Some(FailureKind::Data)),
            ("d", Some(FailureKind::NotFound)),
            ("d/none", Some(FailureKind::NotFound)),
        ] {
            let opened = SourceFile::open_beneath(&at("root"), Path::new(below));
            assert_eq!(opened.as_ref().err().map(|failure| failure.kind), expected, "{below}: {opened:?}");
        }
    }

    #[test]
    fn only_writing_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let open = || {
            std::fs::write(&path, "old").unwrap();
            SourceFile::new(File::open(&path).unwrap(), path.clone()).unwrap()
        };
        let source = open();
        source.check().unwrap();
        std::fs::write(dir.path().join("new"), "new").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        source.check().unwrap();

        let grown = |may_grow| {
            let mut file = open();
            file.may_grow = may_grow;
            File::options().append(true).open(&path).unwrap().write_all_at(b"more", 3).unwrap();
            file.check().is_ok()
        };
        assert_eq!([grown(true), grown(false)], [true, false]);
        let source = open();
        let written = source.metadata().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        overwrite(&file, b"new");
        file.set_times(FileTimes::new().set_modified(written)).unwrap();
        assert_eq!(source.check().unwrap_err().kind, FailureKind::Data);
    }
}
