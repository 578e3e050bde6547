//! What became of units: each worker appends lines to a log of its own; every process reads those
//! of all.
//!
//! All that is read only grows, so that the order of lines in different logs has no meaning: a unit
//! that is done remains so; failures are counted, and a retry names how many of them are forgiven.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use longhaul_core::units::Bytes;
use longhaul_engine::input_file;
use serde::{Deserialize, Serialize};

use super::claims::MAX_EPOCH;
use super::heartbeat::is_worker_name;
use crate::error::FarmError;
use crate::explanation::{PlanEvidence, UnitReport};
use crate::lenient;
use crate::store::Tally;
use crate::unit::UnitId;

/// The suffix of logs.
const SUFFIX: &str = ".log";

#[derive(Debug, Serialize, Deserialize)]
struct LogLine {
    unit: UnitId,
    /// That of the claim.
    epoch: u64,
    #[serde(flatten)]
    entry: LogEntry,
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(crate) enum LogEntry {
    /// All files are synced under their final names.
    Done {
        bytes: Bytes,
        /// Left out if it cannot be read: the unit is done all the same.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::if_readable")]
        report: Option<UnitReport>,
    },
    /// It failed on a host.
    Failed { why: String, host: String },
    /// A file system did not answer a host. No failure, and the staging directory is in use.
    Hung { why: String, host: String },
    /// A worker was stopped within it, and has left its staging directory.
    Released { worker: String },
    /// The user has forgiven this number of its failures.
    Retry { failures: u32 },
    /// An entry of a later version.
    #[serde(other)]
    Unknown,
}

/// Appends to the log of one worker.
#[derive(Debug)]
pub(crate) struct UnitLogWriter {
    path: PathBuf,
    file: File,
    /// Whether the last entry may be written in part.
    is_torn: bool,
}

impl UnitLogWriter {
    pub(crate) fn create(directory: &Path, worker: &str) -> Result<Self, FarmError> {
        let path = directory.join(format!("{worker}{SUFFIX}"));
        let create = || {
            let file = File::options().append(true).create_new(true).open(&path)?;
            File::open(directory)?.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(FarmError::io("create the log", &path))?;
        Ok(Self { path, file, is_torn: false })
    }

    /// Appends an entry, and syncs it.
    pub(crate) fn append(&mut self, unit: UnitId, epoch: u64, entry: LogEntry) -> Result<(), FarmError> {
        let append = || {
            let mut line = serde_json::to_vec(&LogLine { unit, epoch, entry })?;
            line.push(b'\n');
            // After a full disk, the next line must not continue the one before.
            if std::mem::replace(&mut self.is_torn, true) {
                line.insert(0, b'\n');
            }
            self.file.write_all(&line)?;
            self.is_torn = false;
            self.file.sync_data()
        };
        append().map_err(FarmError::io("append to the log", &self.path))
    }
}

/// The logs of all workers, as far as read.
#[derive(Debug)]
pub(crate) struct UnitLog {
    directory: PathBuf,
    units: u32,
    /// The bytes that were read of each log.
    read: HashMap<OsString, u64>,
    /// A bit for each unit.
    done: Vec<u64>,
    done_units: u32,
    done_bytes: Bytes,
    failed: HashMap<UnitId, Failures>,
    released: HashMap<UnitId, String>,
    evidence: PlanEvidence,
    /// The highest epoch of each unit that is not done, and has ended in another way.
    epochs: HashMap<UnitId, u64>,
}

/// The failures of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Failures {
    count: u32,
    forgiven: u32,
    /// Whether a file system did not answer a host.
    has_hung: bool,
    /// The last reason that was read.
    pub(crate) why: String,
    /// The host of that reason.
    pub(crate) host: String,
}

impl Failures {
    /// Returns the failures that count.
    pub(crate) fn left(&self) -> u32 {
        self.count.saturating_sub(self.forgiven)
    }
}

impl UnitLog {
    pub(crate) fn new(directory: PathBuf, units: u32) -> Self {
        Self {
            directory,
            units,
            read: HashMap::new(),
            done: vec![0; (units as usize).div_ceil(64)],
            done_units: 0,
            done_bytes: Bytes::ZERO,
            failed: HashMap::new(),
            released: HashMap::new(),
            evidence: PlanEvidence::default(),
            epochs: HashMap::new(),
        }
    }

    /// Reads what was appended since the last call. Files are opened anew, because NFS shows what
    /// others have written only to a file that is opened later.
    pub(crate) fn refresh(&mut self) -> Result<(), FarmError> {
        let entries = fs::read_dir(&self.directory).map_err(FarmError::io("list", &self.directory))?;
        for entry in entries {
            let entry = entry.map_err(FarmError::io("list", &self.directory))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().ends_with(SUFFIX.as_bytes()) {
                let path = entry.path();
                self.read_on(name, &path).map_err(FarmError::io("read", &path))?;
            }
        }
        Ok(())
    }

