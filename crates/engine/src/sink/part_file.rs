//! The partial file: locked, its space reserved, and finally renamed.

mod beside_target;
mod locking;
mod renaming;
mod reservation;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use longhaul_core::ranges::RangeSet;
use rustix::fs::{Mode, fchmod, fstat};

pub(crate) use beside_target::remove_stray_journal;
pub use beside_target::{journal_of, part_of, remove_leftovers};
pub use renaming::Finished;

use super::directory::Directory;
use super::file_slice::KeptSlice;
use super::journal::{Journal, StoredJournal};
use super::journal_file::JournalFile;
use super::output_error::OutputError;

/// The permissions of owner, group and others.
const ALL_MODES: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// The partial file of a transfer. Kept on drop, so that the next run can resume, unless discarded.
///
/// A [stream](Self::of_stream) has neither names nor a journal, and cannot be read back, reserved
/// or resumed. A [slice](super::file_slice::FileSlice) has neither names nor a journal.
#[derive(Debug)]
pub struct PartFile {
    /// `None` for a stream and a slice.
    names: Option<FileLocation>,
    slice: Option<KeptSlice>,
    /// The final and the temporary path, for messages.
    target_path: PathBuf,
    part_path: PathBuf,
    file: File,
    is_discarded: AtomicBool,
    /// The most permissions of the complete file.
    max_mode: Mode,
}

/// The location of a partial file.
#[derive(Debug)]
struct FileLocation {
    directory: Directory,
    target: OsString,
    part: OsString,
    journal: JournalFile,
    /// The name that gets a number if a file has the final name; `None` if that is an error.
    numbered: Option<OsString>,
}

impl PartFile {
    /// Wraps an open pipe, terminal or file that is written in order; `name` is for messages.
    pub fn of_stream(file: File, name: &str) -> Self {
        Self::unnamed(name.into(), file, None)
    }

    /// Wraps an open file of which one range is written.
    pub(super) fn of_slice(file: File, path: PathBuf, slice: KeptSlice) -> Self {
        Self::unnamed(path, file, Some(slice))
    }

    fn unnamed(path: PathBuf, file: File, slice: Option<KeptSlice>) -> Self {
        let (target_path, is_discarded) = (path.clone(), AtomicBool::new(false));
        Self { names: None, slice, target_path, part_path: path, file, is_discarded, max_mode: Mode::all() }
    }

    /// Makes [`finish`](Self::finish) take `name` with a number rather than fail where a file has
    /// the final name.
    #[must_use]
    pub(super) fn numbering(mut self, name: &OsStr) -> Self {
        if let Some(names) = &mut self.names {
            names.numbered = Some(name.to_owned());
        }
        self
    }

    /// Takes all permissions but these from the file, from now on; its owner can read and write it
    /// in any case.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn limit_mode(&mut self, mode: u32) -> io::Result<()> {
        self.max_mode = Mode::from_raw_mode(mode) | Mode::RUSR | Mode::WUSR;
        let ours = Mode::from_raw_mode(fstat(&self.file)?.st_mode) & ALL_MODES;
        if self.max_mode.contains(ours) { Ok(()) } else { Ok(fchmod(&self.file, ours & self.max_mode)?) }
    }

    /// Returns whether the output is a stream, whose bytes cannot be rewritten.
    pub fn is_stream(&self) -> bool {
        self.names.is_none() && !self.is_slice()
    }

    /// Returns whether one range of a shared file is written.
    pub(crate) fn is_slice(&self) -> bool {
        self.slice.is_some()
    }

    /// Returns what an earlier transfer has left of a range of a shared file.
    pub(crate) fn kept_of_slice(&self) -> Option<&RangeSet> {
        self.slice.as_ref().map(KeptSlice::ranges)
    }

    /// Makes the written part of a range of a shared file durable, and records it for the next
    /// transfer of the range.
    pub(super) fn keep_slice(&self, written: &RangeSet) -> io::Result<()> {
        self.slice.as_ref().map_or(Ok(()), |slice| slice.keep(&self.file, written))
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Opens the file again: a separate open file description reports write-back errors and has a
    /// position independently.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn reopen(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Returns the device and inode, which identify the file among all existing ones.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        identity(&self.file)
    }

    /// Returns the final path.
    pub fn target(&self) -> &Path {
        &self.target_path
    }

    /// Returns the temporary path.
    pub fn path(&self) -> &Path {
        &self.part_path
    }

    /// Returns the path of the journal.
    pub fn journal_path(&self) -> PathBuf {
        self.names.as_ref().map_or_else(PathBuf::new, |names| names.journal.path(&names.directory))
    }

    /// Reads the journal of an earlier run.
    ///
    /// # Errors
    /// [`OutputError`] if another version of this program, or another user, could read the journal,
    /// which is kept.
    pub fn journal(&self) -> Result<StoredJournal, OutputError> {
        let Some(names) = &self.names else { return Ok(StoredJournal::Absent) };
        let length = self.file.metadata().map(|meta| meta.len());
        let length =
            length.map_err(|source| OutputError::Journal { path: self.part_path.clone(), source })?;
        names.journal.read(&names.directory, length)
    }

    /// Writes the journal with these committed ranges, replacing the previous one atomically.
    ///
    /// # Errors
    /// The kernel's error on the directory.
    pub fn store(&self, journal: &Journal, committed: &RangeSet) -> io::Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        names.journal.store(&names.directory, journal, committed)
    }

    /// Removes the journal permanently, because the content of the file is no longer of use.
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

    /// Sets the file's modification time; a later write changes it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        if self.is_stream() { Ok(()) } else { self.file.set_modified(modified) }
    }

    /// Checks that the temporary name still refers to this file: another program may have removed
    /// it.
    ///
    /// # Errors
    /// [`OutputError::PartChanged`]; [`OutputError::Create`] if the directory cannot be read.
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

    /// Checks the length of the file, which another program may have truncated.
    ///
    /// # Errors
    /// [`OutputError::PartChanged`] if the length is not in `right`; [`OutputError::Write`] if it
    /// cannot be read.
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

    /// Syncs the directory, which makes the names of the partial file and its journal durable.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sync_names(&self) -> io::Result<()> {
        self.names.as_ref().map_or(Ok(()), |names| names.directory.sync())
    }

    /// Removes the partial file and its journal, whose content is no longer of use.
    ///
    /// A different file under this name is kept, and so is the journal of another transfer. A
    /// second call does nothing.
    pub fn discard(&self) {
        if self.is_discarded.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some(names) = &self.names else { return };
        if self.check_name().is_err() {
            // The journal would otherwise apply to the other program's file.
            return names.journal.remove_own(&names.directory);
        }
        // The lock depends on the file's name, which is therefore removed last.
        let _ = names.journal.remove(&names.directory);
        let _ = names.directory.remove(&names.part);
    }

    /// Returns whether the partial file was discarded.
    pub(super) fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::SeqCst)
    }

    /// Removes the partial file unless it has a journal from which a later run can resume.
    pub fn abandon(&self) {
        if !self.is_resumable() {
            self.discard();
        }
    }

    /// Returns whether a later run can resume from the journal, or must not modify an unreadable
    /// one.
    pub fn is_resumable(&self) -> bool {
        !matches!(self.journal(), Ok(StoredJournal::Absent | StoredJournal::Damaged { .. }))
    }
}

/// Returns a file's device and inode.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}
