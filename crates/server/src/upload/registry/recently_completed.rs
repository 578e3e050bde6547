//! Complete uploads, for clients that lost the reply to their completing request and ask again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::UploadId;
use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use rustix::fs::{Stat, fstat};

/// How many are kept. A client whose upload was dropped sends the file again, if its token may
/// replace it.
const MAX_COMPLETED: usize = 1024;

/// The latest complete uploads.
#[derive(Default)]
pub(crate) struct CompletedUploads(Mutex<VecDeque<CompletedUpload>>);

/// An upload whose file has its final name, or is about to get it.
#[derive(Debug, Clone)]
pub(crate) struct CompletedUpload {
    pub(crate) id: UploadId,
    pub(crate) file: FileVersion,
    /// The digest that was compared.
    pub(crate) digest: Option<Checksum>,
}

/// A file while nothing is written to it: device and inode, size, and time of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    inode: (u64, u64),
    pub(crate) size: Bytes,
    modified: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(fstat(file)?.into())
    }
}

impl From<Stat> for FileVersion {
    fn from(stat: Stat) -> Self {
        Self {
            inode: (stat.st_dev, stat.st_ino),
            size: Bytes::new(u64::try_from(stat.st_size).unwrap_or(0)),
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        }
    }
}

impl CompletedUploads {
    /// Adds an upload in place of an earlier one of its ID. It may be added before its file has its
    /// name.
    pub(crate) fn add(&self, upload: CompletedUpload) {
        let mut uploads = self.0.lock();
        uploads.retain(|kept| kept.id != upload.id);
        if uploads.len() == MAX_COMPLETED {
            uploads.pop_front();
        }
        uploads.push_back(upload);
    }

    /// Returns the upload that wrote this file, unless the file has changed since.
    pub(crate) fn find(&self, id: UploadId, file: FileVersion) -> Option<CompletedUpload> {
        self.0.lock().iter().find(|upload| upload.id == id && upload.file == file).cloned()
    }

    /// Drops an upload whose file gets no name, or whose ID is used again.
    pub(crate) fn forget(&self, id: UploadId) {
        self.0.lock().retain(|kept| kept.id != id);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn upload_is_known_until_its_file_changes_or_too_many_have_followed() {
        let dir = tempfile::tempdir().unwrap();
        let version = |name: &str, content: &str, seconds| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            FileVersion::of(file).unwrap()
        };
        let (uploads, id, file) = (CompletedUploads::default(), UploadId::new([1; 16]), version("f", "a", 1));
        uploads.add(CompletedUpload { id, file, digest: None });
        assert!(uploads.find(id, file).is_some() && uploads.find(UploadId::new([2; 16]), file).is_none());
        for other in [version("f", "ab", 1), version("f", "b", 2), version("g", "a", 1)] {
            assert!(uploads.find(id, other).is_none(), "{other:?}");
        }
        assert!(uploads.find(id, version("f", "a", 1)).is_some());
        uploads.forget(id);
        assert!(uploads.find(id, file).is_none());
        let (uploads, file) =
            (CompletedUploads::default(), FileVersion::of(File::open("/").unwrap()).unwrap());
        let id = |number: usize| UploadId::new((number as u128).to_le_bytes());
        for number in 0..=MAX_COMPLETED {
            uploads.add(CompletedUpload { id: id(number), file, digest: None });
        }
        assert_eq!(uploads.0.lock().len(), MAX_COMPLETED);
        assert!(uploads.find(id(0), file).is_none() && uploads.find(id(MAX_COMPLETED), file).is_some());
    }
}
