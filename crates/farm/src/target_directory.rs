//! The directory that receives the files of a plan, and the staging directories within it.
//!
//! A worker receives the files of a unit into `TARGET/.longhaul-ID/UNIT-WORKER`, a directory of its
//! own, and renames each complete file to its final name. A file is under its final name only
//! complete, however many workers and plans write into the target.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::directory::Directory;
use rustix::fs::{FileType, renameat};

use crate::error::FarmError;
use crate::files::{self, Comparison};
use crate::plan::PlanHeader;
use crate::store::Claim;
use crate::unit::{PlannedFile, UnitId};

/// The file in the staging directory of a plan whose units are not all done.
const MARKER: &str = "plan";
/// The suffix of the symbolic link that holds the inode of a shared file that is complete.
const JOINED: &str = ".joined";

/// The directory that receives the files of a plan.
#[derive(Debug)]
pub struct TargetDirectory {
    path: PathBuf,
    root: Arc<Directory>,
    staging: PathBuf,
}

impl TargetDirectory {
    /// Makes the target of a new plan, with a marker: without it, the target's file system is not
    /// mounted.
    pub(crate) fn create(header: &PlanHeader) -> Result<(), FarmError> {
        let Some(path) = header.target.directory() else { return Ok(()) };
        let staging = path.join(header.staging());
        let make = || {
            fs::create_dir_all(&staging)?;
            File::create_new(staging.join(MARKER))?.sync_all()?;
            File::open(&staging)?.sync_all()?;
            File::open(path)?.sync_all()
        };
        make().map_err(FarmError::io("make the staging directory", &staging))
    }

