//! The state of a file that is read again when it changes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often such files are compared with what is in use: a change is in force before its notice can be read.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Inode, size, and times of modification and of the last change of a file's attributes; `None` for one that cannot be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState(Option<[i128; 4]>);

impl FileState {
    /// Looks at a file.
    pub(crate) fn of(path: &Path) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self(std::fs::metadata(path).ok().map(|found| {
            [
                i128::from(found.ino()),
                i128::from(found.size()),
                nanoseconds(found.mtime(), found.mtime_nsec()),
                nanoseconds(found.ctime(), found.ctime_nsec()),
            ]
        }))
    }
}
