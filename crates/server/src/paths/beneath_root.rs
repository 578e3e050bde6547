//! The served directory; openat2(2) confines names to it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_engine::send::SourceFile;
use longhaul_engine::sink::directory::Directory;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::error::not_served;
use crate::paths::file_state::CHECK_INTERVAL;

/// The open directory; no name and no link is resolved to a place outside it.
pub(crate) struct Root {
    dir: OwnedFd,
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// The directory of this process's descriptors, /proc/self/fd.
    descriptors: OwnedFd,
}

/// What has the path of the served directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtPath {
    Served,
    Another,
    Nothing,
}

/// The file or directory that a name denotes.
pub(crate) enum Found {
    /// A regular file.
    File(Arc<SourceFile>),
    /// A directory.
    Directory(File),
}

impl Root {
    /// Opens the directory and checks that the kernel supports openat2(2) and /proc.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let error = |errno: Errno| not_served(path, &errno.into());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(error)?;
        let found = rustix::fs::fstat(&dir).map_err(error)?;
        let no_proc = |errno: Errno| {
            let why = format!("/proc/self/fd cannot be used ({}); mount /proc here", io::Error::from(errno));
            Failure::new(FailureKind::Host, format!("cannot serve {}: {why}", path.display()))
        };
        let descriptors = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map_err(no_proc)?;
        let identity = (found.st_dev, found.st_ino);
        let root = Self { dir, path: path.to_owned(), identity, descriptors };
        let looked = root.beneath(Path::new(".")).map_err(|errno| no_openat2(path, errno))?;
        root.reopen(&looked).map_err(no_proc)?;
        Ok(root)
    }

    /// Opens the file or directory at `names`, the path's components below the root.
    ///
    /// Other types count as missing and are never opened: opening a FIFO or a device has side
    /// effects. Follows symbolic links that stay below the root where `follow` is set; else a path
    /// through one is ELOOP.
    pub(crate) fn find(&self, names: &[Vec<u8>], follow: bool) -> io::Result<Found> {
        let below = join(names);
        let looked = if follow { self.beneath(&below)? } else { self.without_links(&below)? };
        self.open_found(looked, below)
    }

    /// Opens the file or directory at `names` where all of them are in the kernel's cache, without
    /// links; `None` where they are not.
    pub(crate) fn find_cached(&self, names: &[Vec<u8>]) -> Option<Found> {
        let below = join(names);
        let looked = self.resolve(&below, ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED).ok()?;
        self.open_found(looked, below).ok()
    }

    fn open_found(&self, looked: OwnedFd, below: PathBuf) -> io::Result<Found> {
        let looked = File::from(looked);
        let metadata = looked.metadata()?;
        if metadata.is_file() {
            let (file, path) = (File::from(self.reopen(&looked)?), self.path.join(below));
            let may_grow = is_being_written(&metadata, SystemTime::now());
            return Ok(Found::File(Arc::new(SourceFile::described(file, path, metadata, may_grow))));
        }
        match metadata.is_dir() {
            true => Ok(Found::Directory(File::from(self.reopen(&looked)?))),
            false => Err(Errno::NOENT.into()),
        }
    }

    /// Returns whether the path `names` leads through a symbolic link.
    pub(crate) fn has_link(&self, names: &[Vec<u8>]) -> bool {
        matches!(self.without_links(&join(names)), Err(Errno::LOOP))
    }

    /// Opens the file or directory at `names` with O_PATH: for its metadata only.
    pub(crate) fn look(&self, names: &[Vec<u8>]) -> io::Result<File> {
        Ok(File::from(self.beneath(&join(names))?))
    }

    /// Opens the directory at `names`, for creating files in it.
    pub(crate) fn directory(&self, names: &[Vec<u8>]) -> io::Result<Directory> {
        let below = join(names);
        let looked = self.beneath(&below)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&looked)?.st_mode) {
            FileType::Directory => Ok(Directory::from_fd(looked, self.path_of(names))),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Returns the directory's path as configured.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Logs each time that something else gets the directory's path, until the task is aborted.
    ///
    /// The directory of the start is served on: threads that are confined to it can open no other.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut before = AtPath::Served;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let root = Arc::clone(&self);
            let found = tokio::task::spawn_blocking(move || root.at_path()).await;
            let Ok(Some(now)) = found else { continue };
            let path = self.path.display();
            match now {
                _ if now == before => {}
                AtPath::Served => tracing::info!(%path, "the served directory has its path again"),
                AtPath::Another => tracing::warn!(
                    %path,
                    "another directory has this path now; the earlier one is served on until the server is started again"
                ),
                AtPath::Nothing => {
                    tracing::warn!(%path, "the served directory was moved or removed; it is served on");
                }
            }
            before = now;
        }
    }

    /// Looks what has the directory's path; `None` where that cannot be found out.
    fn at_path(&self) -> Option<AtPath> {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Some(AtPath::Served),
            Ok(_) => Some(AtPath::Another),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(AtPath::Nothing),
            Err(_) => None,
        }
    }

    /// Opens an O_PATH descriptor's file for reading: the same inode, even if its name denotes
    /// another one by now.
    fn reopen(&self, looked: impl AsFd) -> Result<OwnedFd, Errno> {
        let number = DecInt::from_fd(looked);
        rustix::fs::openat(&self.descriptors, number, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    fn path_of(&self, names: &[Vec<u8>]) -> PathBuf {
        // `join` would show the root itself as `root/.`.
        let mut path = self.path.clone();
        path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
        path
    }

    fn beneath(&self, below: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(below, ResolveFlags::NO_MAGICLINKS)
    }

    fn without_links(&self, below: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(below, ResolveFlags::NO_SYMLINKS)
    }

    fn resolve(&self, below: &Path, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | resolve;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let open = || rustix::fs::openat2(&self.dir, below, flags, Mode::empty(), resolve);
        if resolve.contains(ResolveFlags::CACHED) {
            return open();
        }
        // EAGAIN: a rename raced with the resolution of ".." in a link; openat2(2) says to retry.
        (0..8)
            .map(|_| open())
            .find(|opened| !matches!(opened, Err(Errno::AGAIN | Errno::INTR)))
            .unwrap_or_else(open)
    }
}

/// Returns whether a file was changed so recently that it may be a log or a recording, which grows
/// on. What is written into an older file is another version of it.
fn is_being_written(metadata: &Metadata, now: SystemTime) -> bool {
    const RECENT: Duration = Duration::from_secs(10 * 60);
    let changed = u64::try_from(metadata.ctime()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(changed) + RECENT > now
}

/// Distinguishes a kernel or sandbox without openat2 from a directory that cannot be opened.
fn no_openat2(path: &Path, errno: Errno) -> Failure {
    match errno {
        Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG => {
            let error = io::Error::from(errno);
            let why = format!("openat2 is missing or forbidden ({error})");
            let remedy = "it needs Linux 5.6 and a sandbox that permits it";
            Failure::new(FailureKind::Host, format!("cannot serve {}: {why}; {remedy}", path.display()))
        }
        _ => not_served(path, &errno.into()),
    }
}

fn join(names: &[Vec<u8>]) -> PathBuf {
    if names.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsString::from_vec(names.join(&b'/'))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_error_is_not_reported_as_missing_openat2() {
        let why = |errno| no_openat2(Path::new("dir"), errno);
        assert_eq!(
            [Errno::ACCESS, Errno::NOSYS].map(|errno| why(errno).kind),
            [FailureKind::Denied, FailureKind::Host]
        );
    }
}
