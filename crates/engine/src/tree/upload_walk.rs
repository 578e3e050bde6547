//! The walk of a local directory that is uploaded into a directory of a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::proto::http::{HeaderField, UPLOAD_MTIME};
use longhaul_core::units::Bytes;
use url::Url;

use super::local_walk::{LocalEntry, LocalFile, LocalWalk, check_directory};
use super::upload_target::UploadTarget;
use super::{WalkError, Walked};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::job::TransferOptions;
use crate::source::http::SafeUrl;

/// A local file and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadFile {
    /// The local path.
    pub path: PathBuf,
    /// The URL on the server.
    pub url: Url,
    /// The file's size.
    pub size: Bytes,
    /// The modification time in seconds since 1970; `None` if earlier.
    pub modified: Option<u64>,
    /// Whether the file's remote directory was just created, and so cannot contain the file.
    pub is_new: bool,
}

impl UploadFile {
    /// Returns the header that sets the file's time on servers that support it.
    pub fn time_header(&self) -> Option<HeaderField> {
        HeaderField::new(UPLOAD_MTIME, &self.modified?.to_string()).ok()
    }
}

/// The walk of a local directory.
pub struct UploadWalk {
    target: Arc<UploadTarget>,
    cancel: Cancel,
    entries: LocalWalk,
    /// Whether each directory from the root to the current one was just created.
    above: Vec<bool>,
}

impl Engine {
    /// Begins the walk of the local directory `root`, whose directories are made below `url` before
    /// their entries are returned; returns also what receives its files. Sends no request. The walk
    /// ends early once `cancel` is set.
    ///
    /// Symbolic links are not followed.
    ///
    /// # Errors
    /// [`Failure`] if the directory cannot be read, or the URL or the client's settings are
    /// invalid.
    pub fn upload_walk(
        &self,
        root: &Path,
        url: &Url,
        options: &TransferOptions,
        cancel: &Cancel,
    ) -> Result<(UploadWalk, Arc<UploadTarget>), Failure> {
        check_directory(root)?;
        let target = Arc::new(self.upload_target(url, options)?);
        let (entries, cancel) = (LocalWalk::of_directory(root, cancel), cancel.clone());
        Ok((UploadWalk { target: Arc::clone(&target), cancel, entries, above: Vec::new() }, target))
    }
}

impl UploadWalk {
    /// Creates a directory on the server.
    fn enter(&mut self, below: &Path) -> Result<(), Failure> {
        self.above.truncate(below.iter().count());
        self.above.push(self.target.make(below, &self.cancel)?);
        Ok(())
    }

    fn file(&mut self, file: LocalFile) -> UploadFile {
        let LocalFile { path, below, size, modified, .. } = file;
        self.above.truncate(below.iter().count());
        let is_new = self.above.last().is_some_and(|is_new| *is_new);
        UploadFile { path, url: self.target.url_of(&below), size, modified, is_new }
    }
}

impl Iterator for UploadWalk {
    type Item = Walked<UploadFile>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let below = match self.entries.next()? {
                Walked::File(LocalEntry::File(file)) => return Some(Walked::File(self.file(file))),
                Walked::File(LocalEntry::Directory(below)) => below,
                Walked::Failed(error) => return Some(Walked::Failed(error)),
                Walked::Skipped { what, why } => return Some(Walked::Skipped { what, why }),
            };
            if let Err(failure) = self.enter(&below) {
                self.entries.skip_directory();
                if !self.cancel.is_cancelled() {
                    let what = SafeUrl::of(&self.target.url_of(&below)).to_string();
                    return Some(Walked::Failed(WalkError { what, failure }));
                }
            }
        }
    }
}
