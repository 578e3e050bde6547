//! The state of a file, which every change of it changes.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often files that are read again when they change are compared with what is in use: a change
/// is in force before its notice can be read.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Device, inode, size, and times of modification and of the last change of a file's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// Looks at a file; `None` for one that cannot be looked at.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        Some(Self::of(&std::fs::metadata(path).ok()?))
    }

    pub(crate) fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
