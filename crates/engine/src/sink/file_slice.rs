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
                // A file that is missing later was completed, and has its final name.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && directory.look(&self.identity_name(), false).is_err() =>
                {
                    let file = directory.open_or_create(self.name())?;
                    directory.sync()?;
                    file
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

    /// Fixes the identity of the source, unless another transfer has; returns the one that is fixed.
    pub(crate) fn fix_identity(&self, identity: &Identity) -> Result<Identity, OutputError> {
        let fix = || {
            let (directory, name) = (self.directory()?, self.identity_name());
            match directory.make_link(&serde_json::to_string(identity)?, &name) {
                Ok(()) => directory.sync()?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            let text = directory.read_link(&name)?;
            Ok(serde_json::from_slice(text.as_os_str().as_bytes())?)
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
