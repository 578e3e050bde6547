//! A unit that a worker executes, and its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::failure::Failure;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::pending_steps::PendingSteps;
use longhaul_engine::send::SourceFile;
use parking_lot::Mutex;

use crate::explanation::HeldBy;
use crate::store::Claim;
use crate::unit::{FilePart, PlannedFile, UnitId};

/// The most characters of a reason that are logged: a server may have chosen its words.
const MAX_REASON: usize = 500;

/// The time before the end of a range at which the worker's next one begins: more than slow start
/// takes on a path of 100 ms, so that the path stays full.
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
    /// The steps of its files, and of the worker for it, that wait for a file system.
    pub(crate) steps: Arc<PendingSteps>,
    /// The directories that have got a file, below the target. Held while a file gets its name.
    pub(crate) changed: Mutex<BTreeSet<PathBuf>>,
    /// Never held while a file system is waited for: that would stop the heartbeat, too.
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
            steps: Arc::default(),
            changed: Mutex::default(),
            state: Mutex::new(RunState { files_left: files, ..RunState::default() }),
        }
    }

    /// Returns whether all files that are left have waited for a thread or a connection for
    /// `stall`.
    pub(crate) fn waits(&self, stall: Duration) -> bool {
        let state = self.state.lock();
        let idle = state.idle_since.unwrap_or(self.started).elapsed();
        state.files_left > 0 && state.files_begun == 0 && idle >= stall
    }

    /// Ends its files, as another worker has taken it over.
    pub(crate) fn lose(&self) {
        self.state.lock().hold = Hold::Lost;
        self.cancel.cancel();
    }

    /// Ends its files, so that another worker can execute it; returns whether this worker had it
    /// until now.
    pub(crate) fn hand_over(&self) -> bool {
        let mut state = self.state.lock();
        let is_new = state.hold == Hold::Kept && !state.is_ended;
        if is_new {
            state.hold = Hold::HandedOver;
            self.cancel.cancel();
        }
        is_new
    }

    /// Returns whether this worker still holds it.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.lock().hold == Hold::Kept
    }

    /// Returns whether another worker has it.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().hold == Hold::Lost
    }

    /// Returns whether it was handed over.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.state.lock().hold == Hold::HandedOver
    }

    /// Returns whether it was handed over, and its last file has ended since.
    pub(crate) fn has_ended_after_hand_over(&self) -> bool {
        let state = self.state.lock();
        state.hold == Hold::HandedOver && state.is_ended
    }
}

/// Whether a worker still holds a unit that it has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Hold {
    #[default]
    Kept,
    /// Other workers may have it, as a file system does not answer.
    HandedOver,
    /// Another worker has it.
    Lost,
}

/// What has become of the files of a unit so far.
#[derive(Default)]
pub(crate) struct RunState {
    files_left: usize,
    /// The files that are begun and have not ended.
    files_begun: usize,
    /// The time of the last end of a file.
    idle_since: Option<Instant>,
    pub(crate) bytes: Bytes,
    pub(crate) failure: Option<String>,
    /// Whether this host may be at fault for a failure.
    pub(crate) is_refused: bool,
    /// Whether a failure is one of all ranges of the file.
    pub(crate) is_unjoinable: bool,
    pub(crate) hold: Hold,
    /// Whether its last file has ended, and all are synced.
    pub(crate) is_ended: bool,
    /// For how long files were held back, by what.
    pub(crate) held: BTreeMap<HeldBy, Duration>,
}

impl RunState {
    /// Records a failure, unless there was one.
    pub(crate) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.chars().take(MAX_REASON).collect());
    }

    /// Records the end of a file; returns whether it was the last one.
    fn end_file(&mut self, was_begun: bool, end: FileEnd) -> bool {
        match end {
            FileEnd::Received(bytes) | FileEnd::Present(bytes) => self.bytes += bytes,
            FileEnd::Failed { why, is_refused } => {
                self.is_refused |= is_refused;
                self.fail(&why);
            }
            FileEnd::Unjoinable(why) => {
                self.is_unjoinable = true;
                self.fail(&why);
            }
        }
        self.files_left -= 1;
        self.files_begun -= usize::from(was_begun);
        self.idle_since = Some(Instant::now());
        self.files_left == 0
    }
}

/// A file to transfer.
pub struct FileTask {
    pub(crate) file: PlannedFile,
    pub(crate) part: Option<FilePart>,
    pub(crate) staged: PathBuf,
    /// Whether other ranges of the file are done.
    pub(crate) has_range: bool,
    /// Whether it waits for no thread and no connection.
    pub(crate) is_begun: AtomicBool,
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

    /// Returns whether other ranges of the file are done, so that the file that receives them must
    /// be there.
    pub fn has_range(&self) -> bool {
        self.has_range
    }

    /// Returns the path below the target directory that receives the file.
    pub fn staged(&self) -> &Path {
        &self.staged
    }

    /// Counts bytes that were received; returns whether they are of a range of which little is
    /// left.
    pub(crate) fn count(&self, bytes: Bytes) -> bool {
        let Some(FilePart::Range { start, end, .. }) = self.part else { return false };
        let received = self.unit.received.fetch_add(bytes.get(), Ordering::Relaxed) + bytes.get();
        let left = (end - start).saturating_sub(received);
        let time_left = self.unit.started.elapsed().as_secs_f64() * left as f64 / received.max(1) as f64;
        received > 0 && time_left <= NEXT_RANGE_AHEAD.as_secs_f64()
    }

    /// Notes that the file is begun.
    pub(crate) fn begin(&self) {
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            self.unit.state.lock().files_begun += 1;
        }
    }

    /// Ends the file; returns whether it was the last one of its unit.
    pub(crate) fn end(self, end: FileEnd) -> bool {
        self.unit.state.lock().end_file(self.is_begun.into_inner(), end)
    }

    /// Returns the steps that wait for a file system: while one does not end, the worker hands over
    /// the unit.
    pub(crate) fn steps(&self) -> &Arc<PendingSteps> {
        &self.unit.steps
    }

    /// Opens the local source in the planned state.
    pub(crate) fn open_source(&self) -> Result<SourceFile, Failure> {
        let path = self.file.local_source().unwrap_or_default();
        Ok(self.steps().during(&path, || self.file.open_source())?.watched(self.steps()))
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

    /// Returns the flag that ends the file: raised with the command's, or if the unit is lost to
    /// another worker.
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
