//! Chooses the name of a saved file, and opens its partial file.

use std::ffi::OsStr;
use std::io;

use longhaul_core::failure::{Failure, FailureKind};

use super::{OutputLocation, PreparedOutput};
use crate::sink::directory::Directory;
use crate::sink::journal::{Journal, StoredJournal};
use crate::sink::output_claims::OutputPlace;
use crate::sink::output_error::OutputError;
use crate::sink::part_file::{PartFile, journal_of};
use crate::sink::part_names::{is_partial, numbered};

/// The file name if neither the server nor the URL gives one.
const NAMELESS: &str = "download";

impl PreparedOutput {
    /// Returns the place of the file, with the `suggested` name if the user gave none; `None` for a
    /// stream.
    ///
    /// # Errors
    /// The kernel's error on the directory.
    pub fn place(&self, suggested: Option<&str>) -> io::Result<Option<OutputPlace>> {
        let OutputLocation::Directory(directory) = &self.location else { return Ok(None) };
        let name = self.name.as_deref().or_else(|| suggested.map(|name| plain_name(Some(name))));
        Ok(Some(OutputPlace { directory: directory.identity()?, name: name.map(OsStr::to_owned) }))
    }

    /// Opens and locks the partial file; `suggested` is the name from the server or the URL, used
    /// if the user gave none.
    ///
    /// # Errors
    /// [`OutputError::Failed`] if another file of the command has this place;
    /// [`OutputError::Exists`] if the name exists and is not [replaced](Self::replaces); see also
    /// [`PartFile::open_in`].
    pub fn open(&self, suggested: Option<&str>) -> Result<PartFile, OutputError> {
        let directory = match &self.location {
            OutputLocation::Directory(directory) => directory,
            OutputLocation::Stream(file) => {
                let name = self.name.as_deref().unwrap_or_default().to_string_lossy();
                let failed = |source| OutputError::Create { path: name.as_ref().into(), source };
                return Ok(PartFile::of_stream(file.try_clone().map_err(failed)?, &name));
            }
            OutputLocation::Slice(slice) => return slice.open(),
        };
        let name = self.name.as_deref().unwrap_or_else(|| plain_name(suggested));
        self.claim(directory, name)?;
        if !self.replaces() {
            refuse_existing(directory, name)?;
        }
        let ours = directory.try_clone().map_err(|source| cannot_create(directory, name, source))?;
        PartFile::open_in(ours, name)
    }

    /// Opens and locks the partial file of the first name, if need be with a number, of which there
    /// is neither a file nor a partial file of another job; should a file get the name meanwhile,
    /// [`PartFile::finish`] takes a further one. A partial file without a usable journal is of no
    /// job.
    ///
    /// With `resumes`, the first name's partial file is used even where a file of the name exists.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if no name is free; see also [`PartFile::open_in`].
    pub fn open_numbered(
        &self,
        suggested: Option<&str>,
        resumes: bool,
        is_ours: impl Fn(&Journal) -> bool,
    ) -> Result<PartFile, OutputError> {
        let OutputLocation::Directory(directory) = &self.location else { return self.open(suggested) };
        let first = self.name.as_deref().unwrap_or_else(|| plain_name(suggested));
        for (name, is_first) in numbered(first).zip(std::iter::once(true).chain(std::iter::repeat(false))) {
            let is_free = match directory.look(&name, false) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                Err(source) => return Err(cannot_create(directory, &name, source)),
                Ok(_) => false,
            };
            let may_take = match journal_of(directory, &name) {
                Ok(StoredJournal::Sound(_)) if resumes && is_first => true,
                Ok(StoredJournal::Sound(journal)) => is_free && is_ours(&journal),
                Ok(StoredJournal::Absent | StoredJournal::Damaged { .. }) => is_free,
                Err(_) => false,
            };
            if !may_take {
                continue;
            }
            let ours = directory.try_clone().map_err(|source| cannot_create(directory, &name, source))?;
            match PartFile::open_in(ours, &name) {
                Err(OutputError::Busy(_)) if !(resumes && is_first) => {}
                opened => return opened.map(|part| part.numbering(first)),
            }
        }
        Err(OutputError::Exists(directory.path_of(first)))
    }

    /// Takes the place of `name`, before an existing file of this name is judged: it may be that of
    /// another URL.
    fn claim(&self, directory: &Directory, name: &OsStr) -> Result<(), OutputError> {
        let Some(claims) = self.claims.as_ref().filter(|_| self.taken.get().is_none_or(|own| *own != *name))
        else {
            return Ok(());
        };
        let identity = directory.identity().map_err(|source| cannot_create(directory, name, source))?;
        if !claims.take(OutputPlace { directory: identity, name: Some(name.to_owned()) }) {
            let message = format!(
                "cannot write {}: another file of this command has this path; fetch this file alone with -o and another name, or name it with \
                 out= in a list (-i)",
                directory.path_of(name).display()
            );
            return Err(Failure::new(FailureKind::CannotCreate, message).into());
        }
        let _ = self.taken.set(name.to_owned());
        Ok(())
    }
}

/// Validates a suggested name. Refuses names of partial files, by which a server could plant the
/// data that another transfer resumes from, and names that lead to other directories; [`NAMELESS`]
/// takes their place.
fn plain_name(suggested: Option<&str>) -> &OsStr {
    let plain =
        |name: &&str| !matches!(*name, "" | "." | "..") && !name.contains(['/', '\0']) && !is_partial(name);
    OsStr::new(suggested.filter(plain).unwrap_or(NAMELESS))
}

/// Fails if there is a file or another entry of this name.
fn refuse_existing(directory: &Directory, name: &OsStr) -> Result<(), OutputError> {
    match directory.look(name, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(cannot_create(directory, name, source)),
        Ok(_) if directory.is_directory(name) => Err(OutputError::IsDirectory(directory.path_of(name))),
        Ok(_) => Err(OutputError::Exists(directory.path_of(name))),
    }
}

fn cannot_create(directory: &Directory, name: &OsStr, source: io::Error) -> OutputError {
    OutputError::Create { path: directory.path_of(name), source }
}
