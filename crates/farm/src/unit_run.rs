//! A unit that a worker executes, and its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::copy::PendingCopyStep;
use parking_lot::Mutex;

use crate::explanation::HeldBy;
use crate::store::Claim;
use crate::unit::{FilePart, PlannedFile, UnitId};

/// The most characters of a reason that are logged: a server may have chosen its words.
const MAX_REASON: usize = 500;

/// The time before the end of a range at which the worker's next one begins: more than slow start takes on a path of
/// 100 ms, so that the path stays full.
const NEXT_RANGE_AHEAD: Duration = Duration::from_millis(1500);

/// A unit that is being executed.
pub(crate) struct UnitRun {
    pub(crate) claim: Claim,
    pub(crate) stage: PathBuf,
    pub(crate) cancel: Cancel,
    pub(crate) started: Instant,
    /// The bytes received of a range.
    pub(crate) received: AtomicU64,
    /// Whether it is a range of which little is left.
    pub(crate) ends_soon: AtomicBool,
    /// Whether a file of it was begun.
    is_begun: AtomicBool,
    /// Whether other workers may have it, as a file system does not answer.
    is_handed_over: AtomicBool,
    /// The steps of copies, by their sources.
    steps: Mutex<Vec<(PathBuf, Arc<PendingCopyStep>)>>,
    pub(crate) state: Mutex<RunState>,
}

impl UnitRun {
    pub(crate) fn new(claim: Claim, stage: PathBuf, cancel: Cancel, files: usize) -> Self {
        Self {
            claim,
            stage,
            cancel,
            started: Instant::now(),
            received: AtomicU64::new(0),
            ends_soon: AtomicBool::new(false),
            is_begun: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            steps: Mutex::default(),
            state: Mutex::new(RunState { files_left: files, ..RunState::default() }),
        }
    }

    /// Returns the source of a copy of which a step has not ended for `stall`.
    pub(crate) fn hung_source(&self, stall: Duration) -> Option<PathBuf> {
        let steps = self.steps.lock();
        let hung = steps.iter().find(|(_, step)| step.time().is_some_and(|time| time >= stall));
        hung.map(|(path, _)| path.clone())
    }

    /// Returns whether its first file has waited for a thread or a connection for `stall`.
    pub(crate) fn waits(&self, stall: Duration) -> bool {
        !self.is_begun.load(Ordering::Relaxed) && self.started.elapsed() >= stall
    }

    /// Ends its files, so that another worker can execute it; returns whether this worker had it until now.
    pub(crate) fn hand_over(&self) -> bool {
        let mut state = self.state.lock();
        let is_new = !state.is_lost && state.files_left > 0;
        if is_new {
            state.is_lost = true;
            self.is_handed_over.store(true, Ordering::Relaxed);
            self.cancel.cancel();
        }
        is_new
    }

    /// Returns whether it was handed over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }
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

/// A file to transfer.
pub struct FileTask {
    pub(crate) file: PlannedFile,
    pub(crate) part: Option<FilePart>,
    pub(crate) staged: PathBuf,
    /// Whether other ranges of the file are done.
    pub(crate) has_range: bool,
    pub(crate) unit: Arc<UnitRun>,
}

impl FileTask {
    /// Returns the unit.
    pub(crate) fn unit(&self) -> UnitId {
        self.unit.claim.unit
    }

    /// Returns the file.
    pub fn file(&self) -> &PlannedFile {
        &self.file
    }

    /// Returns what is to be done with the file; `None` if all of it is to be transferred.
    pub fn part(&self) -> Option<FilePart> {
        self.part
    }

    /// Returns whether other ranges of the file are done, so that the file that receives them must be there.
    pub fn has_range(&self) -> bool {
        self.has_range
    }

    /// Returns the path below the target directory that receives the file.
    pub fn staged(&self) -> &Path {
        &self.staged
    }

    /// Counts bytes that were received; returns whether they are of a range of which little is left.
    pub(crate) fn count(&self, bytes: Bytes) -> bool {
        let Some(FilePart::Range { start, end, .. }) = self.part else { return false };
        let received = self.unit.received.fetch_add(bytes.get(), Ordering::Relaxed) + bytes.get();
        let left = (end - start).saturating_sub(received);
        let time_left = self.unit.started.elapsed().as_secs_f64() * left as f64 / received.max(1) as f64;
        received > 0 && time_left <= NEXT_RANGE_AHEAD.as_secs_f64()
    }

    /// Notes that the file is begun.
    pub(crate) fn begin(&self) {
        self.unit.is_begun.store(true, Ordering::Relaxed);
    }

    /// Lets the worker hand over the unit while a step of the file's copy does not end.
    pub(crate) fn watch_steps(&self) -> Arc<PendingCopyStep> {
        let step = Arc::default();
        self.unit.steps.lock().push((self.file.local_source().unwrap_or_default(), Arc::clone(&step)));
        step
    }

    /// Lets the worker begin its next range.
    pub(crate) fn end_soon(&self) {
        self.unit.ends_soon.store(true, Ordering::Relaxed);
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
    /// It was received into its staging path, or the server has it.
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

impl FileEnd {
    /// Returns the end of a file whose unit another worker has taken over.
    pub(crate) fn lost() -> Self {
        Self::Failed { why: "another worker has its unit".to_owned(), is_refused: false }
    }
}