    fn read_on(&mut self, name: OsString, path: &Path) -> std::io::Result<()> {
        let mut offset = self.read.get(&name).copied().unwrap_or_default();
        let mut file = input_file::open(path)?;
        if file.metadata()?.len() <= offset {
            return Ok(());
        }
        file.seek(SeekFrom::Start(offset))?;
        let (mut reader, mut line) = (BufReader::with_capacity(64 << 10, file), Vec::new());
        // A line without an end is being written, or is the last one of a worker that was killed.
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            offset += line.len() as u64;
            if let Ok(LogLine { unit, epoch, entry }) = serde_json::from_slice(&line)
                && unit.0 < self.units
                && epoch <= MAX_EPOCH
            {
                self.take(unit, epoch, entry);
            }
            line.clear();
        }
        self.read.insert(name, offset);
        Ok(())
    }

    pub(crate) fn take(&mut self, unit: UnitId, epoch: u64, entry: LogEntry) {
        if !self.is_done(unit) {
            let highest = self.epochs.entry(unit).or_default();
            *highest = epoch.max(*highest);
        }
        match entry {
            LogEntry::Done { bytes, report } if !self.is_done(unit) => {
                report.into_iter().for_each(|report| self.evidence.add(report));
                self.done[unit.0 as usize / 64] |= 1 << (unit.0 % 64);
                self.done_units += 1;
                self.done_bytes += bytes;
                self.failed.remove(&unit);
                self.released.remove(&unit);
                self.epochs.remove(&unit);
            }
            _ if self.is_done(unit) => {}
            LogEntry::Failed { why, host } => {
                let failures = self.failed.entry(unit).or_default();
                (failures.count, failures.why, failures.host) = (failures.count + 1, why, host);
            }
            LogEntry::Hung { why, host } => {
                let failures = self.failed.entry(unit).or_default();
                (failures.has_hung, failures.why, failures.host) = (true, why, host);
            }
            LogEntry::Retry { failures } => {
                let forgiven = &mut self.failed.entry(unit).or_default().forgiven;
                *forgiven = failures.max(*forgiven);
            }
            LogEntry::Released { worker } if is_worker_name(&worker) => {
                self.released.insert(unit, worker);
            }
            LogEntry::Done { .. } | LogEntry::Released { .. } | LogEntry::Unknown => {}
        }
    }

    pub(crate) fn is_done(&self, unit: UnitId) -> bool {
        self.done.get(unit.0 as usize / 64).is_some_and(|word| word >> (unit.0 % 64) & 1 == 1)
    }

    /// Returns the first unit of a range that is not done.
    pub(crate) fn next_undone(&self, units: Range<u32>) -> Option<UnitId> {
        let mut unit = units.start;
        while unit < units.end {
            // 64 units at once: most units of a long plan are done.
            let undone = !self.done.get(unit as usize / 64)? >> (unit % 64);
            if undone != 0 {
                let found = unit + undone.trailing_zeros();
                return (found < units.end).then_some(UnitId(found));
            }
            unit = (unit | 63).checked_add(1)?;
        }
        None
    }

    /// Returns the highest epoch of a unit that is not done; 0 if its first claim has not ended.
    pub(crate) fn epoch(&self, unit: UnitId) -> u64 {
        self.epochs.get(&unit).copied().unwrap_or_default()
    }

    /// Returns the failures of a unit that are not forgiven.
    pub(crate) fn failures(&self, unit: UnitId) -> u32 {
        self.failed.get(&unit).map_or(0, Failures::left)
    }

    /// Returns all failures of a unit.
    pub(crate) fn all_failures(&self, unit: UnitId) -> u32 {
        self.failed.get(&unit).map_or(0, |failures| failures.count)
    }

    /// Returns the forgiven failures of a unit.
    pub(crate) fn forgiven(&self, unit: UnitId) -> u32 {
        self.failed.get(&unit).map_or(0, |failures| failures.forgiven)
    }

    /// Returns the worker that was stopped within a unit.
    pub(crate) fn released_by(&self, unit: UnitId) -> Option<String> {
        self.released.get(&unit).cloned()
    }

    /// Returns the units that have failed or hung, and are not done.
    pub(crate) fn failed_or_hung(&self) -> impl Iterator<Item = (UnitId, &Failures)> {
        let failed = self.failed.iter().map(|(unit, failures)| (*unit, failures));
        failed.filter(|(_, failures)| failures.left() > 0 || failures.has_hung)
    }

