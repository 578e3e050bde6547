//! A unit that a worker executes, and its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use parking_lot::Mutex;

use crate::explanation::HeldBy;
use crate::store::Claim;
use crate::unit::{FilePart, PlannedFile};

/// The most characters of a reason that are logged: a server may have chosen its words.
const MAX_REASON: usize = 500;

/// A unit that is being executed.
pub(crate) struct UnitRun {
    pub(crate) claim: Claim,
    pub(crate) stage: PathBuf,
    pub(crate) cancel: Cancel,
    pub(crate) started: Instant,
    pub(crate) state: Mutex<RunState>,
}

/// What has become of the files of a unit so far.
#[derive(Default)]
pub(crate) struct RunState {
    pub(crate) files_left: usize,
    pub(crate) bytes: Bytes,
    pub(crate) failure: Option<String>,
    /// Whether this host may be at fault for a failure.
    pub(crate) is_refused: bool,
    /// Whether a failure is one of all ranges of the file.
    pub(crate) is_unjoinable: bool,
    /// The directories that have got a file, below the target.
    pub(crate) changed: BTreeSet<PathBuf>,
    /// Whether the claim was lost to another worker.
    pub(crate) is_lost: bool,
    /// For how long files were held back, by what.
    pub(crate) held: BTreeMap<HeldBy, Duration>,
}

impl RunState {
    /// Records a failure, unless there was one.
    pub(crate) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.chars().take(MAX_REASON).collect());
    }
}

/// A file to fetch.
pub struct FileTask {
    pub(crate) file: PlannedFile,
    pub(crate) part: Option<FilePart>,
    pub(crate) staged: PathBuf,
    /// Whether other ranges of the file are done.
    pub(crate) has_range: bool,
    pub(crate) unit: Arc<UnitRun>,
}

impl FileTask {
    /// Returns the file.
    pub fn file(&self) -> &PlannedFile {
        &self.file
    }

    /// Returns what is to be done with the file; `None` if it is to be fetched.
    pub fn part(&self) -> Option<FilePart> {
        self.part
    }

    /// Returns whether other ranges of the file are done, so that the file that receives them must be there.
    pub fn has_range(&self) -> bool {
        self.has_range
    }

    /// Returns the path below the target that receives the file.
    pub fn staged(&self) -> &Path {
        &self.staged
    }

    /// Records for how long what held the file back.
    pub fn explain(&self, held: impl IntoIterator<Item = (HeldBy, Duration)>) {
        let mut state = self.unit.state.lock();
        held.into_iter().for_each(|(held, time)| *state.held.entry(held).or_default() += time);
    }

    /// Returns the flag that ends the file: raised with the command's, or if the unit is lost to another worker.
    pub fn cancel(&self) -> &Cancel {
        &self.unit.cancel
    }
}

/// How a file ended.
pub enum FileEnd {
    /// It was received into its staging path.
    Received(Bytes),
    /// It was there already.
    Present(Bytes),
    /// It failed.
    Failed {
        /// The reason.
        why: String,
        /// Whether this host may be at fault: its network, logins or settings.
        is_refused: bool,
    },
    /// It is a range, and no range of the file can be joined with others; the reason.
    Unjoinable(String),
}
