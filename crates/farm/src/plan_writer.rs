//! Writes a plan: groups files into units, in bounded memory.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::units::Bytes;

use crate::error::FarmError;
use crate::plan::{FORMAT, HEADER, ID_LENGTH, INDEX, PlanHeader, UNITS, VERSION, entry_of};
use crate::shared_dir;
use crate::target::Target;
use crate::unit::{PlannedFile, Unit};

/// How a plan is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSize {
    /// A unit ends with the file that reaches this size.
    pub bytes: Bytes,
    /// The most files of a unit.
    pub files: usize,
}

impl Default for UnitSize {
    /// About 1 GiB or 1,000 files: seconds to minutes of work, which is what a killed worker loses at most.
    fn default() -> Self {
        Self { bytes: Bytes::mib(1024), files: MAX_UNIT_FILES }
    }
}

/// The most files of a unit.
pub const MAX_UNIT_FILES: usize = 1000;

/// A plan that is being written. It gets its name when it is complete; dropped before, it is removed.
#[derive(Debug)]
pub struct PlanWriter {
    path: PathBuf,
    /// The directory under a temporary name, until the plan is complete.
    unfinished: Option<PathBuf>,
    size: UnitSize,
    header: PlanHeader,
    units: BufWriter<File>,
    index: BufWriter<File>,
    index_digest: blake3::Hasher,
    unit: Unit,
    unit_bytes: Bytes,
    /// 16 bytes of the digest of each path.
    paths: HashSet<[u8; 16]>,
    holds_queries: bool,
}

