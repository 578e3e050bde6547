//! What stands beside a target: its partial file and journal, of this run or of earlier ones.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::PartFile;
use crate::sink::directory::{Directory, is_of_others};
use crate::sink::journal::StoredJournal;
use crate::sink::journal_file::JournalFile;
use crate::sink::output_error::OutputError;
use crate::sink::part_names::{JOURNAL, PART, beside};

/// Returns the path of the partial file of the file at `target`; of this user's where another user
/// has one too.
pub fn part_of(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default();
    let stem = Directory::open(target.parent().unwrap_or(Path::new("")))
        .map_or_else(|_| name.to_owned(), |directory| stem(&directory, name));
    target.with_file_name(beside(&stem, PART))
}

/// Removes what a killed run may have left beside the complete file at `target`: its journal, and
/// the partial name if that is a link to the file.
pub fn remove_leftovers(target: &Path) {
    let Some(name) = target.file_name() else { return };
    let Ok(directory) = Directory::open(target.parent().unwrap_or(Path::new(""))) else { return };
    let part = beside(&stem(&directory, name), PART);
    let identity = |name: &OsStr| directory.look(name, false).ok().map(|found| (found.st_dev, found.st_ino));
    if identity(&part).is_some_and(|part| identity(name) == Some(part)) {
        let _ = directory.remove(&part);
    }
    remove_stray_journal(&directory, name);
}

/// Returns the name after which the partial file and the journal of `target` are named: `target`,
/// or where another user's files have these names, or had them when this user's were begun, one
/// with this user's number.
pub(super) fn stem(directory: &Directory, target: &OsStr) -> OsString {
    let look = |name: &OsStr| directory.look(name, false);
    let is_taken =
        |name: &OsStr| look(name).is_ok_and(|found| is_of_others(&found) && !directory.is_own(&found));
    let mut numbered = target.to_owned();
    // A name that no other file is likely to have, whose partial file would be this one's.
    numbered.push(format!(".longhaul-{}", geteuid().as_raw()));
    let uses_number = look(&beside(&numbered, PART)).is_ok_and(|found| directory.is_own(&found))
        || is_taken(&beside(target, PART))
        || JournalFile::beside(target, directory).any(is_taken);
    if uses_number { numbered } else { target.to_owned() }
}

/// Removes the journal of a transfer to `target` that was killed between renaming its partial file
/// and removing the journal.
pub(crate) fn remove_stray_journal(directory: &Directory, target: &OsStr) {
    let stem = stem(directory, target);
    let is_absent = |suffix| {
        directory
            .look(&beside(&stem, suffix), false)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // A partial file is created before its journal: without one, the journal is useless.
    if is_absent(JOURNAL) || !is_absent(PART) {
        return;
    }
    // The lock keeps out a transfer that starts meanwhile; a non-empty partial file belongs to such
    // a transfer.
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
/// See [`PartFile::journal`].
pub fn journal_of(directory: &Directory, target: &OsStr) -> Result<StoredJournal, OutputError> {
    let stem = stem(directory, target);
    let part = beside(&stem, PART);
    match directory.look(&part, false) {
        Ok(there) => {
            let length = u64::try_from(there.st_size).unwrap_or(0);
            JournalFile::beside(&stem, directory).read(directory, length)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(StoredJournal::Absent),
        Err(source) => Err(OutputError::Journal { path: directory.path_of(&part), source }),
    }
}
