//! Adds local files and directories to a plan, to be copied or uploaded by its workers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::tree::{LocalEntry, LocalFile, LocalWalk, Walked};
use longhaul_farm::plan_writer::PlanWriter;
use longhaul_farm::unit::{PlannedFile, seconds_of};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::getuid;

use super::make::{LeftOut, PlanRequest};
use super::sources::refuse_source_in;
use crate::commands::get::url_list::ListedFile;
use crate::exit;

/// The permissions of a new directory, as far as the umask permits them.
const ANY_MODE: u32 = 0o777;
/// The permissions that the owner of a new directory has in any case: files are put into it.
const OWNERS_MODE: u32 = 0o700;

impl PlanRequest<'_> {
    /// Adds a file, or a directory with all below it.
    pub(super) fn add_local(
        &self,
        writer: &mut PlanWriter,
        path: &Path,
        left_out: &mut LeftOut,
    ) -> anyhow::Result<()> {
        let refused = |error: anyhow::Error| exit::not_set_up(&error, &self.cancel);
        if !path.is_dir() {
            let file = planned(path, None).map_err(refused)?;
            return self.add_planned(writer, file);
        }
        let shown = path.display();
        if !self.args.recursive {
            bail!(refused(anyhow!("{shown} is a directory: plan all below it by -r")));
        }
        let below = match self.sources.len() {
            1 => PathBuf::new(),
            _ => named_after(path).map_err(refused)?.into(),
        };
        for walked in LocalWalk::new(path, &self.cancel)? {
            match walked {
                Walked::File(LocalEntry::File(file)) => {
                    if let Err(error) = check_readable(&file.path, file.mode, file.owner) {
                        left_out.add(writer, &unreadable(&file.path, error));
                        continue;
                    }
                    let LocalFile { below: name, size, modified, .. } = file;
                    let to = below.join(&name);
                    self.add_planned(writer, PlannedFile::of_local(path, &name, to, size, modified))?;
                }
                Walked::File(LocalEntry::Directory(directory)) => {
                    // One that has vanished since is empty.
                    let mode = fs::metadata(path.join(&directory)).map_or(ANY_MODE, |found| found.mode());
                    let to = below.join(&directory);
                    writer.add_directory(&to)?;
                    self.add_directory(&to, mode);
                }
                Walked::Skipped { what, why } => tracing::warn!("leaving out {what}: {why}"),
                Walked::Failed(error) => left_out.add(writer, &error.failure),
            }
        }
        Ok(())
    }

    /// Adds a file of a list.
    pub(super) fn add_listed_local(
        &self,
        writer: &mut PlanWriter,
        source: &Path,
        listed: ListedFile,
    ) -> anyhow::Result<()> {
        let shown = source.display();
        if listed.urls.len() > 1 {
            bail!("{shown}: a local file has no mirrors; write one URL for it");
        }
        refuse_source_in(&self.target, source)?;
        let mut file = planned(source, listed.name.map(PathBuf::from))?;
        if listed.size.is_some() && listed.size != file.size {
            let found = file.size.unwrap_or_default().get();
            bail!("{shown} has {found} bytes, and size= in the list demands another size");
        }
        file.checksum = listed.checksum;
        self.add_directory(file.path.parent().unwrap_or(Path::new("")), ANY_MODE);
        writer.add(file)?;
        Ok(())
    }

    fn add_planned(&self, writer: &mut PlanWriter, file: PlannedFile) -> anyhow::Result<()> {
        self.add_directory(file.path.parent().unwrap_or(Path::new("")), ANY_MODE);
        Ok(writer.add(file)?)
    }

    /// Notes a directory of the target, and those above it, to be made with at most this mode.
    fn add_directory(&self, below: &Path, mode: u32) {
        let mut directories = self.directories.lock();
        for (depth, path) in below.ancestors().enumerate() {
            let mode = if depth == 0 { mode } else { ANY_MODE };
            match directories.get_mut(path) {
                Some(noted) if depth == 0 => *noted &= mode,
                Some(_) => break,
                None => drop(directories.insert(path.to_owned(), mode)),
            }
        }
    }

    /// Makes the directories of the target: after the walks, which must not meet them.
    pub(super) fn make_directories(&self) -> Result<(), Failure> {
        let directories = std::mem::take(&mut *self.directories.lock());
        match (&self.uploads, self.target.directory()) {
            (Some(uploads), _) => {
                directories.keys().try_for_each(|below| uploads.make(below, &self.cancel).map(drop))
            }
            (None, Some(target)) => make_local(target, &directories),
            (None, None) => Ok(()),
        }
    }
}

