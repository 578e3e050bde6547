//! The file under its temporary name: locked, its space reserved, then renamed at once.

mod final_name;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstatvfs};
use rustix::io::Errno;

pub use final_name::{FinishWarning, Finished};

use super::directory::Directory;
use super::journal::{Journal, JournalError, StoredJournal};
use super::journal_file::JournalFile;
use super::output_error::OutputError;
use super::part_names::{JOURNAL, PART, beside};

/// The partial file of a transfer. Kept when dropped, so that the next run resumes, unless discarded.
///
/// A [stream](Self::of_stream) has neither names nor a journal: nothing of it can be read back, reserved or resumed.
#[derive(Debug)]
pub struct PartFile {
    /// `None` for a stream.
    names: Option<Names>,
    /// The final and the temporary name as paths, for messages.
    target_path: PathBuf,
    part_path: PathBuf,
    file: File,
}

/// Where a partial file stands.
#[derive(Debug)]
struct Names {
    directory: Directory,
    target: OsString,
    part: OsString,
    journal: JournalFile,
}

impl PartFile {
    /// Opens the partial file of `target` in `directory`, or makes it, and locks it against other transfers.
    ///
    /// # Errors
    /// [`OutputError`]: the target is a directory, the part cannot be made, or another transfer writes it.
    pub fn open_in(directory: Directory, target: &OsStr) -> Result<Self, OutputError> {
        Self::open(directory, target, OFlags::CREATE)
    }

    /// Opens the partial file of `target` in `directory`, and locks it against other transfers; makes none.
    ///
    /// # Errors
    /// As of [`PartFile::open_in`]; [`OutputError::Create`] with `NotFound` where there is no partial file.
    pub fn open_existing_in(directory: Directory, target: &OsStr) -> Result<Self, OutputError> {
        Self::open(directory, target, OFlags::empty())
    }