    /// Returns the units that have failed and are not done.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (UnitId, &Failures)> {
        self.failed_or_hung().filter(|(_, failures)| failures.left() > 0)
    }

    /// Returns the bytes of all units that are done.
    pub(crate) fn done_bytes(&self) -> Bytes {
        self.done_bytes
    }

    /// Returns what the reports of units show.
    pub(crate) fn evidence(&self) -> &PlanEvidence {
        &self.evidence
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { units: self.units, done: self.done_units, failed: self.failed().count() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_add_up_whatever_their_order_and_an_unfinished_line_waits() {
        let dir = tempfile::tempdir().unwrap();
        let failed = |why: &str| LogEntry::Failed { why: why.into(), host: "h".into() };
        let mut one = UnitLogWriter::create(dir.path(), "one").unwrap();
        let mut other = UnitLogWriter::create(dir.path(), "other").unwrap();
        let done = || LogEntry::Done { bytes: Bytes::new(10), report: None };
        one.append(UnitId(70), 1, done()).unwrap();
        one.append(UnitId(1), 1, failed("full")).unwrap();
        other.append(UnitId(70), 1, failed("late")).unwrap();
        other.append(UnitId(70), 1, done()).unwrap();
        other.append(UnitId(1), 1, failed("gone")).unwrap();
        other.append(UnitId(99), 1, done()).unwrap();
        let later =
            b"{\"unit\":3,\"epoch\":1,\"result\":\"doubted\",\"by\":7}\n{\"unit\":4,\"epoch\":1,\"result\":\"done\",\"bytes\"";
        other.file.write_all(later).unwrap();
        let mut log = UnitLog::new(dir.path().to_owned(), 80);
        log.refresh().unwrap();
        assert_eq!(log.tally(), Tally { units: 80, done: 1, failed: 1 });
        assert_eq!((log.done_bytes(), log.failures(UnitId(1))), (Bytes::new(10), 2));
        assert!(log.is_done(UnitId(70)) && !log.is_done(UnitId(4)));
        other.file.write_all(b":5}\n").unwrap();
        one.append(UnitId(1), 1, LogEntry::Retry { failures: 2 }).unwrap();
        one.append(UnitId(2), 1, LogEntry::Released { worker: "one".into() }).unwrap();
        log.refresh().unwrap();
        assert!(log.is_done(UnitId(4)));
        assert_eq!((log.failures(UnitId(1)), log.released_by(UnitId(2)).as_deref()), (0, Some("one")));
        assert_eq!(log.tally().failed, 0);
        // A name that leaves the staging directory is none; an epoch that is not made by this
        // program says nothing.
        one.append(UnitId(5), 7, LogEntry::Released { worker: "../x".into() }).unwrap();
        one.append(UnitId(6), u64::MAX, failed("stray")).unwrap();
        // A report of another version is left out, and the unit is done.
        let other_report =
            b"{\"unit\":7,\"epoch\":1,\"result\":\"done\",\"bytes\":5,\"report\":{\"hosts\":\"two\"}}\n";
        other.file.write_all(other_report).unwrap();
        log.refresh().unwrap();
        assert_eq!((log.released_by(UnitId(5)), log.epoch(UnitId(5)), log.epoch(UnitId(6))), (None, 7, 0));
        assert!(log.is_done(UnitId(7)));
    }

    #[test]
    fn entry_after_one_that_a_full_disk_has_cut_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = UnitLogWriter::create(dir.path(), "one").unwrap();
        let done = || LogEntry::Done { bytes: Bytes::ZERO, report: None };
        writer.append(UnitId(0), 1, done()).unwrap();
        let whole =
            std::mem::replace(&mut writer.file, File::options().write(true).open("/dev/full").unwrap());
        writer.append(UnitId(1), 1, done()).unwrap_err();
        writer.file = whole;
        writer.file.write_all(b"{\"unit\":1,").unwrap();
        writer.append(UnitId(2), 1, done()).unwrap();
        let mut log = UnitLog::new(dir.path().to_owned(), 3);
        log.refresh().unwrap();
        assert_eq!([0, 1, 2].map(|unit| log.is_done(UnitId(unit))), [true, false, true]);
    }

    #[test]
    fn next_undone_unit_is_found_within_its_range_alone() {
        let mut log = UnitLog::new(PathBuf::new(), 200);
        for unit in (0..200).filter(|unit| ![3, 63, 64, 130].contains(unit)) {
            log.take(UnitId(unit), 1, LogEntry::Done { bytes: Bytes::ZERO, report: None });
        }
        for (units, expected) in [
            (0..200, Some(3)),
            (3..4, Some(3)),
            (4..63, None),
            (4..64, Some(63)),
            (64..200, Some(64)),
            (65..130, None),
            (65..200, Some(130)),
            (131..200, None),
            (200..200, None),
            (0..0, None),
        ] {
            assert_eq!(log.next_undone(units.clone()), expected.map(UnitId), "{units:?}");
        }
    }
}