    /// Opens the target of a plan; `None` if its workers upload.
    ///
    /// # Errors
    /// [`FarmError::NoTarget`], or that the directory cannot be opened.
    pub fn open(header: &PlanHeader) -> Result<Option<Self>, FarmError> {
        let Some(path) = header.target.directory().map(Path::to_owned) else { return Ok(None) };
        let root = match Directory::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FarmError::NoTarget(path)),
            opened => Arc::new(opened.map_err(FarmError::io("open the target", &path))?),
        };
        Ok(Some(Self { path, root, staging: header.staging().into() }))
    }

    /// Checks that the directory is the one that was planned, and not an empty mount point.
    ///
    /// # Errors
    /// [`FarmError::NoTarget`]; also if all units are done, whose last worker removes the marker.
    pub fn check_marker(&self) -> Result<(), FarmError> {
        let marker = self.path.join(&self.staging).join(MARKER);
        fs::symlink_metadata(&marker).map(drop).map_err(|_| FarmError::NoTarget(marker))
    }

    /// Returns the open directory.
    pub fn root(&self) -> &Arc<Directory> {
        &self.root
    }

    /// Returns the final path of a file.
    pub fn path_of(&self, file: &PlannedFile) -> PathBuf {
        self.path.join(&file.path)
    }

    /// Returns the size of a file that is there already: its size and time are those of the plan.
    pub fn present(&self, file: &PlannedFile) -> Option<Bytes> {
        let (size, modified) = file.size.zip(file.modified)?;
        let directory = self.root.beneath(file.path.parent()?).ok()?;
        let there = directory.look(file.path.file_name()?, false).ok()?;
        let is_file = FileType::from_raw_mode(there.st_mode).is_file();
        let same =
            u64::try_from(there.st_size) == Ok(size.get()) && u64::try_from(there.st_mtime) == Ok(modified);
        (is_file && same).then_some(size)
    }

    /// Returns the staging directory of a unit, below the target.
    pub(crate) fn staging_of(&self, unit: UnitId, worker: &str) -> PathBuf {
        self.staging.join(format!("{unit}-{worker}"))
    }

    /// Makes the staging directory of a unit, which is below the target; takes over that of a
    /// worker that was stopped within the unit.
    pub(crate) fn stage(&self, claim: &Claim, stage: &Path) -> Result<(), FarmError> {
        let make = || {
            if let Some(other) = &claim.left_by {
                // The rename succeeds for one worker. Without the directory, the unit begins anew.
                let left = self.path.join(self.staging_of(claim.unit, other));
                let _ = fs::rename(left, self.path.join(stage));
            }
            self.root.make_beneath(stage)
        };
        make().map_err(FarmError::io("make the staging directory", &self.path.join(stage)))
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file whose ranges several workers write, below the target.
    pub(crate) fn shared_file(&self, joined_by: UnitId) -> PathBuf {
        self.staging.join(format!("file-{joined_by}"))
    }

    /// Checks a file whose ranges are all there, sets its time, and records that it may have its
    /// name; returns what is wrong with it. `count` receives the bytes that are read.
    pub(crate) fn complete(
        &self,
        shared: &Path,
        file: &PlannedFile,
        cancel: &Cancel,
        count: &dyn Fn(Bytes),
    ) -> Result<(), String> {
        let path = self.path.join(shared);
        match files::compare_at(&path, file, cancel, count) {
            Comparison::Equal => {}
            Comparison::Differs(how) => {
                return Err(format!("{} {how}; what was fetched is {}", file.path.display(), path.display()));
            }
            Comparison::Cancelled => return Err("stopped".to_owned()),
        }
        let complete = || {
            let directory = self.root.beneath(&self.staging)?;
            let open = directory.open_file(shared.file_name().unwrap_or_default())?;
            if let Some(modified) = file.modified() {
                open.set_modified(modified)?;
            }
            open.sync_all()?;
            // The name of the shared file is all that a worker finds, or does not, if this one ends
            // after the rename.
            let made = directory.make_link(&open.metadata()?.ino().to_string(), &joined_name(shared));
            made.or_else(
                |error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) },
            )?;
            directory.sync()
        };
        complete().map_err(|error| FarmError::io("complete", &path)(error).to_string())
    }

    /// Returns whether a shared file has got its name already, from a worker that may have ended
    /// before it could log that. `count` receives the bytes that are read.
    pub(crate) fn is_joined(
        &self,
        shared: &Path,
        file: &PlannedFile,
        cancel: &Cancel,
        count: &dyn Fn(Bytes),
    ) -> bool {
        let is_gone = fs::symlink_metadata(self.path.join(shared)).is_err();
        let is_named = || {
            let recorded = fs::read_link(self.path.join(shared).with_file_name(joined_name(shared))).ok()?;
            let named = fs::symlink_metadata(self.path_of(file)).ok()?;
            Some(
                recorded == Path::new(&named.ino().to_string()) && Some(Bytes::new(named.len())) == file.size,
            )
        };
        let is_equal = || files::compare_at(&self.path_of(file), file, cancel, count) == Comparison::Equal;
        let has_checksum = || file.checksum.is_some() && is_equal();
        is_gone && (is_named() == Some(true) || self.present(file).is_some() || has_checksum())
    }

    /// Gives a complete file of a staging directory its final name; its directory is made, and
    /// added to `changed`.
    pub(crate) fn publish(
        &self,
        staged: &Path,
        file: &PlannedFile,
        changed: &mut BTreeSet<PathBuf>,
    ) -> Result<(), FarmError> {
        let mut publish = || -> io::Result<()> {
            let above = file.path.parent().unwrap_or(Path::new(""));
            let mut ancestors: Vec<&Path> = above.ancestors().collect();
            ancestors.reverse();
            for directory in ancestors {
                if changed.insert(directory.to_owned()) {
                    self.root.make_beneath(directory)?;
                }
            }
            let from = self.root.beneath(staged.parent().unwrap_or(Path::new("")))?;
            let to = self.root.beneath(above)?;
            let name = |path: &Path| path.file_name().unwrap_or(OsStr::new("")).to_owned();
            Ok(renameat(&from, name(staged), &to, name(&file.path))?)
        };
        publish().map_err(FarmError::io("name the file", &self.path_of(file)))
    }

    /// Syncs the directories of a unit, so that its files keep their names after a power failure;
    /// removes its staging directory.
    pub(crate) fn settle(&self, stage: &Path, changed: &BTreeSet<PathBuf>) -> Result<(), FarmError> {
        for directory in changed {
            let synced = self.root.beneath(directory).and_then(|directory| directory.sync());
            synced.map_err(FarmError::io("sync", &self.path.join(directory)))?;
        }
        // What is left in it is not of this worker's files; it then stays until the plan is done.
        let _ = fs::remove_dir(self.path.join(stage));
        Ok(())
    }

    /// Removes what workers that were killed have left, once all units are done.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn clean(&self) -> Result<(), FarmError> {
        let staging = self.path.join(&self.staging);
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FarmError::io("remove the staging directory", &staging)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the name of the link that says that a shared file is complete.
fn joined_name(shared: &Path) -> OsString {
    let mut name = shared.file_name().unwrap_or_default().to_owned();
    name.push(JOINED);
    name
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::plan::Plan;
    use crate::plan_writer::{PlanWriter, UnitSize};

    #[test]
    fn join_that_is_repeated_finds_its_file_whatever_a_late_writer_did_to_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let plan = dir.path().join("p");
        let (size, modified) = (Some(Bytes::new(3)), Some(7));
        let file =
            PlannedFile { urls: vec!["http://h/f".into()], path: "f".into(), size, modified, checksum: None };
        let lease = Duration::from_secs(30);
        let mut writer =
            PlanWriter::create(&plan, &dir.path().join("t"), UnitSize::default(), lease).unwrap();
        writer.add(file.clone()).unwrap();
        writer.finish().unwrap();
        let target = TargetDirectory::open(Plan::open(&plan).unwrap().header()).unwrap().unwrap();
        let (shared, cancel) = (target.shared_file(UnitId(3)), Cancel::new());
        let named = target.path_of(&file);
        fs::write(target.path.join(&shared), "abc").unwrap();
        // As a worker does it that ends before it has logged the unit.
        target.complete(&shared, &file, &cancel, &|_| ()).unwrap();
        assert!(!target.is_joined(&shared, &file, &cancel, &|_| ()));
        target.publish(&shared, &file, &mut BTreeSet::new()).unwrap();
        File::options().write(true).open(&named).unwrap().set_modified(SystemTime::now()).unwrap();
        assert_eq!(target.present(&file), None);
        assert!(target.is_joined(&shared, &file, &cancel, &|_| ()));
        // Another file has its name.
        fs::rename(&named, dir.path().join("moved")).unwrap();
        fs::write(&named, "xyz").unwrap();
        assert!(!target.is_joined(&shared, &file, &cancel, &|_| ()));
        // Neither is one that was not read to its end.
        let checksum = "md5:d16fb36f0911f878998c136191af705e".parse().ok();
        let with_checksum = PlannedFile { checksum, ..file };
        assert!(target.is_joined(&shared, &with_checksum, &cancel, &|_| ()));
        cancel.cancel();
        assert!(!target.is_joined(&shared, &with_checksum, &cancel, &|_| ()));
    }
}