    fn open(directory: Directory, target: &OsStr, how: OFlags) -> Result<Self, OutputError> {
        let part = beside(target, PART);
        let (target_path, part_path) = (directory.path_of(target), directory.path_of(&part));
        if directory.is_directory(target) {
            return Err(OutputError::IsDirectory(target_path));
        }
        let failed = |source| OutputError::Create { path: part_path.clone(), source };
        let file = loop {
            let file = directory.open_file(&part, how).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(OutputError::NotAFile(part_path));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Some cluster file systems have no locks; two transfers to one name are then the user's to avoid.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
                Err(Errno::WOULDBLOCK) => return Err(OutputError::Busy(target_path)),
                Err(error) => return Err(failed(error.into())),
            }
            let ours = identity(&file).map_err(failed)?;
            let has =
                |name| directory.look(name, false).is_ok_and(|there| (there.st_dev, there.st_ino) == ours);
            match (has(&part), has(target)) {
                (true, false) => break file,
                // A run was killed between the two steps of a rename by link: to write here would be to write to a
                // complete file.
                (true, true) => {
                    let _ = JournalFile::beside(target, &directory).remove(&directory);
                    directory.remove(&part).map_err(failed)?;
                }
                // Another run renamed this very file to its final name before it was locked here.
                (false, _) => {}
            }
        };
        let journal = JournalFile::beside(target, &directory);
        let names = Some(Names { directory, target: target.to_owned(), part, journal });
        Ok(Self { names, target_path, part_path, file })
    }

    /// Takes an open pipe, terminal or file that the bytes go to in their order; `name` is for messages.
    pub fn of_stream(file: File, name: &str) -> Self {
        Self { names: None, target_path: name.into(), part_path: name.into(), file }
    }

    /// Returns whether bytes go to a stream, in their order and for good.
    pub fn is_stream(&self) -> bool {
        self.names.is_none()
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file once more: another open file description hears of write-back errors by itself, and
    /// has a position of its own.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reopen(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Returns the device and the inode, which tell it from every other file that is there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        identity(&self.file)
    }

    /// Returns the final name.
    pub fn target(&self) -> &Path {
        &self.target_path
    }

    /// Returns the temporary name.
    pub fn path(&self) -> &Path {
        &self.part_path
    }

    /// Returns where the journal stands.
    pub fn journal_path(&self) -> PathBuf {
        self.names.as_ref().map_or_else(PathBuf::new, |names| names.journal.path(&names.directory))
    }

    /// Reads the journal of an earlier run.
    ///
    /// # Errors
    /// [`JournalError`] where another version of this program, or another user, could read it: it is kept.
    pub fn journal(&self) -> Result<StoredJournal, JournalError> {
        let Some(names) = &self.names else { return Ok(StoredJournal::Absent) };
        let length = self.file.metadata().map(|meta| meta.len());
        let length = length.map_err(|source| JournalError::Read { path: self.part_path.clone(), source })?;
        names.journal.read(&names.directory, length)
    }

    /// Writes the journal with these committed ranges, replacing the last one atomically.
    ///
    /// # Errors
    /// What the kernel says of the directory.
    pub fn store(&self, journal: &Journal, committed: &RangeSet) -> io::Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        names.journal.store(&names.directory, journal, committed)
    }

    /// Forgets the journal, for good: what is in the file is of no use any more.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn start_over(&self) -> Result<(), OutputError> {
        let Some(names) = &self.names else { return Ok(()) };
        let removed = names.journal.remove(&names.directory).and_then(|()| names.directory.sync());
        match removed {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(OutputError::Create { path: self.journal_path(), source })
            }
            _ => Ok(()),
        }
    }

    /// Drops the content, where none is reserved.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn empty(&self) -> Result<(), OutputError> {
        if self.is_stream() {
            return Ok(());
        }
        let emptied = self.file.set_len(0);
        emptied.map_err(|source| OutputError::Create { path: self.part_path.clone(), source })
    }

    /// Reserves the file's space on disk, so that a full disk is found out before the first byte.
    ///
    /// # Errors
    /// [`OutputError::Reserve`] where it does not fit; the file and its journal are then as they were.
    pub fn reserve(&self, size: Bytes) -> Result<(), OutputError> {
        if self.is_stream() {
            return Ok(());
        }
        let failed = |source: io::Error| OutputError::Reserve { path: self.part_path.clone(), size, source };
        let before = self.file.metadata().map_err(failed)?;
        if size > Bytes::ZERO {
            match fallocate(&self.file, FallocateFlags::empty(), 0, size.get()) {
                Ok(()) => {}
                // Some file systems cannot reserve; then at least the room must be there now.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    let fs = fstatvfs(&self.file).map_err(|e| failed(e.into()))?;
                    // An earlier run's part has some of it already; blocks are counted in 512 bytes.
                    let held = before.blocks() * 512;
                    if fs.f_bavail.saturating_mul(fs.f_frsize).saturating_add(held) < size.get() {
                        return Err(failed(io::ErrorKind::StorageFull.into()));
                    }
                }
                Err(error) => {
                    // Gives back what was reserved before the disk was full.
                    let _ = self.file.set_len(before.len());
                    return Err(failed(error.into()));
                }
            }
        }
        self.file.set_len(size.get()).map_err(failed)
    }

    /// Gives the file its time of modification; a later write changes it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        if self.is_stream() { Ok(()) } else { self.file.set_modified(modified) }
    }

    /// Checks that the temporary name still leads to this file: another program may have removed it.
    ///
    /// # Errors
    /// [`OutputError::PartChanged`]; [`OutputError::Create`] where the directory cannot be read.
    pub fn check_name(&self) -> Result<(), OutputError> {
        let Some(names) = &self.names else { return Ok(()) };
        let failed = |source| OutputError::Create { path: self.part_path.clone(), source };
        let change = match names.directory.look(&names.part, false) {
            Ok(there) if (there.st_dev, there.st_ino) == self.identity().map_err(failed)? => return Ok(()),
            Ok(_) => "replaced",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "removed",
            Err(error) => return Err(failed(error)),
        };
        Err(OutputError::PartChanged { path: self.part_path.clone(), change: change.to_owned() })
    }

    /// Checks the length of the file, which another program may have cut.
    ///
    /// # Errors
    /// [`OutputError::PartChanged`] where it is not in `right`; [`OutputError::Write`] where it cannot be read.
    pub fn check_length(&self, right: RangeInclusive<u64>) -> Result<(), OutputError> {
        if self.is_stream() {
            return Ok(());
        }
        let path = || self.part_path.clone();
        let found = self.file.metadata().map_err(|source| OutputError::Write {
            operation: "read the length of",
            path: path(),
            source,
        })?;
        if right.contains(&found.len()) {
            return Ok(());
        }
        let change = format!("changed to a length of {} bytes instead of {}", found.len(), right.start());
        Err(OutputError::PartChanged { path: path(), change })
    }

    /// Makes durable what names the directory holds: the partial file's, and its journal's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn sync_names(&self) -> io::Result<()> {
        self.names.as_ref().map_or(Ok(()), |names| names.directory.sync())
    }

    /// Removes the partial file and its journal: nothing of it can be used.
    ///
    /// Where another file has its name, that file stays, and so does the journal of another transfer.
    pub fn discard(&self) {
        let Some(names) = &self.names else { return };
        if self.check_name().is_err() {
            // It would pass for that of the file which another program has put there.
            return names.journal.remove_own(&names.directory);
        }
        // The lock goes with the file's name, hence the last.
        let _ = names.journal.remove(&names.directory);
        let _ = names.directory.remove(&names.part);
    }

    /// Removes it unless it has a journal from which a later run can resume.
    pub fn abandon(&self) {
        if !self.is_resumable() {
            self.discard();
        }
    }

    /// Returns whether a later run can resume from a journal, or may not touch the one that exists.
    pub fn is_resumable(&self) -> bool {
        !matches!(self.journal(), Ok(StoredJournal::Absent | StoredJournal::Damaged { .. }))
    }
}

/// Returns a file's device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

/// Removes the journal of a transfer to `target` that was killed between the rename of its partial file and the journal's removal.
pub(crate) fn remove_stray_journal(directory: &Directory, target: &OsStr) {
    let is_absent = |suffix| {
        directory
            .look(&beside(target, suffix), false)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // A partial file is made before its journal: without one the journal is of no use.
    if is_absent(JOURNAL) || !is_absent(PART) {
        return;
    }
    // Its lock keeps off a transfer that begins meanwhile; a partial file that holds anything is that of such a transfer.
    let part = directory.try_clone().map(|directory| PartFile::open_in(directory, target));
    if let Ok(Ok(part)) = part
        && part.file.metadata().is_ok_and(|meta| meta.len() == 0)
    {
        part.discard();
    }
}

/// Reads the journal of the partial file of `target`, which another transfer may be writing.
///
/// # Errors
/// As of [`PartFile::journal`].
pub fn journal_of(directory: &Directory, target: &OsStr) -> Result<StoredJournal, JournalError> {
    let part = beside(target, PART);
    match directory.look(&part, false) {
        Ok(there) => {
            let length = u64::try_from(there.st_size).unwrap_or(0);
            JournalFile::beside(target, directory).read(directory, length)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoredJournal::Absent),
        Err(source) => Err(JournalError::Read { path: directory.path_of(&part), source }),
    }
}
