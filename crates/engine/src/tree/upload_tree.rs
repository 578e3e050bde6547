//! A local directory that is uploaded into a directory of a server.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{HeaderField, UPLOAD_MTIME};
use longhaul_core::units::Bytes;
use url::Url;
use walkdir::{DirEntry, IntoIter, WalkDir};

use super::{WalkError, Walked};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::job::TransferOptions;
use crate::sink::directory::Directory;
use crate::sink::part_names::is_partial;
use crate::source::http::SafeUrl;
use crate::source::listing::{RemoteDirectories, child_url};

/// A local directory and its destination on a server.
pub struct UploadTree {
    remote: Arc<dyn RemoteDirectories>,
    root: PathBuf,
    /// Whether the server sets an uploaded file's modification time; requested once.
    keeps_times: OnceLock<bool>,
    url: Url,
}

/// A local file and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
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

impl Engine {
    /// Opens the local directory `root` for upload into `url`. Sends no request.
    ///
    /// # Errors
    /// [`Failure`] if the directory cannot be read, or the URL or the client's settings are invalid.
    pub fn upload_tree(
        &self,
        root: &Path,
        url: &Url,
        options: &TransferOptions,
    ) -> Result<UploadTree, Failure> {
        let failed = |error| {
            let message = format!("cannot read the directory {}: {error}", root.display());
            Failure::new(FailureKind::NotFound, message)
        };
        if !std::fs::metadata(root).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let spool = Arc::new(Directory::open(root).map_err(failed)?);
        let remote = self.remote_directories(url, options, spool)?;
        let mut url = url.clone();
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(UploadTree { remote, root: root.to_owned(), keeps_times: OnceLock::new(), url })
    }
}

impl UploadTree {
    /// Walks the directory; creates each directory on the server before returning its entries. Ends
    /// early once `cancel` is set.
    ///
    /// Symbolic links are not followed.
    pub fn walk(&self, cancel: &Cancel) -> UploadWalk {
        UploadWalk {
            remote: Arc::clone(&self.remote),
            cancel: cancel.clone(),
            root: self.url.clone(),
            entries: WalkDir::new(&self.root).into_iter(),
            above: Vec::new(),
        }
    }

    /// Returns whether the server already has a file of this size and time.
    ///
    /// If the server sets the time of upload instead, its file must not be older.
    pub fn is_unchanged(&self, file: &LocalFile, cancel: &Cancel) -> bool {
        let Some(modified) = file.modified.filter(|_| !file.is_new) else { return false };
        let Ok(there) = self.remote.look(&file.url, cancel) else { return false };
        let Some(time) = there.modified.and_then(seconds) else { return false };
        // Apache states no length for an empty file.
        let size = there.size.unwrap_or_default();
        let keeps_times = || *self.keeps_times.get_or_init(|| self.remote.keeps_times(&self.url, cancel));
        let same_time = time == modified || (time > modified && !keeps_times());
        size == file.size && same_time
    }
}

impl LocalFile {
    /// Returns the header that sets the file's time on servers that support it.
    pub fn time_header(&self) -> Option<HeaderField> {
        HeaderField::new(UPLOAD_MTIME, &self.modified?.to_string()).ok()
    }
}

fn seconds(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The walk of a local directory.
pub struct UploadWalk {
    remote: Arc<dyn RemoteDirectories>,
    cancel: Cancel,
    root: Url,
    entries: IntoIter,
    /// The directories from the root to the current one, and whether each was just created.
    above: Vec<(Url, bool)>,
}

impl UploadWalk {
    /// Creates a directory on the server.
    fn enter(&mut self, entry: &DirEntry) -> Result<(), WalkError> {
        let url = match self.above.last() {
            Some((above, _)) => child_url(above, entry.file_name().as_encoded_bytes(), true),
            None => self.root.clone(),
        };
        let is_new = match url.path() {
            "/" => Ok(false),
            _ => self.remote.make(&url, &self.cancel),
        };
        let is_new = is_new.map_err(|failure| {
            let what = SafeUrl::of(&url).to_string();
            let message = format!("cannot make the directory {what} on the server: {failure}");
            WalkError { what, failure: Failure::new(failure.kind, message) }
        })?;
        self.above.push((url, is_new));
        Ok(())
    }

    fn file(&self, entry: &DirEntry) -> Option<Walked<LocalFile>> {
        let (above, is_new) = self.above.last()?;
        let kind = entry.file_type();
        let name = entry.file_name().as_encoded_bytes();
        let skipped = |why| Some(Walked::Skipped { what: entry.path().display().to_string(), why });
        match kind {
            kind if kind.is_symlink() => skipped("it is a symbolic link"),
            kind if !kind.is_file() => skipped("it is neither a file nor a directory"),
            _ if is_partial(name) => skipped("it is a partial file of an unfinished transfer"),
            _ => Some(match entry.metadata() {
                Ok(metadata) => Walked::File(LocalFile {
                    path: entry.path().to_owned(),
                    url: child_url(above, name, false),
                    size: Bytes::new(metadata.len()),
                    modified: metadata.modified().ok().and_then(seconds),
                    is_new: *is_new,
                }),
                Err(error) => Walked::Failed(unreadable(entry.path(), error)),
            }),
        }
    }
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

impl Iterator for UploadWalk {
    type Item = Walked<LocalFile>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.cancel.is_cancelled() {
                return None;
            }
            let entry = match self.entries.next()? {
                Ok(entry) => entry,
                Err(error) => {
                    let path = error.path().map(Path::to_owned).unwrap_or_default();
                    return Some(Walked::Failed(unreadable(&path, error)));
                }
            };
            self.above.truncate(entry.depth());
            if !entry.file_type().is_dir() {
                return self.file(&entry);
            }
            if let Err(error) = self.enter(&entry) {
                self.entries.skip_current_dir();
                if !self.cancel.is_cancelled() {
                    return Some(Walked::Failed(error));
                }
            }
        }
    }
}