/// Makes directories below `target`, each before those within it, without following symbolic links
/// there.
fn make_local(target: &Path, directories: &BTreeMap<PathBuf, u32>) -> Result<(), Failure> {
    let mut root = None;
    for (below, mode) in directories {
        let mode = mode | OWNERS_MODE;
        let mut make = || match &root {
            Some(root) => Directory::make_beneath_with(root, below, mode),
            // The first path is empty.
            None => {
                DirBuilder::new().recursive(true).mode(mode & ANY_MODE).create(target)?;
                root = Some(Directory::open(target)?);
                Ok(())
            }
        };
        make().map_err(|error| {
            let path = target.join(below);
            let message = format!(
                "cannot make the directory {}: {error}; remove what is there, or give another target",
                path.display()
            );
            Failure::new(FailureKind::CannotCreate, message)
        })?;
    }
    Ok(())
}

/// Creates the failure of a file that the user cannot read.
fn unreadable(path: &Path, error: Errno) -> Failure {
    let (kind, remedy) = match error {
        Errno::ACCESS => (FailureKind::Denied, "; permit it, and make the plan anew"),
        _ => (FailureKind::NotFound, ""),
    };
    let (shown, error) = (path.display(), io::Error::from(error));
    Failure::new(kind, format!("cannot read {shown}: {error}{remedy}"))
}

/// Checks that the user can read a file of this mode and owner.
fn check_readable(path: &Path, mode: u32, owner: u32) -> Result<(), Errno> {
    if is_readable_by(getuid().as_raw(), mode, owner) { Ok(()) } else { access(path, Access::READ_OK) }
}

/// Returns whether the mode of a file permits a user to read it, so that the file server need not
/// be asked for each of a million files. A group's bits alone prove nothing, and a server may take
/// root for another user.
fn is_readable_by(user: u32, mode: u32, owner: u32) -> bool {
    let is_owner = user == owner && user != 0;
    if is_owner { mode & 0o400 > 0 } else { mode & 0o044 == 0o044 }
}

/// Describes a local file as it is now; `path` is below the target, by default its name.
fn planned(source: &Path, path: Option<PathBuf>) -> anyhow::Result<PlannedFile> {
    let shown = source.display();
    let found = fs::metadata(source).with_context(|| format!("cannot read {shown}"))?;
    if found.is_dir() {
        bail!("{shown} is a directory: plan all below it by -r");
    }
    if !found.is_file() {
        bail!("{shown} is neither a file nor a directory");
    }
    let path = path.map_or_else(|| named_after(source).map(PathBuf::from), Ok)?;
    if path.file_name().is_some_and(|name| is_partial(name.as_encoded_bytes())) {
        bail!("{shown}: partial files have such names; give another by out=NAME in a list (-i)");
    }
    check_readable(source, found.mode(), found.uid())
        .map_err(io::Error::from)
        .with_context(|| format!("cannot read {shown}"))?;
    let modified = found.modified().ok().and_then(seconds_of);
    // Workers follow no link at the last name, which may be replaced by one.
    let is_link = fs::symlink_metadata(source).is_ok_and(|found| found.is_symlink());
    let resolved = if is_link { source.canonicalize() } else { Ok(source.to_owned()) };
    let resolved = resolved.with_context(|| format!("cannot read {shown}"))?;
    let (root, below) = (resolved.parent().unwrap_or(Path::new("/")), Path::new(named_after(&resolved)?));
    Ok(PlannedFile::of_local(root, below, path, Bytes::new(found.len()), modified))
}

fn named_after(path: &Path) -> anyhow::Result<&OsStr> {
    path.file_name().with_context(|| format!("{} has no name: plan what it holds", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_asked_only_for_files_whose_mode_does_not_permit_reading() {
        for (user, mode, owner, is_readable) in [
            (7, 0o100_400, 7, true),
            (7, 0o100_044, 7, false),
            (7, 0o100_644, 8, true),
            (7, 0o100_640, 8, false),
            (7, 0o100_604, 8, false),
            (0, 0o100_600, 0, false),
            (0, 0o100_644, 0, true),
        ] {
            assert_eq!(is_readable_by(user, mode, owner), is_readable, "{user} {mode:o} {owner}");
        }
    }

    #[test]
    fn only_a_file_that_is_denied_can_be_permitted() {
        for (error, kind, is_permitted) in
            [(Errno::ACCESS, FailureKind::Denied, true), (Errno::STALE, FailureKind::NotFound, false)]
        {
            let failure = unreadable(Path::new("f"), error);
            assert_eq!((failure.kind, failure.to_string().contains("permit it")), (kind, is_permitted));
        }
    }
}
