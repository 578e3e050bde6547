//! Writes a plan: groups files into units, in bounded memory.

mod planned_paths;
mod unit_files;

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::units::Bytes;
use planned_paths::PlannedPaths;
use unit_files::UnitFiles;

use crate::budget::FarmLimits;
use crate::error::FarmError;
use crate::plan::{
    FORMAT, HEADER, ID_LENGTH, MAX_FILE_RANGES, MAX_UNITS_LENGTH, PlanCounts, PlanFormat, PlanHeader,
    VERSION, VERSION_OF_FILES, VERSION_OF_RANGES,
};
use crate::plan_target::PlanTarget;
use crate::shared_dir;
use crate::target_directory::TargetDirectory;
use crate::unit::{FilePart, PlannedFile, Unit, UnitId, seconds_of};

/// How a plan is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSize {
    /// A unit ends with the file that reaches this size.
    pub bytes: Bytes,
    /// The most files of a unit.
    pub files: usize,
}

impl Default for UnitSize {
    /// About 1 GiB or 1,000 files: seconds to minutes of work, which is what a killed worker loses
    /// at most.
    fn default() -> Self {
        Self { bytes: Bytes::mib(1024), files: MAX_UNIT_FILES }
    }
}

/// The most files of a unit.
pub const MAX_UNIT_FILES: usize = 1000;

/// The alignment of ranges: hosts share no page, nor a stripe of most parallel file systems.
const RANGE_ALIGNMENT: u64 = 1 << 20;

/// A plan that is being written. It gets its name when it is complete; dropped before, it is
/// removed.
#[derive(Debug)]
pub struct PlanWriter {
    path: PathBuf,
    /// The directory under a temporary name, until the plan is complete.
    unfinished: Option<PathBuf>,
    size: UnitSize,
    limits: FarmLimits,
    header: PlanHeader,
    files: UnitFiles,
    growing: GrowingUnit,
    paths: PlannedPaths,
    holds_queries: bool,
    /// Whether the target's file system has symbolic links, which ranges of a file need.
    has_links: OnceCell<bool>,
}

/// The unit that is not yet written: further files may be added.
#[derive(Debug, Default)]
struct GrowingUnit {
    unit: Unit,
    bytes: Bytes,
}

