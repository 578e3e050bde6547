//! Opens a partial file, and locks it; one that another user can have written is not used.

use std::ffi::OsStr;
use std::io;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FlockOperation, Mode, flock, fstat};
use rustix::io::Errno;

use super::beside_target::stem;
use super::{FileLocation, PartFile, identity};
use crate::sink::directory::{Directory, is_of_others};
use crate::sink::journal_file::JournalFile;
use crate::sink::output_error::OutputError;
use crate::sink::part_names::{PART, beside};

impl PartFile {
    /// Opens or creates the partial file of `target` in `directory`, and locks it against other
    /// transfers.
    ///
    /// A file that others could have written is not used: another user's is left alone, and this
    /// user's is replaced.
    ///
    /// # Errors
    /// [`OutputError`]: the target is a directory, the partial file cannot be created, or another
    /// transfer writes it.
    pub fn open_in(directory: Directory, target: &OsStr) -> Result<Self, OutputError> {
        Self::open(directory, target, true)
    }

    /// Opens an existing partial file of `target` in `directory`, and locks it against other
    /// transfers.
    ///
    /// # Errors
    /// See [`PartFile::open_in`]; [`OutputError::Create`] with `NotFound` if there is no partial
    /// file.
    pub fn open_existing_in(directory: Directory, target: &OsStr) -> Result<Self, OutputError> {
        Self::open(directory, target, false)
    }

    fn open(directory: Directory, target: &OsStr, creates: bool) -> Result<Self, OutputError> {
        let stem = stem(&directory, target);
        let part = beside(&stem, PART);
        let (target_path, part_path) = (directory.path_of(target), directory.path_of(&part));
        if directory.is_directory(target) {
            return Err(OutputError::IsDirectory(target_path));
        }
        let failed = |source| OutputError::Create { path: part_path.clone(), source };
        let file = loop {
            let opened = match directory.open_file(&part) {
                Err(error) if creates && error.kind() == io::ErrorKind::NotFound => {
                    directory.create_file(&part)
                }
                opened => opened,
            };
            let file = match opened {
                // Another run has created it since.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened.map_err(failed)?,
            };
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(OutputError::NotAFile(part_path));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Some cluster file systems have no locks; the user must then avoid two transfers
                // to one name.
                Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
                Err(Errno::WOULDBLOCK) => return Err(OutputError::Busy(target_path)),
                Err(error) => return Err(failed(error.into())),
            }
            let ours = identity(&file).map_err(failed)?;
            let there = directory.look(&part, false);
            if !there.is_ok_and(|there| (there.st_dev, there.st_ino) == ours) {
                // Another run renamed this file to its final name before it was locked here.
                continue;
            }
            let found = fstat(&file).map_err(|error| failed(error.into()))?;
            // One with another name may be complete: a run may have been killed between link and
            // unlink of a rename.
            if directory.is_own(&found) {
                break file;
            }
            if is_of_others(&found) {
                return Err(failed(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it is another user's; write into a directory of your own",
                )));
            }
            tracing::info!("{} is begun anew: others may write to what is there", part_path.display());
            let _ = JournalFile::beside(&stem, &directory).remove(&directory);
            directory.remove(&part).map_err(failed)?;
        };
        let journal = JournalFile::beside(&stem, &directory);
        let names =
            Some(FileLocation { directory, target: target.to_owned(), part, journal, numbered: None });
        let is_discarded = AtomicBool::new(false);
        Ok(Self { names, slice: None, target_path, part_path, file, is_discarded, max_mode: Mode::all() })
    }
}
