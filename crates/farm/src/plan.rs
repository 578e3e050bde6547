//! A plan as it lies in its directory: a header, the units, and an index of them.
//!
//! ```text
//!  plan.json     one object; its last field is the BLAKE3 digest of all others
//!  units.jsonl   a line for each unit
//!  units.index   24 bytes for each unit: the offset of its line (5 bytes, little-endian), the number of units before it
//!                that must be done first (3 bytes), and 16 bytes of the line's BLAKE3
//! ```
//!
//! The header holds the digest of the index, and the index those of the units: a unit is checked
//! when it is read, without reading the others.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use longhaul_core::units::{Bytes, seconds};
use longhaul_engine::input_file;
use serde::{Deserialize, Serialize};

use crate::error::FarmError;
use crate::plan_target::PlanTarget;
use crate::unit::{Unit, UnitId};

/// The latest version of the format, which has local sources and uploads. A plan is of the version
/// that it needs, so that older workers execute what they can.
pub const VERSION: u32 = 3;
/// The version that has ranges of files, and limits.
pub(crate) const VERSION_OF_RANGES: u32 = 2;
/// The version that has neither.
pub(crate) const VERSION_OF_FILES: u32 = 1;
/// What `format` of a header says.
pub(crate) const FORMAT: &str = "longhaul-plan";
pub(crate) const HEADER: &str = "plan.json";
pub(crate) const UNITS: &str = "units.jsonl";
pub(crate) const INDEX: &str = "units.index";
/// The size of a unit's entry in the index.
pub(crate) const ENTRY_LENGTH: usize = 24;
/// The part of an entry that is the offset and the number of units; the digest follows.
const OFFSET_LENGTH: usize = 8;
/// The bits of the offset; those of the number follow.
const OFFSET_BITS: u32 = 40;
/// The longest file of units.
pub(crate) const MAX_UNITS_LENGTH: u64 = 1 << OFFSET_BITS;
/// The most ranges of a file: 1 PiB in units of 1 GiB.
pub(crate) const MAX_FILE_RANGES: u32 = 1 << 20;
const _: () = assert!(MAX_FILE_RANGES.ilog2() < u64::BITS - OFFSET_BITS);
/// The hexadecimal digits of a plan's id.
pub(crate) const ID_LENGTH: usize = 16;
/// The largest header: paths and URLs have at most some kilobytes.
const MAX_HEADER: Bytes = Bytes::kib(256);
/// The longest line of a unit: 1,000 files of URLs and paths of 4 KiB, percent-encoded.
pub(crate) const MAX_UNIT_LINE: u64 = 64 << 20;

/// What is said of a plan as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHeader {
    #[serde(flatten)]
    pub(crate) format: PlanFormat,
    /// A random name, which keeps the staging directories of plans apart.
    pub id: String,
    /// Where the files go.
    pub target: PlanTarget,
    /// The first URL of a server: that of a source, or of the target. Logins of a worker are for
    /// this server only.
    pub source: String,
    /// The time after which a silent worker loses its units.
    #[serde(with = "seconds")]
    pub lease: Duration,
    /// How much the plan holds.
    #[serde(flatten)]
    pub counts: PlanCounts,
    pub(crate) units_length: u64,
    pub(crate) index: String,
    pub(crate) checksum: String,
}

/// What every version of a header has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlanFormat {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// The version of the program that made the plan.
    #[serde(default)]
    pub(crate) made_by: String,
}

/// How much a plan holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanCounts {
    /// The number of units.
    pub units: u32,
    /// The number of files.
    pub files: u64,
    /// The size of all files, as far as known.
    pub bytes: Bytes,
    /// The number of files whose size is not known.
    pub files_of_unknown_size: u64,
    /// The number of entries of the sources that could not be planned.
    #[serde(default)]
    pub left_out: u64,
}

/// An open plan.
#[derive(Debug)]
pub struct Plan {
    path: PathBuf,
    header: PlanHeader,
    units: File,
    index: Vec<u8>,
}

impl PlanHeader {
    /// Returns a note that the plan does not hold all of its sources, if so.
    pub fn left_out_note(&self) -> Option<String> {
        let left_out = self.counts.left_out;
        (left_out > 0)
            .then(|| format!("entries of the sources that could not be planned: {left_out}; make a new plan"))
    }

    /// Returns the name of the directory that holds what is under way in a target directory.
    pub(crate) fn staging(&self) -> String {
        format!(".longhaul-{}", self.id)
    }

    /// Returns the name of the state in the plan's directory.
    pub(crate) fn state(&self) -> String {
        format!("state-{}", self.id)
    }

    /// Returns the digest of all fields but the last.
    pub(crate) fn digest(&self) -> String {
        let bare = Self { checksum: String::new(), ..self.clone() };
        // The fields always serialise.
        blake3::hash(&serde_json::to_vec(&bare).unwrap_or_default()).to_hex().to_string()
    }
}

