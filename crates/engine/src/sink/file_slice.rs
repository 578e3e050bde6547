//! A range of a file that several transfers, also of several hosts, write at the same time: each another range.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::identity::Identity;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::directory::Directory;
use super::output_error::OutputError;
use super::part_file::PartFile;

/// The suffix of the symbolic link that holds the identity of the source.
const IDENTITY: &str = ".identity";
/// The longest text of that link; a longer identity is replaced by its digest. XFS takes 1,024 bytes, others 4,095.
const MAX_IDENTITY: usize = 1000;

/// A range of a file of known size. The transfer ends with the range synced; the file keeps its name, whichever ranges
/// of it are there.
///
/// The first transfer into the file fixes the identity of its source, by a symbolic link beside the file. Ones of
/// another identity fail before they write, so that two writers of a range write equal bytes.
#[derive(Debug, Clone)]
pub struct FileSlice {
    /// The directory that the path cannot leave.
    pub root: Arc<Directory>,
    /// The path of the file below `root`.
    pub path: PathBuf,
    /// The size of the file.
    pub size: Bytes,
    /// The range, which is not empty; other transfers share no page with it.
    pub range: ByteRange,
    /// Whether the file is made if it is missing. Once a range of it is done, a missing file is an error: the range would
    /// be one of zeros.
    pub creates: bool,
}

impl FileSlice {
    fn directory(&self) -> io::Result<Directory> {
        self.root.beneath(self.path.parent().unwrap_or(Path::new("")))
    }

    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn identity_name(&self) -> OsString {
        let mut name = self.name().to_owned();
        name.push(IDENTITY);
        name
    }

    fn shown_path(&self) -> PathBuf {
        self.root.path_of(self.path.as_os_str())
    }

    /// Opens the file; the first transfer makes it.
    pub(super) fn open(&self) -> Result<PartFile, OutputError> {
        let open = || {
            let directory = self.directory()?;
            let file = match directory.open_file(self.name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // The identity is fixed after the file was made.
                    if !self.creates || directory.look(&self.identity_name(), false).is_ok() {
                        let message = "ranges of it were written, and it is missing: make the plan anew";
                        return Err(io::Error::new(io::ErrorKind::NotFound, message));
                    }
                    directory.open_or_create(self.name())?
                }
                opened => opened?,
            };
            let found = file.metadata()?;
            if !found.is_file() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if found.len() == 0 {
                file.set_len(self.size.get())?;
            }
            Ok(file)
        };
        let path = self.shown_path();
        let file = open().map_err(|source| OutputError::Create { path: path.clone(), source })?;
        Ok(PartFile::of_slice(file, path))
    }

    /// Fixes the identity of the source, unless another transfer has; returns that one if it differs. Then the names of the
    /// file and of its identity are durable, whichever transfer has made them.
    pub(crate) fn fix_identity(&self, identity: &Identity) -> Result<Option<String>, OutputError> {
        let fix = || {
            let (directory, name) = (self.directory()?, self.identity_name());
            let mut text = serde_json::to_string(identity)?;
            if text.len() > MAX_IDENTITY {
                text = blake3::hash(text.as_bytes()).to_hex().to_string();
            }
            match directory.make_link(&text, &name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => directory.sync()?,
            }
            let fixed = directory.read_link(&name)?;
            let fixed = fixed.as_os_str().as_bytes();
            let shown = || {
                serde_json::from_slice(fixed)
                    .map_or_else(|_| "another one".to_owned(), |fixed: Identity| fixed.to_string())
            };
            Ok((fixed != text.as_bytes()).then(shown))
        };
        let path = || self.root.path_of(self.path.with_file_name(self.identity_name()).as_os_str());
        fix().map_err(|source| OutputError::Create { path: path(), source })
    }

    /// Returns all ranges of the file but this one.
    pub(crate) fn others(&self) -> RangeSet {
        let mut others: RangeSet = std::iter::once(ByteRange::with_len(0, self.size)).collect();
        others.remove(self.range);
        others
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longhaul_core::proto::http::ETag;

    use super::*;

    fn slice_in(directory: &Path, creates: bool) -> FileSlice {
        let root = Arc::new(Directory::open(directory).unwrap());
        FileSlice { root, path: "f".into(), size: Bytes::new(9), range: ByteRange::new(0, 4), creates }
    }

    #[test]
    fn missing_file_is_made_only_before_ranges_of_it_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let missing = |creates| slice_in(dir.path(), creates).open().unwrap_err().to_string();
        assert!(missing(false).contains("make the plan anew"));
        assert!(!dir.path().join("f").exists());
        let slice = slice_in(dir.path(), true);
        assert!(slice.open().is_ok() && slice_in(dir.path(), false).open().is_ok());
        assert_eq!(fs::metadata(dir.path().join("f")).unwrap().len(), 9);
        assert_eq!(slice.fix_identity(&Identity::AssumedUnchanged).unwrap(), None);
        fs::remove_file(dir.path().join("f")).unwrap();
        assert!(missing(true).contains("make the plan anew"));
    }

    #[test]
    fn identity_is_fixed_once_however_long_it_is() {
        let tag = |text: &str| Identity::ETag(ETag::parse(&format!("\"{text}\"")).unwrap());
        for (first, other, shown) in [
            (tag("v1"), tag("v2"), "\"v1\""),
            (tag(&"1".repeat(9000)), tag(&"2".repeat(9000)), "another one"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let slice = slice_in(dir.path(), true);
            assert_eq!(slice.fix_identity(&first).unwrap(), None);
            assert_eq!(slice.fix_identity(&first).unwrap(), None);
            assert_eq!(slice.fix_identity(&other).unwrap().as_deref(), Some(shown));
        }
    }
}