impl PlanWriter {
    /// Begins a plan at `path` for files into the absolute path `target`.
    ///
    /// # Errors
    /// [`FarmError::Exists`], or that the directory cannot be made.
    pub fn create(path: &Path, target: &Path, size: UnitSize, lease: Duration) -> Result<Self, FarmError> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(FarmError::Exists(path.to_owned()));
        }
        let id = format!("{:0ID_LENGTH$x}", fastrand::u64(..));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{id}~"));
        let unfinished = path.with_file_name(name);
        fs::create_dir(&unfinished).map_err(FarmError::io("make the directory", &unfinished))?;
        let create = |name| {
            let at = unfinished.join(name);
            File::create_new(&at).map(BufWriter::new).map_err(FarmError::io("create", &at))
        };
        let files = create(UNITS).and_then(|units| Ok((units, create(INDEX)?)));
        let (units, index) = files.inspect_err(|_| drop(fs::remove_dir_all(&unfinished)))?;
        let header = PlanHeader {
            format: FORMAT.to_owned(),
            version: VERSION,
            made_by: env!("CARGO_PKG_VERSION").to_owned(),
            id,
            target: target.to_owned(),
            source: String::new(),
            lease,
            units: 0,
            files: 0,
            bytes: Bytes::ZERO,
            files_of_unknown_size: 0,
            left_out: 0,
            units_length: 0,
            index: String::new(),
            checksum: String::new(),
        };
        Ok(Self {
            path: path.to_owned(),
            unfinished: Some(unfinished),
            size,
            header,
            units,
            index,
            index_digest: blake3::Hasher::new(),
            unit: Unit { files: Vec::new() },
            unit_bytes: Bytes::ZERO,
            paths: HashSet::new(),
            holds_queries: false,
        })
    }

    /// Counts an entry of the sources that cannot be planned.
    pub fn leave_out(&mut self) {
        self.header.left_out += 1;
    }

    /// Returns whether a URL has a query, which may be a signature: then only the user can read the plan.
    pub fn holds_queries(&self) -> bool {
        self.holds_queries
    }

    /// Adds a file.
    ///
    /// # Errors
    /// [`FarmError::Twice`], or that the plan cannot be written.
    pub fn add(&mut self, file: PlannedFile) -> Result<(), FarmError> {
        let mut digest = [0; 16];
        digest.copy_from_slice(&blake3::hash(file.path.as_os_str().as_bytes()).as_bytes()[..16]);
        if !self.paths.insert(digest) {
            return Err(FarmError::Twice(file.path));
        }
        if !self.holds_queries && file.urls.iter().any(|url| url.contains('?')) {
            let set = self.units.get_ref().set_permissions(fs::Permissions::from_mode(0o600));
            set.map_err(FarmError::io("set the mode of the units of", &self.path))?;
            self.holds_queries = true;
        }
        if self.header.source.is_empty() {
            self.header.source = file.urls.first().cloned().unwrap_or_default();
        }
        self.header.files += 1;
        self.header.files_of_unknown_size += u64::from(file.size.is_none());
        self.unit_bytes += file.size.unwrap_or_default();
        self.unit.files.push(file);
        if self.unit_bytes >= self.size.bytes || self.unit.files.len() >= self.size.files {
            self.end_unit()?;
        }
        Ok(())
    }

    fn end_unit(&mut self) -> Result<(), FarmError> {
        let failed = |source| FarmError::Io { operation: "write", path: self.path.clone(), source };
        let mut line = serde_json::to_vec(&self.unit).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let entry = entry_of(self.header.units_length, &line);
        self.units.write_all(&line).and_then(|()| self.index.write_all(&entry)).map_err(failed)?;
        self.index_digest.update(&entry);
        self.header.units = self.header.units.checked_add(1).ok_or(FarmError::TooLarge)?;
        self.header.units_length += line.len() as u64;
        self.header.bytes += self.unit_bytes;
        self.unit.files.clear();
        self.unit_bytes = Bytes::ZERO;
        Ok(())
    }

    /// Completes the plan: syncs it, and gives it its name.
    ///
    /// # Errors
    /// [`FarmError::Empty`], [`FarmError::Exists`], or that the plan cannot be written.
    pub fn finish(mut self) -> Result<PlanHeader, FarmError> {
        if !self.unit.files.is_empty() {
            self.end_unit()?;
        }
        if self.header.units == 0 {
            return Err(FarmError::Empty);
        }
        self.header.index = self.index_digest.finalize().to_hex().to_string();
        self.header.checksum = self.header.digest();
        let Some(unfinished) = self.unfinished.clone() else { return Err(FarmError::Empty) };
        let at = unfinished.join(HEADER);
        let mut write = || -> std::io::Result<()> {
            let mut text = serde_json::to_vec_pretty(&self.header)?;
            text.push(b'\n');
            let mode = if self.holds_queries { 0o600 } else { 0o666 };
            let mut header = File::options().write(true).create_new(true).mode(mode).open(&at)?;
            header.write_all(&text)?;
            for file in [&mut self.units, &mut self.index] {
                file.flush()?;
                file.get_ref().sync_all()?;
            }
            header.sync_all()?;
            shared_dir::make_directories(&unfinished.join(self.header.state()))?;
            File::open(&unfinished)?.sync_all()
        };
        write().map_err(FarmError::io("write", &at))?;
        Target::create(&self.header)?;
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
            let _ = fs::remove_dir_all(self.header.staging());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::unit::UnitId;

    fn file(number: u64) -> PlannedFile {
        PlannedFile {
            urls: vec![format!("http://h/{number}")],
            path: format!("d/{number}").into(),
            size: Some(Bytes::new(number)),
            modified: None,
            checksum: None,
        }
    }

    /// Writes a plan of the files 1 to `count`.
    fn write(path: &Path, count: u64, size: UnitSize) -> Result<PlanHeader, FarmError> {
        let mut writer = PlanWriter::create(path, &path.with_file_name("t"), size, Duration::from_secs(30))?;
        (1..=count).try_for_each(|number| writer.add(file(number)))?;
        writer.finish()
    }

    #[test]
    fn units_end_by_bytes_or_files_and_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let header = write(&path, 9, UnitSize { bytes: Bytes::new(10), files: 3 }).unwrap();
        assert_eq!((header.units, header.files, header.bytes), (4, 9, Bytes::new(45)));
        assert_eq!(header.source, "http://h/1");
        let plan = Plan::open(&path).unwrap();
        assert_eq!(plan.header(), &header);
        let units: Vec<usize> = plan.ids().map(|id| plan.unit(id).unwrap().files.len()).collect();
        assert_eq!(units, [3, 3, 2, 1]);
        assert_eq!(plan.unit(UnitId(3)).unwrap().files, [file(9)]);
        assert!(matches!(write(&path, 1, UnitSize::default()), Err(FarmError::Exists(_))));
        let again = dir.path().join("q");
        assert!(matches!(write(&again, 0, UnitSize::default()), Err(FarmError::Empty)));
        let mut writer =
            PlanWriter::create(&again, Path::new("/t"), UnitSize::default(), Duration::ZERO).unwrap();
        writer.add(file(1)).unwrap();
        assert!(matches!(writer.add(file(1)), Err(FarmError::Twice(_))));
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "what is not complete is removed");
    }

    #[test]
    fn edited_truncated_and_newer_plans_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        write(&path, 5, UnitSize { bytes: Bytes::new(1), files: 3 }).unwrap();
        let read = |name: &str| fs::read(path.join(name)).unwrap();
        let replaced = |name: &str, from: &str, to: &str| {
            String::from_utf8(read(name)).unwrap().replacen(from, to, 1).into_bytes()
        };
        let half = |name: &str| read(name)[..read(name).len() / 2].to_vec();
        let mut index = read(INDEX);
        index[0] ^= 1;
        for (name, content, words) in [
            (HEADER, replaced(HEADER, "/t\"", "/u\""), "plan.json was edited"),
            (HEADER, half(HEADER), "truncated"),
            (HEADER, replaced(HEADER, "\"version\": 1", "\"version\": 2"), "version 2"),
            (HEADER, b"{\"format\":\"x\",\"version\":1}".to_vec(), "is no plan"),
            (INDEX, half(INDEX), "bytes instead of"),
            (INDEX, index, "units.index was edited"),
            (UNITS, half(UNITS), "bytes instead of"),
            (UNITS, replaced(UNITS, "http://h/1", "http://g/1"), "unit 0 in units.jsonl was edited"),
        ] {
            let right = read(name);
            fs::write(path.join(name), content).unwrap();
            let opened = Plan::open(&path).and_then(|plan| plan.unit(UnitId(0)));
            let error = opened.unwrap_err().to_string();
            assert!(error.contains(words), "{name}: {error}");
            fs::write(path.join(name), right).unwrap();
        }
        assert!(Plan::open(&path).unwrap().unit(UnitId(4)).is_ok());
        assert!(matches!(Plan::open(dir.path()), Err(FarmError::NoPlan(_))));
    }

    #[test]
    fn paths_and_ids_that_leave_the_target_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (number, path) in ["/etc/passwd", "../f", "d/../../f", ""].iter().enumerate() {
            let plan = dir.path().join(number.to_string());
            let target = dir.path().join("t");
            let mut writer = PlanWriter::create(&plan, &target, UnitSize::default(), Duration::ZERO).unwrap();
            writer.add(PlannedFile { path: path.into(), ..file(1) }).unwrap();
            writer.finish().unwrap();
            let error = Plan::open(&plan).unwrap().unit(UnitId(0)).unwrap_err();
            assert!(matches!(error, FarmError::Damaged { .. }), "{path}: {error}");
        }
        let path = dir.path().join("p");
        let mut header = write(&path, 1, UnitSize::default()).unwrap();
        header.id = "../../../../../x".to_owned();
        header.checksum = header.digest();
        fs::write(path.join(HEADER), serde_json::to_vec(&header).unwrap()).unwrap();
        assert!(matches!(Plan::open(&path), Err(FarmError::Damaged { .. })));
    }

    #[test]
    fn plan_with_queries_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut writer =
            PlanWriter::create(&path, &dir.path().join("t"), UnitSize::default(), Duration::ZERO).unwrap();
        assert!(!writer.holds_queries());
        writer.add(PlannedFile { urls: vec!["http://h/f?sig=1".into()], ..file(1) }).unwrap();
        assert!(writer.holds_queries());
        writer.finish().unwrap();
        for name in [HEADER, UNITS] {
            let mode = fs::metadata(path.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn last_of_many_units_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let header = write(&path, 20_000, UnitSize { bytes: Bytes::new(1), files: 1 }).unwrap();
        assert_eq!(header.units, 20_000);
        let plan = Plan::open(&path).unwrap();
        assert_eq!(plan.unit(UnitId(19_999)).unwrap().files, [file(20_000)]);
    }
}
