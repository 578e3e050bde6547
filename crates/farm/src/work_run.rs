//! One run of a worker: executes the units of a plan with the engine until none is left.

mod file_job;
mod local;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use longhaul_core::event::{Done, JobId, JobObserver, JobTag};
use longhaul_core::failure::Failure;
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::ranges::ByteRange;
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{Expected, Job, JobOptions, Streams};
use longhaul_engine::sink::file_slice::FileSlice;
use longhaul_engine::sink::output::Output;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::tree::UploadTarget;
use parking_lot::Mutex;
use url::Url;

use crate::error::FarmError;
use crate::host_gate::Admission;
use crate::store::Tally;
use crate::target_directory::TargetDirectory;
use crate::unit::{FilePart, PlannedFile};
use crate::worker::{FileEnd, FileTask, Worker};

/// The default number of large files that a worker transfers at once.
pub const PARALLEL: usize = 3;
/// The longest interval at which an idle worker looks for units of workers that have failed or are
/// lost, and for the end of the plan.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// An idle worker looks again after this part of the time that it has been idle, so that it notices
/// the end of the plan late by no more than that, and reads its state seldom.
const POLL_FRACTION: u32 = 4;
/// The interval at which a worker looks whether its range is about to end.
const RANGE_TICK: Duration = Duration::from_millis(100);
/// The size up to which a file takes a single connection of those that the farm may open.
const MAX_SMALL_FILE: Bytes = Bytes::mib(4);

/// The most uploads of small files at once, as of `put`.
const MAX_SMALL_UPLOADS: usize = 16;

/// Shows the files of a worker. Called from several threads.
pub trait FileDisplay: Sync {
    /// Calls `transfer` once, which executes a job, and shows its events and its end.
    fn show(&self, job: &JobTag, transfer: &mut dyn FnMut(JobObserver<'_>) -> Result<Done, Failure>);

    /// Notes that the worker has done a unit.
    fn unit_done(&self) {}
}

/// How the run of a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkEnd {
    /// All units are done.
    Done,
    /// The worker was stopped, and has released its units.
    Stopped,
    /// Other workers execute the units that are left.
    UnitsLeft,
    /// This host cannot read, fetch, write or send files.
    HostFailed,
    /// So many units have failed.
    UnitsFailed(u32),
}

impl WorkEnd {
    fn of(tally: Tally, is_retired: bool) -> Self {
        match tally.failed {
            _ if tally.done == tally.units => Self::Done,
            0 if is_retired => Self::HostFailed,
            0 => Self::UnitsLeft,
            units => Self::UnitsFailed(units),
        }
    }
}

impl fmt::Display for WorkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("all units are done"),
            Self::Stopped => f.write_str("stopped"),
            Self::UnitsLeft => f.write_str("other workers have the units that are left"),
            Self::HostFailed => {
                f.write_str("this host cannot read, fetch, write or send files: other workers may")
            }
            Self::UnitsFailed(1) => f.write_str("a unit has failed"),
            Self::UnitsFailed(units) => write!(f, "{units} units have failed"),
        }
    }
}

/// Raises a flag however its scope is left.
struct RaisedOnDrop<'a>(&'a Cancel);

impl Drop for RaisedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One run of a worker.
pub struct WorkRun<'a> {
    engine: &'a Engine,
    worker: &'a Worker<'a>,
    display: &'a dyn FileDisplay,
    options: JobOptions,
    cancel: &'a Cancel,
    /// The number of files so far.
    jobs: AtomicU64,
    /// The number of files that have ended.
    ended: AtomicU64,
    /// The first error of the plan's state.
    error: Mutex<Option<FarmError>>,
    /// The target, if it is of a server.
    uploads: OnceLock<UploadTarget>,
}

impl<'a> WorkRun<'a> {
    /// Creates a run that transfers each file with `options`, until `cancel` is raised.
    pub fn new(
        engine: &'a Engine,
        worker: &'a Worker<'a>,
        display: &'a dyn FileDisplay,
        options: JobOptions,
        cancel: &'a Cancel,
    ) -> Self {
        Self {
            engine,
            worker,
            display,
            options,
            cancel,
            jobs: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            error: Mutex::new(None),
            uploads: OnceLock::new(),
        }
    }

