//! Adds local files and directories to a plan, to be copied or uploaded by its workers.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::tree::{LocalEntry, LocalFile, LocalWalk, Walked};
use longhaul_farm::plan_writer::PlanWriter;
use longhaul_farm::unit::{PlannedFile, seconds_of};

use super::make::{LeftOut, PlanRequest};
use crate::commands::get::url_list::ListedFile;
use crate::exit;

impl PlanRequest<'_> {
    /// Adds a file, or a directory with all below it.
    pub(super) fn add_local(
        &self,
        writer: &mut PlanWriter,
        path: &Path,
        left_out: &mut LeftOut,
    ) -> Result<(), exit::Code> {
        let refused = |error: anyhow::Error| exit::not_set_up(&error, &self.cancel);
        if !path.is_dir() {
            let file = planned(path, None).map_err(refused)?;
            return self.add_planned(writer, file);
        }
        let shown = path.display();
        if !self.args.recursive {
            return Err(refused(anyhow::anyhow!("{shown} is a directory: plan all below it by -r")));
        }
        let below = match self.sources.len() {
            1 => PathBuf::new(),
            _ => named_after(path).map_err(refused)?.into(),
        };
        let failed = |failure: Failure| exit::said(&failure, exit::of(failure.kind));
        let mut walk = LocalWalk::new(path, &self.cancel).map_err(failed)?;
        while let Some(walked) = walk.next() {
            match walked {
                Walked::File(LocalEntry::File(file)) => {
                    let LocalFile { below: name, size, modified, .. } = file;
                    let to = below.join(&name);
                    self.add_planned(writer, PlannedFile::of_local(path, &name, to, size, modified))?;
                }
                Walked::File(LocalEntry::Directory(directory)) => {
                    match self.make_directory(&below.join(&directory)) {
                        Ok(()) => {}
                        // Nothing can be planned of this source.
                        Err(failure) if directory.as_os_str().is_empty() => return Err(failed(failure)),
                        Err(_) if self.cancel.is_cancelled() => break,
                        Err(failure) => {
                            walk.skip_directory();
                            left_out.add(writer, &failure);
                        }
                    }
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
        let mut file = planned(source, listed.name.map(PathBuf::from))?;
        if listed.size.is_some() && listed.size != file.size {
            let found = file.size.unwrap_or_default().get();
            bail!("{shown} has {found} bytes, and size= in the list demands another size");
        }
        file.checksum = listed.checksum;
        self.make_directory(file.path.parent().unwrap_or(Path::new("")))?;
        writer.add(file)?;
        Ok(())
    }

    fn add_planned(&self, writer: &mut PlanWriter, file: PlannedFile) -> Result<(), exit::Code> {
        let made = self.make_directory(file.path.parent().unwrap_or(Path::new("")));
        made.map_err(|failure| exit::said(&failure, exit::of(failure.kind)))?;
        writer.add(file).map_err(|error| exit::said(&error, exit::of(error.kind())))
    }

    /// Makes a directory of the target, once.
    fn make_directory(&self, below: &Path) -> Result<(), Failure> {
        if self.made.lock().contains(below) {
            return Ok(());
        }
        match (&self.uploads, self.target.directory()) {
            (Some(uploads), _) => {
                uploads.make(below, &self.cancel)?;
            }
            (None, Some(target)) => {
                let path = target.join(below);
                fs::create_dir_all(&path).map_err(|error| {
                    let message = format!("cannot make the directory {}: {error}", path.display());
                    Failure::new(FailureKind::CannotCreate, message)
                })?;
            }
            (None, None) => {}
        }
        self.made.lock().insert(below.to_owned());
        Ok(())
    }
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
