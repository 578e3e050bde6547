//! The file under its temporary name: locked, its space reserved, then renamed at once.

use std::ffi::{OsStr, OsString};
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;
use rustix::fs::{
    FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, fallocate, fchmod, flock, fstat, fstatvfs,
};
use rustix::io::Errno;
use thiserror::Error;

use super::directory::Directory;
use super::journal::{DecodeError, Journal, JournalError, StoredJournal};
use super::output_error::OutputError;
use super::part_names::{JOURNAL, PART, beside};
use crate::threads::lock;

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
    journal: OsString,
    /// The journal that was there when the partial file was locked, or that was stored last.
    own_journal: Mutex<Option<FileVersion>>,
}

/// The device, the inode and the time of modification of a file: an inode alone is soon used again.
type FileVersion = (u64, u64, i64, u64);

/// A file under its final name.
#[derive(Debug)]
#[must_use = "its warnings are for the user"]
pub struct Finished {
    /// Where it stands.
    pub path: PathBuf,
    /// What could not be done though the file is complete.
    pub warnings: Vec<FinishWarning>,
}

/// What a complete file lacks.
#[derive(Debug, Error)]
pub enum FinishWarning {
    /// Its name may not survive a power failure.
    #[error(
        "{path} is complete, but its directory cannot be synced: a power failure now could undo the name: {source}"
    )]
    Sync {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It has not the permissions of the file that it replaced.
    #[error("{path} is complete, but cannot be given the permissions of the file that it replaced: {source}")]
    Mode {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
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
        let (part, journal) = (beside(target, PART), beside(target, JOURNAL));
        let (target_path, part_path) = (directory.path_of(target), directory.path_of(&part));
        if directory.is_directory(target) {
            return Err(OutputError::IsDirectory(target_path));
        }
        let failed = |source| OutputError::Create { path: part_path.clone(), source };
        let file = loop {
            let file = directory.open_file(&part, how).map_err(failed)?;
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
                    let _ = directory.remove(&journal);
                    directory.remove(&part).map_err(failed)?;
                }
                // Another run renamed this very file to its final name before it was locked here.
                (false, _) => {}
            }
        };
        let own_journal = Mutex::new(directory.look(&journal, false).ok().as_ref().map(version));
        let names = Some(Names { directory, target: target.to_owned(), part, journal, own_journal });
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
        self.names.as_ref().map_or_else(PathBuf::new, |names| names.directory.path_of(&names.journal))
    }

    /// Reads the journal of an earlier run.
    ///
    /// # Errors
    /// [`JournalError`] where another version of this program, or another user, could read it: it is kept.
    pub fn journal(&self) -> Result<StoredJournal, JournalError> {
        let Some(names) = &self.names else { return Ok(StoredJournal::Absent) };
        let length = self.file.metadata().map(|meta| meta.len());
        let length = length.map_err(|source| JournalError::Read { path: self.part_path.clone(), source })?;
        read_journal(&names.directory, &names.journal, length)
    }

    /// Writes the journal with these committed ranges, replacing the last one atomically.
    ///
    /// # Errors
    /// What the kernel says of the directory.
    pub fn store(&self, journal: &Journal, committed: &RangeSet) -> io::Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        let fresh = names.fresh_journal();
        let write = || {
            let mut file = names.directory.open_file(&fresh, OFlags::CREATE | OFlags::TRUNC)?;
            file.write_all(&journal.encode(committed)?)?;
            file.sync_data()?;
            names.directory.rename(&fresh, &names.journal)?;
            *lock(&names.own_journal) = Some(version(&fstat(&file)?));
            Ok(())
        };
        write().inspect_err(|_| names.remove(&fresh))
    }

    /// Forgets the journal, for good: what is in the file is of no use any more.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn start_over(&self) -> Result<(), OutputError> {
        let Some(names) = &self.names else { return Ok(()) };
        names.remove(&names.fresh_journal());
        let removed = names.directory.remove(&names.journal).and_then(|()| names.directory.sync());
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

    /// Makes the content durable and gives the file its final name, atomically; a file that it replaces leaves it its
    /// permissions.
    ///
    /// # Errors
    /// [`OutputError::Exists`] where the name is taken and `replace` is not set, else [`OutputError::Write`]; the partial
    /// file then stays.
    pub fn finish(&self, replace: bool) -> Result<Finished, OutputError> {
        self.finish_with(replace, || self.sync_names())
    }

    fn finish_with(
        &self,
        replace: bool,
        sync_names: impl FnOnce() -> io::Result<()>,
    ) -> Result<Finished, OutputError> {
        let path = self.target_path.clone();
        let Some(names) = &self.names else { return Ok(Finished { path, warnings: Vec::new() }) };
        let failed = |operation, source| OutputError::Write { operation, path: path.clone(), source };
        self.check_name()?;
        let kept = if replace { self.take_mode(names) } else { Ok(None) };
        self.file.sync_all().map_err(|e| failed("sync", e))?;
        // The temporary name is free once this file has left it, and another transfer may begin under it.
        names.remove(&names.fresh_journal());
        let renamed = if replace {
            names.directory.rename(&names.part, &names.target)
        } else {
            names.directory.rename_new(&names.part, &names.target)
        };
        if let Err(error) = renamed {
            if let Ok(Some(before)) = kept {
                // As it was, so that it can be resumed.
                let _ = fchmod(&self.file, before);
            }
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists if !replace => OutputError::Exists(path),
                _ => failed("give the final name to", error),
            });
        }
        names.remove_own_journal();
        let mode = kept.err().map(|source| FinishWarning::Mode { path: path.clone(), source });
        let sync = sync_names().err().map(|source| FinishWarning::Sync { path: path.clone(), source });
        let warnings = mode.into_iter().chain(sync).collect();
        Ok(Finished { path, warnings })
    }

    /// Gives the partial file the permissions of the file that it replaces; returns those that it had, where they differ.
    fn take_mode(&self, names: &Names) -> io::Result<Option<Mode>> {
        let Ok(there) = names.directory.look(&names.target, false) else { return Ok(None) };
        let bits = |mode| Mode::from_raw_mode(mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        let (theirs, ours) = (bits(there.st_mode), bits(fstat(&self.file)?.st_mode));
        if !FileType::from_raw_mode(there.st_mode).is_file() || theirs == ours {
            return Ok(None);
        }
        fchmod(&self.file, theirs)?;
        Ok(Some(ours))
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
            return names.remove_own_journal();
        }
        // The lock goes with the file's name, hence the last.
        for name in [&names.fresh_journal(), &names.journal, &names.part] {
            names.remove(name);
        }
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

impl Names {
    /// Returns the name of a journal that is not yet whole.
    fn fresh_journal(&self) -> OsString {
        let mut name = self.journal.clone();
        name.push("~");
        name
    }

    /// Removes what may not be there.
    fn remove(&self, name: &OsStr) {
        let _ = self.directory.remove(name);
    }

    /// Removes the journal of this transfer. Without the lock on the temporary name, the journal there may be another transfer's.
    fn remove_own_journal(&self) {
        let there = self.directory.look(&self.journal, false).ok().as_ref().map(version);
        if there.is_some() && there == *lock(&self.own_journal) {
            self.remove(&self.journal);
        }
    }
}

fn version(stat: &Stat) -> FileVersion {
    (stat.st_dev, stat.st_ino, stat.st_mtime, stat.st_mtime_nsec)
}

/// Returns a file's device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

/// Removes the journal of a transfer to `target` that was killed between the rename of its partial file and the journal's removal.
pub(crate) fn remove_stray_journal(directory: &Directory, target: &OsStr) {
    let is_there = |suffix| directory.look(&beside(target, suffix), false).is_ok();
    // A partial file is made before its journal: without one the journal is of no use.
    if !is_there(JOURNAL) || is_there(PART) {
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
            read_journal(directory, &beside(target, JOURNAL), u64::try_from(there.st_size).unwrap_or(0))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoredJournal::Absent),
        Err(source) => Err(JournalError::Read { path: directory.path_of(&part), source }),
    }
}

/// Reads the journal of a partial file of this length, which is the whole file's from the first byte on.
fn read_journal(directory: &Directory, name: &OsStr, length: u64) -> Result<StoredJournal, JournalError> {
    let text = match directory.read(name) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredJournal::Absent),
        Err(source) => return Err(JournalError::Read { path: directory.path_of(name), source }),
    };
    let damaged = |why: Arguments<'_>| StoredJournal::Damaged {
        why: format!("the journal {} {why}", directory.path_of(name).display()),
    };
    match Journal::decode(&text) {
        Ok(journal) if journal.size().get() == length => Ok(StoredJournal::Sound(journal)),
        Ok(journal) => Ok(damaged(format_args!(
            "is of a file of {} bytes, and the partial file has {length}",
            journal.size().get()
        ))),
        Err(DecodeError::Damaged(why)) => Ok(damaged(format_args!("cannot be used: {why}"))),
        Err(DecodeError::Version(version)) => {
            Err(JournalError::Version { path: directory.path_of(name), version })
        }
    }
}

#[cfg(test)]
mod tests;
