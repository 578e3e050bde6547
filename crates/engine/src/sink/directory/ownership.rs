//! The owners of a directory's entries: a file is trusted only if no other user can have written
//! it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::units::Bytes;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::process::geteuid;

use super::Directory;
use crate::sink::part_names::JOURNAL_FRESH;

/// The permissions of partial files and journals, as far as the umask permits them.
pub(super) const CREATED_MODE: u32 = 0o644;

/// Returns whether an entry is another user's.
pub(in crate::sink) fn is_of_others(found: &Stat) -> bool {
    found.st_uid != geteuid().as_raw()
}

impl Directory {
    /// Refuses to follow a symbolic link of another user in a directory where all may write, as
    /// fs.protected_symlinks makes the kernel do (proc_sys_fs(5)).
    ///
    /// # Errors
    /// `PermissionDenied`, or the kernel's error on the link.
    pub fn check_link(&self, name: &OsStr) -> io::Result<()> {
        let (directory, link) = (rustix::fs::fstat(&self.fd)?, self.look(name, false)?);
        let shared = Mode::SVTX | Mode::WOTH;
        let is_shared = Mode::from_raw_mode(directory.st_mode).contains(shared);
        if is_shared && ![directory.st_uid, geteuid().as_raw()].contains(&link.st_uid) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is a symbolic link of another user in a directory that all may write to; give another name",
            ));
        }
        Ok(())
    }

    /// Returns the metadata of a file that is created with this mode, and removed: its owner and
    /// permissions are those of new files here, by the umask, the directory's access control list
    /// and the file system.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::sink) fn look_at_new(&self, mode: u32) -> io::Result<Stat> {
        // Without a name, nothing stays behind if this process is killed.
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::openat(&self.fd, c".", unnamed, Mode::from_raw_mode(mode)) {
            return Ok(rustix::fs::fstat(&file)?);
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".{}-{number}{JOURNAL_FRESH}", std::process::id()));
        let file = self.create(&name, mode)?;
        let found = rustix::fs::fstat(&file);
        self.remove(&name)?;
        Ok(found?)
    }

    /// Returns whether a file can be trusted to hold what this user's earlier run has written: it
    /// is a regular file of this user, has no other name, and no one else may write to it.
    pub(in crate::sink) fn is_own(&self, found: &Stat) -> bool {
        let others = Mode::WGRP | Mode::WOTH;
        let open_to = |found: &Stat| Mode::from_raw_mode(found.st_mode) & others;
        let is_single = FileType::from_raw_mode(found.st_mode).is_file() && found.st_nlink <= 1;
        // Some file systems give all files one owner and one mode.
        let is_as_new = || {
            self.look_at_new(CREATED_MODE)
                .is_ok_and(|new| new.st_uid == found.st_uid && open_to(&new).contains(open_to(found)))
        };
        is_single && ((!is_of_others(found) && open_to(found).is_empty()) || is_as_new())
    }

    /// Reads a whole file that only this user can have written.
    ///
    /// # Errors
    /// `InvalidData` for a file of another user, or one of more than `limit`; else the kernel's
    /// error.
    pub(in crate::sink) fn read_own(&self, name: &OsStr, limit: Bytes) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let file = self.open_to_read(name)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let unusable = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if !self.is_own(&rustix::fs::fstat(&file)?) {
            return unusable("others than this user may have written it".to_owned());
        }
        file.take(limit.get() + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit.get() {
            return unusable(format!("it is larger than {limit}"));
        }
        Ok(content)
    }
}
