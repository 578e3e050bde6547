//! The journal of a partial file on the disk: its names, reading and atomic replacement.

use std::ffi::{OsStr, OsString};
use std::fmt::Arguments;
use std::io::{self, Write};
use std::path::PathBuf;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use parking_lot::Mutex;
use rustix::fs::{Stat, fstat};

use super::directory::Directory;
use super::journal::{DecodeError, Journal, StoredJournal, VERSION};
use super::output_error::OutputError;
use super::part_names::{JOURNAL, beside};

/// The largest journal that is read: one of half a million ranges.
const MAX_JOURNAL: Bytes = Bytes::mib(16);

/// The file of a journal. Each `directory` is that of the partial file.
#[derive(Debug)]
pub(super) struct JournalFile {
    name: OsString,
    /// The version found at first or stored last.
    own: Mutex<Option<FileVersion>>,
}

/// The device, inode and modification time of a file: an inode alone is soon reused.
type FileVersion = (u64, u64, i64, u64);

impl JournalFile {
    /// Names the journal of the partial file of this `stem`, which need not exist.
    pub(super) fn beside(stem: &OsStr, directory: &Directory) -> Self {
        let name = beside(stem, JOURNAL);
        let own = Mutex::new(version_of(directory, &name));
        Self { name, own }
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self, directory: &Directory) -> PathBuf {
        directory.path_of(&self.name)
    }

    /// Reads the journal of a partial file of this length; space is reserved at once, so the length
    /// must be the file size.
    ///
    /// # Errors
    /// [`OutputError`] if another version of this program, or another user, could read the journal.
    pub(super) fn read(&self, directory: &Directory, length: u64) -> Result<StoredJournal, OutputError> {
        let path = || self.path(directory);
        let damaged = |why: Arguments<'_>| StoredJournal::Damaged {
            why: format!("the journal {} {why}", path().display()),
        };
        let text = match directory.read_own(&self.name, MAX_JOURNAL) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredJournal::Absent),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ok(damaged(format_args!("is not used: {error}")));
            }
            Err(source) => return Err(OutputError::Journal { path: path(), source }),
        };
        match Journal::decode(&text) {
            Ok(journal) if journal.size.get() == length => Ok(StoredJournal::Sound(journal)),
            Ok(journal) => Ok(damaged(format_args!(
                "is of a file of {} bytes, and the partial file has {length}",
                journal.size.get()
            ))),
            Err(DecodeError::Damaged(why)) => Ok(damaged(format_args!("cannot be used: {why}"))),
            Err(DecodeError::Version(version)) => {
                let message = format!(
                    "{} is a journal of version {version}, and this longhaul supports versions 1 to {VERSION}; resume with the longhaul that \
                     wrote it, or start over with --no-resume",
                    path().display()
                );
                Err(Failure::new(FailureKind::CannotCreate, message).into())
            }
        }
    }

    /// Writes the journal, replacing the previous one atomically.
    ///
    /// # Errors
    /// The kernel's error on the directory.
    pub(super) fn store(
        &self,
        directory: &Directory,
        journal: &Journal,
        committed: &RangeSet,
    ) -> io::Result<()> {
        let fresh = self.fresh_name();
        let write = || {
            self.remove_fresh(directory);
            let mut file = directory.create_file(&fresh)?;
            file.write_all(&journal.encode(committed)?)?;
            file.sync_data()?;
            directory.rename(&fresh, &self.name)?;
            *self.own.lock() = Some(version(&fstat(&file)?));
            Ok(())
        };
        write().inspect_err(|_| self.remove_fresh(directory))
    }

    /// Removes the journal, and an incompletely written one; the caller holds the lock of the
    /// partial file.
    ///
    /// # Errors
    /// `NotFound` if there is none, or another error of the kernel.
    pub(super) fn remove(&self, directory: &Directory) -> io::Result<()> {
        self.remove_fresh(directory);
        directory.remove(&self.name)
    }

    /// Removes an incompletely written journal, if any.
    pub(super) fn remove_fresh(&self, directory: &Directory) {
        let _ = directory.remove(&self.fresh_name());
    }

    /// Removes the journal only if this transfer wrote it: without the lock of the partial file it
    /// may belong to another one.
    pub(super) fn remove_own(&self, directory: &Directory) {
        let there = version_of(directory, &self.name);
        if there.is_some() && there == *self.own.lock() {
            let _ = directory.remove(&self.name);
        }
    }

    /// Returns whether `is_taken` holds for the journal, or an incompletely written one.
    pub(super) fn any(&self, is_taken: impl Fn(&OsStr) -> bool) -> bool {
        is_taken(&self.name) || is_taken(&self.fresh_name())
    }

    /// Returns the name of an incompletely written journal.
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