    /// Executes units, `parallel` large files at once, until none is left for the worker, and ends
    /// the worker.
    ///
    /// # Errors
    /// The state of the plan cannot be read or written, or no thread can be started.
    pub fn run(&self, parallel: usize) -> Result<WorkEnd, FarmError> {
        let alive = Cancel::new();
        let ended = thread::scope(|threads| {
            // The scope waits for the thread, however the work ends.
            let _ends = RaisedOnDrop(&alive);
            let keep = || self.guard("lease", || self.worker.keep_alive(&alive, self.options.transfer.stall));
            let lease = thread::Builder::new().name("lease".into()).spawn_scoped(threads, keep);
            lease.map_err(FarmError::Thread)?;
            self.execute(parallel)
        });
        let left = self.worker.leave();
        let end = ended?;
        left?;
        // Another worker may still write what it completes too late.
        if end == WorkEnd::Done
            && let Some(Err(error)) = self.worker.target().map(TargetDirectory::clean)
        {
            tracing::warn!("{end}, but {error}: remove the directory when no worker runs");
        }
        Ok(end)
    }

    /// Transfers files until no unit is left for this worker.
    fn execute(&self, parallel: usize) -> Result<WorkEnd, FarmError> {
        let ended = Cancel::new();
        thread::scope(|threads| {
            let _ends = RaisedOnDrop(&ended);
            let ranges = || self.guard("ranges", || self.begin_ranges(threads, &ended));
            let begun = thread::Builder::new().name("ranges".into()).spawn_scoped(threads, ranges);
            begun.map_err(FarmError::Thread)?;
            self.execute_units(parallel)
        })?;
        if let Some(error) = self.error.lock().take() {
            return Err(error);
        }
        if self.cancel.is_cancelled() {
            return self.worker.release().map(|()| WorkEnd::Stopped);
        }
        // A range that was begun beside the others may have ended last.
        Ok(WorkEnd::of(self.worker.tally()?, self.worker.is_retired()))
    }

    /// Transfers files until no unit is left for this worker, it retires or is stopped.
    fn execute_units(&self, parallel: usize) -> Result<(), FarmError> {
        let (mut idle_since, mut idle_after) = (Instant::now(), 0);
        loop {
            let before = self.ended.load(Ordering::Relaxed);
            // One unit of each large file, and one that is begun next.
            let files = std::iter::from_fn(|| self.worker.next_file(parallel + 1));
            let mut admission = JobAdmission::new(parallel);
            if self.worker.server().is_some() {
                admission = admission.with_small(MAX_SMALL_UPLOADS);
            }
            self.engine.run_each(
                files,
                |task| task.file().size,
                admission,
                self.cancel,
                |task| self.execute_file(task),
            );
            if self.error.lock().is_some() || self.cancel.is_cancelled() {
                return Ok(());
            }
            if self.worker.pause()?.is_some() || self.worker.is_retired() {
                return Ok(());
            }
            let (since, ended) = (Instant::now(), self.ended.load(Ordering::Relaxed));
            if ended != idle_after {
                (idle_since, idle_after) = (since, ended);
            }
            let wait = match self.worker.has_unit() {
                // Beside a range only the units of lost workers may be claimed.
                true => self.worker.beat_interval().max(POLL_INTERVAL),
                false => ((since - idle_since) / POLL_FRACTION).min(POLL_INTERVAL),
            };
            // Not after a file or an error, nor when a range ends that was begun beside these.
            while self.ended.load(Ordering::Relaxed) == before
                && !self.worker.is_retired()
                && !self.cancel.sleep(RANGE_TICK)
                && since.elapsed() < wait
            {}
        }
    }

