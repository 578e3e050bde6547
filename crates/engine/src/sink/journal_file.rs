//! The journal of a partial file on the disk: its names, its reading, and its replacement at once.

use std::ffi::{OsStr, OsString};
use std::fmt::Arguments;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use longhaul_core::ranges::RangeSet;
use rustix::fs::{OFlags, Stat, fstat};

use super::directory::Directory;
use super::journal::{DecodeError, Journal, JournalError, StoredJournal};
use super::part_names::{JOURNAL, beside};
use crate::threads::lock;

/// Where the journal of a partial file stands. Each `directory` is that of the partial file.
#[derive(Debug)]
pub(super) struct JournalFile {
    name: OsString,
    /// The one that was there at first, or that was stored last.
    own: Mutex<Option<FileVersion>>,
}

/// The device, the inode and the time of modification of a file: an inode alone is soon used again.
type FileVersion = (u64, u64, i64, u64);

impl JournalFile {
    /// Takes the journal of the partial file of `target`, which need not be there.
    pub(super) fn beside(target: &OsStr, directory: &Directory) -> Self {
        let name = beside(target, JOURNAL);
        let own = Mutex::new(version_of(directory, &name));
        Self { name, own }
    }

    /// Returns its path, for messages.
    pub(super) fn path(&self, directory: &Directory) -> PathBuf {
        directory.path_of(&self.name)
    }

    /// Reads the journal of a partial file of this length, which is the whole file's from the first byte on.
    ///
    /// # Errors
    /// [`JournalError`] where another version of this program, or another user, could read it.
    pub(super) fn read(&self, directory: &Directory, length: u64) -> Result<StoredJournal, JournalError> {
        let path = || self.path(directory);
        let text = match directory.read(&self.name) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredJournal::Absent),
            Err(source) => return Err(JournalError::Read { path: path(), source }),
        };
        let damaged = |why: Arguments<'_>| StoredJournal::Damaged {
            why: format!("the journal {} {why}", path().display()),
        };
        match Journal::decode(&text) {
            Ok(journal) if journal.size().get() == length => Ok(StoredJournal::Sound(journal)),
            Ok(journal) => Ok(damaged(format_args!(
                "is of a file of {} bytes, and the partial file has {length}",
                journal.size().get()
            ))),
            Err(DecodeError::Damaged(why)) => Ok(damaged(format_args!("cannot be used: {why}"))),
            Err(DecodeError::Version(version)) => Err(JournalError::Version { path: path(), version }),
        }
    }

    /// Writes it, replacing the last one atomically.
    ///
    /// # Errors
    /// What the kernel says of the directory.
    pub(super) fn store(
        &self,
        directory: &Directory,
        journal: &Journal,
        committed: &RangeSet,
    ) -> io::Result<()> {
        let fresh = self.fresh_name();
        let write = || {
            let mut file = directory.open_file(&fresh, OFlags::CREATE | OFlags::TRUNC)?;
            file.write_all(&journal.encode(committed)?)?;
            file.sync_data()?;
            directory.rename(&fresh, &self.name)?;
            *lock(&self.own) = Some(version(&fstat(&file)?));
            Ok(())
        };
        write().inspect_err(|_| self.remove_fresh(directory))
    }

    /// Removes it, and one that is not yet whole, for a caller that holds the lock of the partial file.
    ///
    /// # Errors
    /// `NotFound` where there is none, and what else the kernel says.
    pub(super) fn remove(&self, directory: &Directory) -> io::Result<()> {
        self.remove_fresh(directory);
        directory.remove(&self.name)
    }

    /// Removes one that is not yet whole, which may not be there.
    pub(super) fn remove_fresh(&self, directory: &Directory) {
        let _ = directory.remove(&self.fresh_name());
    }

    /// Removes it where it is still this transfer's: without the lock of the partial file it may be another one's.
    pub(super) fn remove_own(&self, directory: &Directory) {
        let there = version_of(directory, &self.name);
        if there.is_some() && there == *lock(&self.own) {
            let _ = directory.remove(&self.name);
        }
    }

    /// Returns the name of a journal that is not yet whole.
    fn fresh_name(&self) -> OsString {
        let mut name = self.name.clone();
        name.push("~");
        name
    }
}

fn version_of(directory: &Directory, name: &OsStr) -> Option<FileVersion> {
    directory.look(name, false).ok().as_ref().map(version)
}

fn version(stat: &Stat) -> FileVersion {
    (stat.st_dev, stat.st_ino, stat.st_mtime, stat.st_mtime_nsec)
}
