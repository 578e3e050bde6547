//! The directory that is served: names are found below it or not at all.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_engine::send::SourceFile;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::ServeError;

/// An open directory that no name leads out of.
pub(crate) struct Root {
    dir: OwnedFd,
    path: PathBuf,
}

/// What a name led to.
pub(crate) enum Found {
    /// A regular file.
    File(Arc<SourceFile>),
    /// A directory.
    Directory(File),
}

impl Root {
    /// Opens the directory and makes sure that the kernel can confine names to it.
    pub(crate) fn open(path: &Path) -> Result<Self, ServeError> {
        let error = |errno: Errno| ServeError::Root { path: path.to_owned(), source: errno.into() };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(error)?;
        let root = Self { dir, path: path.to_owned() };
        root.beneath(Path::new("."), OFlags::PATH)
            .map_err(|source| ServeError::NoOpenat2 { path: path.to_owned(), source: source.into() })?;
        Ok(root)
    }

    /// Opens what `names` lead to from the root down.
    ///
    /// What is neither a regular file nor a directory counts as missing; opening never waits for a
    /// FIFO's other end. Symbolic links are followed while they stay below the root.
    pub(crate) fn find(&self, names: &[Vec<u8>]) -> io::Result<Found> {
        let below = join(names);
        let fd = self.beneath(&below, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let file = File::from(fd);
        let kind = file.metadata()?.file_type();
        if kind.is_file() {
            Ok(Found::File(Arc::new(SourceFile::new(file, self.path.join(below))?)))
        } else if kind.is_dir() {
            Ok(Found::Directory(file))
        } else {
            Err(Errno::NOENT.into())
        }
    }

    /// Returns the file or directory that `names` lead to, without the right to read it.
    pub(crate) fn look(&self, names: &[Vec<u8>]) -> io::Result<File> {
        Ok(File::from(self.beneath(&join(names), OFlags::PATH)?))
    }

    fn beneath(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(&self.dir, below, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        // EAGAIN means that a rename raced with a ".." in a link, so that the kernel could not be sure.
        (0..8)
            .map(|_| open())
            .find(|opened| !matches!(opened, Err(Errno::AGAIN | Errno::INTR)))
            .unwrap_or_else(open)
    }
}

fn join(names: &[Vec<u8>]) -> PathBuf {
    if names.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsString::from_vec(names.join(&b'/'))) }
}
