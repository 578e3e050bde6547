//! A directory of a server that is downloaded into a local directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use rustix::fs::{FileType, Stat};
use url::Url;

use super::remote_walk::RemoteWalk;
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::job::{Expected, Job, JobOptions, TransferOptions};
use crate::sink::directory::Directory;
use crate::sink::output::Output;
use crate::sink::part_file::remove_stray_journal;
use crate::source::gridftp::FtpLister;
use crate::source::http::HttpLister;
use crate::source::listing::{FileFacts, ListerOptions, RemoteDirectories};

/// A directory of a server and its local destination.
pub struct RemoteTree {
    url: Url,
    lister: Arc<dyn RemoteDirectories>,
    target: Arc<Directory>,
}

/// A file from a listing, with a path that is safe below the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// The URL.
    pub url: Url,
    /// The path below the destination.
    pub path: PathBuf,
    /// The size, if listed.
    pub size: Option<Bytes>,
    /// The modification time, if listed.
    pub modified: Option<SystemTime>,
}

impl Engine {
    /// Opens the directory at `url` for download into `target`, which is created if missing. Sends
    /// no request.
    ///
    /// # Errors
    /// [`Failure`] if the directory cannot be created, or the URL or the client's settings are
    /// invalid.
    pub fn remote_tree(
        &self,
        url: &Url,
        target: &Path,
        options: &TransferOptions,
    ) -> Result<RemoteTree, Failure> {
        let opened = std::fs::create_dir_all(target).and_then(|()| Directory::open(target));
        let opened = opened.map_err(|error| {
            let message = format!("cannot make the directory {}: {error}", target.display());
            Failure::new(FailureKind::CannotCreate, message)
        });
        let target = Arc::new(opened?);
        let lister = self.remote_directories(url, options, Arc::clone(&target))?;
        Ok(RemoteTree { url: url.clone(), lister, target })
    }

    /// Chooses the protocol by the URL's scheme; long listings are spooled to the file system of
    /// `spool`.
    pub(super) fn remote_directories(
        &self,
        url: &Url,
        options: &TransferOptions,
        spool: Arc<Directory>,
    ) -> Result<Arc<dyn RemoteDirectories>, Failure> {
        let (config, retries, stall) = (options.client.clone(), options.retries, options.stall);
        let options = ListerOptions { config, retries, stall, spool };
        Ok(match url.scheme() {
            "ftp" | "ftps" | "gsiftp" => Arc::new(FtpLister::new(&self.sessions, options)),
            _ => Arc::new(HttpLister::new(&self.clients, url, options)?),
        })
    }
}

impl RemoteTree {
    /// Walks the tree; returns a directory before its entries. Ends early once `cancel` is set.
    pub fn walk(&self, cancel: &Cancel) -> RemoteWalk {
        RemoteWalk::new(Arc::clone(&self.lister), &self.url, Arc::clone(&self.target), cancel.clone())
    }

    /// Requests size and time of the file that is at the tree's URL itself, to be fetched to
    /// `path`.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    pub fn look(&self, path: PathBuf, cancel: &Cancel) -> Result<ListedFile, Failure> {
        let FileFacts { size, modified } = self.lister.look(&self.url, cancel)?;
        Ok(ListedFile { url: self.url.clone(), path, size, modified })
    }

    /// Requests size and time of a file of the tree if its listing lacks one of them.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    pub fn complete(&self, file: &mut ListedFile, cancel: &Cancel) -> Result<(), Failure> {
        if file.size.is_none() || file.modified.is_none() {
            let found = self.lister.look(&file.url, cancel)?;
            (file.size, file.modified) = (found.size.or(file.size), found.modified.or(file.modified));
        }
        Ok(())
    }

    /// Creates the job that fetches a file of the tree.
    pub fn job(&self, file: &ListedFile, options: JobOptions) -> Job {
        Job {
            urls: vec![file.url.clone()],
            output: Output::Beneath { root: Arc::clone(&self.target), path: file.path.clone() },
            expected: Expected { modified: file.modified, is_listed: true, ..Expected::default() },
            options,
        }
    }

    /// Returns the local path and size of a file if its size and time equal the server's.
    ///
    /// Requests size and time if the listing has none; without them, the file is fetched.
    pub fn unchanged(&self, file: &ListedFile, cancel: &Cancel) -> Option<(PathBuf, Bytes)> {
        let directory = self.target.beneath(file.path.parent().unwrap_or(Path::new(""))).ok()?;
        let name = file.path.file_name()?;
        let is_file = |there: &Stat| FileType::from_raw_mode(there.st_mode).is_file();
        let there = directory.look(name, false).ok().filter(is_file)?;
        let mut facts = FileFacts { size: file.size, modified: file.modified };
        if facts.size.is_none() || facts.modified.is_none() {
            facts = self.lister.look(&file.url, cancel).unwrap_or_default();
        }
        let seconds = facts.modified?.duration_since(UNIX_EPOCH).ok()?.as_secs();
        // Apache states no length for an empty file.
        let size = facts.size.unwrap_or_default();
        let same_size = u64::try_from(there.st_size) == Ok(size.get());
        if !same_size || u64::try_from(there.st_mtime) != Ok(seconds) {
            return None;
        }
        remove_stray_journal(&directory, name);
        Some((self.target.path_of(file.path.as_os_str()), size))
    }
}
