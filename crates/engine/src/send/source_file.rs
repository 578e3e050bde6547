//! A file being sent, and how to notice that it changes meanwhile.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::SendError;

/// A file open for sending, and the path to name it by.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    metadata: Metadata,
}

impl SourceFile {
    /// Takes an open file, found at `path`, as it is now. Fails where the kernel cannot describe it.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { file, path, metadata })
    }

    /// Takes an open file, found at `path`, as it was when `metadata` was read, at most a moment ago.
    pub fn described(file: File, path: PathBuf, metadata: Metadata) -> Self {
        Self { file, path, metadata }
    }

    /// Returns the file; read it by position only, so that many senders can share it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns where it was found.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns what the file was like when it was opened.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Makes sure that nobody has written to the file since it was opened.
    pub(crate) fn check(&self) -> Result<(), SendError> {
        let now =
            self.file.metadata().map_err(|source| SendError::Read { path: self.path.clone(), source })?;
        if self.is_same(&now) { Ok(()) } else { Err(SendError::Changed { path: self.path.clone() }) }
    }

    /// Compares what a write changes.
    ///
    /// The time of modification can be set back, that of change cannot. But unlinking, and so
    /// replacing by a rename, sets it too and leaves the content alone: it only counts while the
    /// number of links stays.
    fn is_same(&self, now: &Metadata) -> bool {
        let content = |m: &Metadata| (m.size(), m.mtime(), m.mtime_nsec());
        let change = |m: &Metadata| (m.ctime(), m.ctime_nsec());
        let then = &self.metadata;
        content(then) == content(now) && (then.nlink() != now.nlink() || change(then) == change(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::time::Duration;

    #[test]
    fn only_writing_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let open = || {
            std::fs::write(&path, "old").unwrap();
            // The kernel's clock for files ticks every few milliseconds.
            std::thread::sleep(Duration::from_millis(20));
            SourceFile::new(File::open(&path).unwrap(), path.clone()).unwrap()
        };
        let source = open();
        source.check().unwrap();
        std::fs::write(dir.path().join("new"), "new").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        source.check().unwrap();

        let source = open();
        let written = source.metadata().modified().unwrap();
        std::fs::write(&path, "new").unwrap();
        let times = FileTimes::new().set_modified(written);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        assert!(matches!(source.check(), Err(SendError::Changed { .. })));
    }
}