impl Plan {
    /// Opens the plan in the directory `path`; checks header and index.
    ///
    /// # Errors
    /// [`FarmError::NoPlan`], [`FarmError::Newer`], [`FarmError::Damaged`], or that a file cannot
    /// be read.
    pub fn open(path: &Path) -> Result<Self, FarmError> {
        let header = Self::read_header(path)?;
        let damaged = |what: String| FarmError::Damaged { path: path.to_owned(), what };
        let at = path.join(INDEX);
        let length = fs::metadata(&at).map_err(FarmError::io("read", &at))?.len();
        let expected = u64::from(header.counts.units) * ENTRY_LENGTH as u64;
        if length != expected {
            return Err(damaged(format!("{INDEX} has {length} bytes instead of {expected}")));
        }
        let index = fs::read(&at).map_err(FarmError::io("read", &at))?;
        if blake3::hash(&index).to_hex().as_str() != header.index {
            return Err(damaged(format!("{INDEX} was edited")));
        }
        let at = path.join(UNITS);
        let units = input_file::open(&at).map_err(FarmError::io("open", &at))?;
        let length = units.metadata().map_err(FarmError::io("read", &at))?.len();
        if length != header.units_length {
            let expected = header.units_length;
            return Err(damaged(format!("{UNITS} has {length} bytes instead of {expected}")));
        }
        Ok(Self { path: path.to_owned(), header, units, index })
    }

    fn read_header(path: &Path) -> Result<PlanHeader, FarmError> {
        let at = path.join(HEADER);
        let text = match input_file::read_again(&at, MAX_HEADER) {
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                return Err(FarmError::NoPlan(path.to_owned()));
            }
            read => read.map_err(FarmError::io("read", &at))?,
        };
        let damaged =
            |what: &str| FarmError::Damaged { path: path.to_owned(), what: format!("{HEADER} {what}") };
        let PlanFormat { format, version, made_by } =
            serde_json::from_slice(&text).map_err(|_| damaged("is truncated or edited"))?;
        if format != FORMAT {
            return Err(FarmError::NoPlan(path.to_owned()));
        }
        if version > VERSION {
            return Err(FarmError::Newer { path: path.to_owned(), version, made_by });
        }
        let header: PlanHeader = serde_json::from_slice(&text).map_err(|_| damaged("was edited"))?;
        // The id becomes a part of paths.
        let is_id = header.id.len() == ID_LENGTH && header.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if header.digest() != header.checksum || !is_id {
            return Err(damaged("was edited"));
        }
        Ok(header)
    }

    /// Returns what is said of the plan as a whole.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// Returns the plan's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of the plan's state.
    pub(crate) fn state(&self) -> PathBuf {
        self.path.join(self.header.state())
    }

    /// Returns the numbers of all units.
    pub fn ids(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.header.counts.units).map(UnitId)
    }

    /// Reads a unit.
    ///
    /// # Errors
    /// [`FarmError::Damaged`] if its line is not as it was written, or that the file cannot be
    /// read.
    pub fn unit(&self, id: UnitId) -> Result<Unit, FarmError> {
        let damaged = || {
            let what = format!("unit {id} in {UNITS} was edited");
            FarmError::Damaged { path: self.path.clone(), what }
        };
        let entry = self.entry(id.0).ok_or_else(damaged)?;
        let (start, digest) = entry;
        let end = self.entry(id.0 + 1).map_or(self.header.units_length, |(next, _)| next);
        let length = end.checked_sub(start).filter(|length| *length <= MAX_UNIT_LINE).ok_or_else(damaged)?;
        let mut line = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        let read = self.units.read_exact_at(&mut line, start);
        read.map_err(FarmError::io("read", &self.path.join(UNITS)))?;
        if blake3::hash(&line).as_bytes()[..ENTRY_LENGTH - OFFSET_LENGTH] != *digest {
            return Err(damaged());
        }
        let unit: Unit = serde_json::from_slice(&line).map_err(|_| damaged())?;
        // A path that leaves the target would make others read any file of this host.
        let is_below = |path: &Path| {
            path.file_name().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
        };
        let is_sound = unit.has_sound_part() && unit.files.iter().all(|file| is_below(&file.path));
        if is_sound { Ok(unit) } else { Err(damaged()) }
    }

    /// Returns the units that join ranges, with the numbers of units before them that must be done
    /// first.
    pub(crate) fn joins(&self) -> HashMap<UnitId, u32> {
        let entries = self.ids().zip(self.index.chunks_exact(ENTRY_LENGTH));
        let ranges = |(id, entry): (UnitId, &[u8])| {
            let place = entry.first_chunk().map_or(0, |place| u64::from_le_bytes(*place));
            let ranges = (place >> OFFSET_BITS) as u32;
            (ranges > 0).then_some((id, ranges.min(id.0)))
        };
        entries.filter_map(ranges).collect()
    }

    /// Returns the offset and the digest of a unit's line; `None` behind the last unit.
    fn entry(&self, number: u32) -> Option<(u64, &[u8])> {
        let entry = self.index.chunks_exact(ENTRY_LENGTH).nth(number as usize)?;
        let (place, digest) = entry.split_at(OFFSET_LENGTH);
        Some((u64::from_le_bytes(place.try_into().ok()?) % MAX_UNITS_LENGTH, digest))
    }
}

/// Returns the index entry of a unit whose line begins at `offset`, and that joins this number of
/// ranges.
pub(crate) fn entry_of(offset: u64, ranges: u32, line: &[u8]) -> [u8; ENTRY_LENGTH] {
    let mut entry = [0; ENTRY_LENGTH];
    let (place, digest) = entry.split_at_mut(OFFSET_LENGTH);
    place.copy_from_slice(&(offset | u64::from(ranges) << OFFSET_BITS).to_le_bytes());
    digest.copy_from_slice(&blake3::hash(line).as_bytes()[..ENTRY_LENGTH - OFFSET_LENGTH]);
    entry
}