impl PlanWriter {
    /// Begins a plan at `path` for files into `target`.
    ///
    /// # Errors
    /// [`FarmError::Exists`], or that the directory cannot be made.
    pub fn create(
        path: &Path,
        target: impl Into<PlanTarget>,
        size: UnitSize,
        lease: Duration,
    ) -> Result<Self, FarmError> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(FarmError::Exists(path.to_owned()));
        }
        let id = format!("{:0ID_LENGTH$x}", fastrand::u64(..));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{id}~"));
        let unfinished = path.with_file_name(name);
        fs::create_dir(&unfinished).map_err(FarmError::io("make the directory", &unfinished))?;
        let files = UnitFiles::create(&unfinished).inspect_err(|_| drop(fs::remove_dir_all(&unfinished)))?;
        let target = target.into();
        let header = PlanHeader {
            format: PlanFormat {
                format: FORMAT.to_owned(),
                version: VERSION_OF_FILES,
                made_by: env!("CARGO_PKG_VERSION").to_owned(),
            },
            id,
            source: target.server().map_or_else(String::new, ToString::to_string),
            target,
            lease,
            counts: PlanCounts::default(),
            units_length: 0,
            index: String::new(),
            checksum: String::new(),
        };
        Ok(Self {
            path: path.to_owned(),
            unfinished: Some(unfinished),
            size,
            limits: FarmLimits::default(),
            header,
            files,
            growing: GrowingUnit::default(),
            paths: PlannedPaths::default(),
            holds_queries: false,
            has_links: OnceCell::new(),
        })
    }

    /// Sets the limits of all workers.
    pub fn set_limits(&mut self, limits: FarmLimits) {
        self.limits = limits;
    }

    /// Counts an entry of the sources that cannot be planned.
    pub fn leave_out(&mut self) {
        self.header.counts.left_out += 1;
    }

    /// Returns whether a URL has a query, which may be a signature: then only the user can read the
    /// plan.
    pub fn holds_queries(&self) -> bool {
        self.holds_queries
    }

    /// Adds a file that one worker fetches.
    ///
    /// # Errors
    /// [`FarmError::Twice`], [`FarmError::FileAndDirectory`], or that the plan cannot be written.
    pub fn add(&mut self, file: PlannedFile) -> Result<(), FarmError> {
        self.count(&file)?;
        let GrowingUnit { unit, bytes } = &mut self.growing;
        *bytes += file.size.unwrap_or_default();
        unit.files.push(file);
        if *bytes >= self.size.bytes || unit.files.len() >= self.size.files {
            self.end_unit()?;
        }
        Ok(())
    }

    /// Notes a directory of the target, which no file may replace.
    ///
    /// # Errors
    /// [`FarmError::FileAndDirectory`].
    pub fn add_directory(&mut self, path: &Path) -> Result<(), FarmError> {
        self.paths.add_directory(path)
    }

    fn count(&mut self, file: &PlannedFile) -> Result<(), FarmError> {
        self.paths.add_file(&file.path)?;
        if !self.holds_queries && file.urls.iter().any(|url| url.contains('?')) {
            let private = self.files.make_private();
            private.map_err(FarmError::io("set the mode of the units of", &self.path))?;
            self.holds_queries = true;
        }
        if file.local_source().is_some() {
            self.require_version(VERSION);
        } else if self.header.source.is_empty() {
            self.header.source = file.urls.first().cloned().unwrap_or_default();
        }
        self.header.counts.files += 1;
        self.header.counts.files_of_unknown_size += u64::from(file.size.is_none());
        Ok(())
    }

    /// Returns whether a file is to be fetched in ranges if those of its server combine: what is
    /// known of it proves in the end that they are of one state, and no worker would find it
    /// complete.
    pub fn is_cut(&self, file: &PlannedFile) -> bool {
        let Some((size, directory)) = file.size.zip(self.header.target.directory()) else { return false };
        // A late worker of a range would copy another state of the source into the finished file.
        if file.local_source().is_some() {
            return false;
        }
        let is_proved = file.modified.is_some() || file.checksum.is_some();
        let there = || fs::symlink_metadata(directory.join(&file.path)).ok();
        let is_there = || {
            there().is_some_and(|there| {
                there.len() == size.get() && there.modified().ok().and_then(seconds_of) == file.modified
            })
        };
        let ranges = size.get().div_ceil(self.range_length());
        let is_huge = (3..=u64::from(MAX_FILE_RANGES)).contains(&ranges);
        is_huge && is_proved && file.urls.len() == 1 && !is_there() && self.has_links(directory)
    }

    /// Returns whether symbolic links can be made in the target, or where it is going to be made.
    fn has_links(&self, target: &Path) -> bool {
        *self.has_links.get_or_init(|| {
            let existing = target.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
            let link = existing.unwrap_or(target).join(format!(".longhaul-{}.link", self.header.id));
            let made = symlink(&self.header.id, &link).and_then(|()| fs::remove_file(&link));
            made.inspect_err(|error| {
                tracing::warn!(
                    "no file is cut into ranges: a symbolic link cannot be made in {}: {error}; one worker fetches each huge file",
                    target.display()
                );
            })
            .is_ok()
        })
    }

    fn range_length(&self) -> u64 {
        self.size.bytes.get().max(1).checked_next_multiple_of(RANGE_ALIGNMENT).unwrap_or(u64::MAX)
    }

    /// Adds a file whose ranges combine: if it [is to be cut](Self::is_cut), a unit for each range,
    /// and one that joins them.
    ///
    /// # Errors
    /// [`FarmError::Twice`], [`FarmError::FileAndDirectory`], [`FarmError::TooLarge`], or that the
    /// plan cannot be written.
    pub fn add_in_ranges(&mut self, file: PlannedFile) -> Result<(), FarmError> {
        if !self.is_cut(&file) {
            return self.add(file);
        }
        self.count(&file)?;
        self.end_unit()?;
        let (length, size) = (self.range_length(), file.size.unwrap_or_default().get());
        let ranges = u32::try_from(size.div_ceil(length)).map_err(|_| FarmError::TooLarge)?;
        let joined_by = UnitId(self.header.counts.units.checked_add(ranges).ok_or(FarmError::TooLarge)?);
        for range in 0..u64::from(ranges) {
            let (start, end) = (range * length, (range + 1).saturating_mul(length).min(size));
            let part = Some(FilePart::Range { start, end, joined_by });
            self.write(&Unit { files: vec![file.clone()], part }, Bytes::new(end - start))?;
        }
        self.require_version(VERSION_OF_RANGES);
        self.write(&Unit { files: vec![file], part: Some(FilePart::Join { ranges }) }, Bytes::ZERO)
    }

    /// Makes the plan one of at least this version.
    fn require_version(&mut self, version: u32) {
        self.header.format.version = self.header.format.version.max(version);
    }

    /// Writes the unit that files were added to, if any.
    fn end_unit(&mut self) -> Result<(), FarmError> {
        let GrowingUnit { unit, bytes } = std::mem::take(&mut self.growing);
        if unit.files.is_empty() { Ok(()) } else { self.write(&unit, bytes) }
    }

    fn write(&mut self, unit: &Unit, bytes: Bytes) -> Result<(), FarmError> {
        let PlanHeader { counts, units_length, .. } = &mut self.header;
        let written = self.files.append(unit, *units_length);
        *units_length += written.map_err(FarmError::io("write", &self.path))?;
        counts.units = counts.units.checked_add(1).ok_or(FarmError::TooLarge)?;
        counts.bytes += bytes;
        if *units_length > MAX_UNITS_LENGTH { Err(FarmError::TooLarge) } else { Ok(()) }
    }

    /// Completes the plan: syncs it, and gives it its name.
    ///
    /// # Errors
    /// [`FarmError::Empty`], [`FarmError::Exists`], or that the plan cannot be written.
    pub fn finish(mut self) -> Result<PlanHeader, FarmError> {
        self.end_unit()?;
        if self.header.counts.units == 0 {
            return Err(FarmError::Empty);
        }
        let is_limited = self.limits != FarmLimits::default();
        if is_limited {
            // A worker of version 1 keeps to no limit.
            self.require_version(VERSION_OF_RANGES);
        }
        self.header.index = self.files.index_digest();
        self.header.checksum = self.header.digest();
        let Some(unfinished) = self.unfinished.clone() else { return Err(FarmError::Empty) };
        let at = unfinished.join(HEADER);
        let mut write = || -> std::io::Result<()> {
            let mut text = serde_json::to_vec_pretty(&self.header)?;
            text.push(b'\n');
            let mode = if self.holds_queries { 0o600 } else { 0o666 };
            let mut header = File::options().write(true).create_new(true).mode(mode).open(&at)?;
            header.write_all(&text)?;
            self.files.sync()?;
            header.sync_all()?;
            shared_dir::make_directories(&unfinished.join(self.header.state()))?;
            File::open(&unfinished)?.sync_all()
        };
        write().map_err(FarmError::io("write", &at))?;
        if is_limited {
            self.limits.store(&unfinished.join(self.header.state()))?;
        }
        TargetDirectory::create(&self.header)?;
        // An empty directory of the name would be replaced by the rename.
        if fs::symlink_metadata(&self.path).is_ok() {
            return Err(FarmError::Exists(self.path.clone()));
        }
        fs::rename(&unfinished, &self.path).map_err(FarmError::io("name the plan", &self.path))?;
        self.unfinished = None;
        let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        File::open(above).and_then(|above| above.sync_all()).map_err(FarmError::io("sync", above))?;
        Ok(self.header.clone())
    }
}

impl Drop for PlanWriter {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = fs::remove_dir_all(unfinished);
            if let Some(directory) = self.header.target.directory() {
                let _ = fs::remove_dir_all(directory.join(self.header.staging()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