    /// Begins the worker's next range shortly before the last one ends, so that the path stays full
    /// in between; not with a number of connections that is set once, which would be what the last
    /// range leaves.
    fn begin_ranges<'scope>(&'scope self, threads: &'scope Scope<'scope, '_>, ended: &Cancel) {
        if self.options.transfer.streams != Streams::Auto {
            return;
        }
        let mut wait = RANGE_TICK;
        while !ended.sleep(wait) {
            wait = RANGE_TICK;
            if !self.worker.range_ends_soon() {
                continue;
            }
            match self.worker.next_range() {
                Ok(Some(task)) => {
                    let unit = task.unit();
                    let execute = move || self.guard("range", || _ = self.execute_file(task));
                    let begun = thread::Builder::new().name("range".into()).spawn_scoped(threads, execute);
                    if let Err(error) = begun {
                        tracing::warn!("a range begins later: cannot start a thread: {error}");
                        wait = POLL_INTERVAL;
                        self.worker.give_back(unit).unwrap_or_else(|error| self.fail(error));
                    }
                }
                Ok(None) => wait = POLL_INTERVAL,
                Err(error) => self.fail(error),
            }
        }
    }

    /// Executes what a thread does beside the files. After a panic in it the worker claims nothing
    /// more; the run ends with an error after the files under way, and with it the claims, which
    /// would be renewed and never executed.
    fn guard(&self, thread: &'static str, body: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            self.fail(FarmError::Internal(thread));
        }
    }

    /// Ends the run with the first error.
    fn fail(&self, error: FarmError) {
        self.worker.retire();
        self.error.lock().get_or_insert(error);
    }

    fn execute_file(&self, task: FileTask) -> Option<Bytes> {
        // Whatever fails within one file, even by a panic, its unit ends.
        let caught = catch_unwind(AssertUnwindSafe(|| self.transfer(&task)));
        let end = caught.unwrap_or_else(|_| file_failed("an internal error: report it as a bug".to_owned()));
        let size = match end {
            FileEnd::Received(size) | FileEnd::Present(size) => Some(size),
            FileEnd::Failed { .. } | FileEnd::Unjoinable(_) => None,
        };
        match self.worker.finish_file(task, end) {
            Ok(true) => self.display.unit_done(),
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        size
    }

    fn transfer(&self, task: &FileTask) -> FileEnd {
        match (self.worker.server(), self.worker.target()) {
            (Some(url), _) => self.upload(task, url),
            (None, Some(target)) => self.receive(task, target),
            (None, None) => file_failed("the plan has no target".to_owned()),
        }
    }

    /// Fetches or copies a file into the target directory.
    fn receive(&self, task: &FileTask, target: &TargetDirectory) -> FileEnd {
        let file = task.file();
        let urls: Result<Vec<Url>, _> = file.urls.iter().map(|url| url.parse()).collect();
        let urls = match urls {
            Ok(urls) if !urls.is_empty() => urls,
            _ => return file_failed(format!("{} has no valid URL", file.path.display())),
        };
        let tag = self.tag(&SafeUrl::of(&urls[0]).to_string());
        let range = match task.part() {
            Some(FilePart::Range { start, end, .. }) => Some(ByteRange::new(start, end)),
            _ => None,
        };
        if let Some(FilePart::Join { .. }) = task.part() {
            task.begin();
            return self.worker.join(target, task);
        }
        if range.is_none()
            && let Some(size) = self.find_complete(task, target)
        {
            return self.present(&tag, target.path_of(file), size);
        }
        if file.local_source().is_some() {
            return self.copy(task, &tag, target);
        }
        let (root, path) = (target.root().clone(), task.staged().to_owned());
        let output = match range.zip(file.size) {
            Some((range, size)) => {
                let creates = !task.has_range();
                Output::Slice(FileSlice { root, path, size, range, creates })
            }
            _ => Output::Beneath { root, path },
        };
        let admission = self.admit(&urls[0], file.size, task.cancel());
        let expected = expected(file, range.is_some());
        let job = Job { urls, output, expected, options: self.options_of(&admission) };
        self.execute_job(task, &tag, &admission, |observer| self.engine.run(&job, observer, task.cancel()))
    }

    /// Returns the tag of a further file.
    fn tag(&self, url: &str) -> JobTag {
        JobTag::new(JobId::new(self.jobs.fetch_add(1, Ordering::Relaxed) + 1), url)
    }

    /// Shows a file that is there already.
    fn present(&self, tag: &JobTag, path: PathBuf, size: Bytes) -> FileEnd {
        let done = Done::unchanged(path, size);
        self.display.show(tag, &mut |_| Ok(done.clone()));
        FileEnd::Present(size)
    }

    /// Waits until a file may be moved.
    fn admit(&self, url: &Url, size: Option<Bytes>, cancel: &Cancel) -> Admission {
        let wants = match self.options.transfer.streams {
            _ if size.is_some_and(|size| size <= MAX_SMALL_FILE) => 1,
            Streams::Fixed(streams) => streams,
            Streams::Auto | Streams::Apt(_) => MAX_STREAMS,
        };
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        self.worker.admit(&host, wants, cancel)
    }

    /// Returns the options of a file, within its shares of the farm's limits.
    fn options_of(&self, admission: &Admission) -> JobOptions {
        let mut options = self.options.clone();
        let transfer = &mut options.transfer;
        (transfer.limit, transfer.stream_cap) =
            (Some(admission.limit().clone()), admission.stream_cap().clone());
        if let Streams::Fixed(streams) = &mut transfer.streams {
            *streams = admission.stream_cap().get().min(*streams);
        }
        options
    }
}

/// Returns what is demanded of a fetched file.
fn expected(file: &PlannedFile, is_range: bool) -> Expected {
    Expected {
        // Apache states no length of an empty file.
        size: file.size.filter(|size| *size > Bytes::ZERO),
        checksums: file.checksum.iter().filter(|_| !is_range).cloned().collect(),
        modified: file.modified(),
        is_dated: true,
        is_listed: true,
        ..Expected::default()
    }
}

/// Returns the failure of a file that is not the host's fault.
fn file_failed(why: String) -> FileEnd {
    FileEnd::Failed { why, is_refused: false }
}

#[cfg(test)]
mod tests;
