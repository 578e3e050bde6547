//! The last step of a partial file: the atomic rename to its final name.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, Stat, fchmod, fstat};

use super::{ALL_MODES, FileLocation, PartFile};
use crate::sink::output_error::OutputError;
use crate::sink::part_names::numbered;

/// A file under its final name.
#[derive(Debug)]
#[must_use = "its warnings are for the user"]
pub struct Finished {
    /// The file's path.
    pub path: PathBuf,
    /// Steps that failed although the file is complete.
    pub warnings: Vec<String>,
}

impl FileLocation {
    /// Gives the partial file its final name, if need be with a number; returns the name.
    fn rename_new(&self) -> io::Result<OsString> {
        let further = self.numbered.iter().flat_map(|name| numbered(name).skip(1));
        let mut taken = io::ErrorKind::AlreadyExists.into();
        for target in std::iter::once(self.target.clone()).chain(further) {
            match self.directory.rename_new(&self.part, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                renamed => return renamed.map(|()| target),
            }
        }
        Err(taken)
    }
}

impl PartFile {
    /// Makes the content durable and gives the file its final name atomically; the file takes over
    /// the permissions of a replaced one.
    ///
    /// # Errors
    /// [`OutputError::Exists`] if the name exists, `replace` is not set and the name takes no
    /// number, else [`OutputError::Write`]; the partial file then stays.
    pub fn finish(&self, replace: bool) -> Result<Finished, OutputError> {
        self.finish_with(replace, || self.sync_names())
    }

    pub(super) fn finish_with(
        &self,
        replace: bool,
        sync_names: impl FnOnce() -> io::Result<()>,
    ) -> Result<Finished, OutputError> {
        let mut path = self.target_path.clone();
        let failed = |operation, source| {
            let path = self.target_path.clone();
            OutputError::Write { operation, path, source }
        };
        let Some(names) = &self.names else {
            if self.is_slice() {
                self.file.sync_all().map_err(|e| failed("sync", e))?;
            }
            return Ok(Finished { path, warnings: Vec::new() });
        };
        self.check_name()?;
        let kept = self.take_mode(names, replace);
        self.file.sync_all().map_err(|e| failed("sync", e))?;
        // After the rename the temporary name is free, and another transfer may use it.
        names.journal.remove_fresh(&names.directory);
        let renamed = if replace {
            names.directory.rename(&names.part, &names.target)
        } else {
            names.rename_new().map(|target| path = names.directory.path_of(&target))
        };
        if let Err(error) = renamed {
            if let Ok(Some(before)) = kept {
                // Restored, so that the file can be resumed.
                let _ = fchmod(&self.file, before);
            }
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists if !replace => OutputError::Exists(path),
                _ => failed("give the final name to", error),
            });
        }
        names.journal.remove_own(&names.directory);
        let failed_steps = [
            ("cannot be given the permissions of the file that it replaced, or of new files", kept.err()),
            ("its directory cannot be synced: a power failure now could undo the name", sync_names().err()),
        ];
        let warn = |(what, error): (&str, Option<io::Error>)| {
            error.map(|error| format!("{} is complete, but {what}: {error}", path.display()))
        };
        let warnings = failed_steps.into_iter().filter_map(warn).collect();
        Ok(Finished { path, warnings })
    }

    /// Gives the partial file, to which only its owner may write, the permissions of the file to
    /// replace, or those of new files, within those that it may have; returns the previous ones, if
    /// different.
    fn take_mode(&self, names: &FileLocation, replace: bool) -> io::Result<Option<Mode>> {
        let bits = |mode| Mode::from_raw_mode(mode) & ALL_MODES;
        let is_file = |there: &Stat| FileType::from_raw_mode(there.st_mode).is_file();
        let there = names.directory.look(&names.target, false).ok().filter(|there| replace && is_file(there));
        let Some(there) = there.or_else(|| names.directory.look_at_new(0o666).ok()) else { return Ok(None) };
        let (theirs, ours) = (bits(there.st_mode) & self.max_mode, bits(fstat(&self.file)?.st_mode));
        if theirs == ours {
            return Ok(None);
        }
        fchmod(&self.file, theirs)?;
        Ok(Some(ours))
    }
}
