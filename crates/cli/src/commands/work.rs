//! `longhaul work PLAN`: executes the units of a plan until none is left.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueHint};
use longhaul_core::admission::JobAdmission;
use longhaul_core::advice::LimitedBy;
use longhaul_core::event::{Event, JobId, JobObserver, JobTag, Observer};
use longhaul_core::failure::{Cause, FailureKind};
use longhaul_core::ranges::ByteRange;
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{Expected, Job, JobOptions, Outcome, Streams, TransferError};
use longhaul_engine::sink::file_slice::FileSlice;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::source::http::SafeUrl;
use longhaul_farm::error::FarmError;
use longhaul_farm::explanation::HeldBy;
use longhaul_farm::host_gate::Admission;
use longhaul_farm::plan::{Plan, PlanHeader};
use longhaul_farm::shared_dir::SharedDirStore;
use longhaul_farm::store::{ClaimStore, Tally};
use longhaul_farm::unit::FilePart;
use longhaul_farm::worker::{FileEnd, FileTask, Worker};
use longhaul_scope::record::schema::Side;
use parking_lot::Mutex;
use url::Url;

use crate::session::CommandSession;
use crate::summary::Unchanged;
use crate::transfer_args::TransferArgs;
use crate::values::parallel;
use crate::{exit, interrupt};

/// The interval at which a worker looks for units of workers that have failed or are lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The size up to which a file takes a single connection of those that the farm may open.
const MAX_SMALL: Bytes = Bytes::mib(4);

/// Operands and options of `work`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all units are done; 1 units have failed, see longhaul plan status; 75 units are left, run it \
                        again (Slurm: RequeueExit=75). Others are those of get."
)]
pub(crate) struct WorkArgs {
    /// The plan, as longhaul plan has written it
    #[arg(value_name = "PLAN", value_hint = ValueHint::DirPath)]
    plan: PathBuf,

    /// Fetch this many files at once; small ones go more at once over kept connections
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parallel, help_heading = "Speed")]
    parallel: usize,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// Executes units until none is left for this worker.
pub(crate) fn run(args: &WorkArgs) -> Result<ExitCode, exit::Code> {
    let cancel = args.transfer.client.connect.cancel();
    let setup = || {
        // First: a worker that is stopped early must release its units too.
        interrupt::listen(&cancel)?;
        let plan = Plan::open(&args.plan)?;
        let options = options(args, plan.header(), &cancel)?;
        let store = SharedDirStore::join(&plan)?;
        Ok::<_, anyhow::Error>((plan, options, store))
    };
    let (plan, options, store) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let failed = |error: FarmError| exit::said(&error, exit::of(error.kind()));
    let worker = Worker::new(&plan, &store, &cancel).map_err(failed)?;
    let worker = worker.with_limit(options.transfer.limit.clone());
    let (what, lines) = (args.plan.display().to_string(), args.transfer.shows_line());
    let session = args.transfer.begin(Side::Get, &what, None, lines, &cancel)?;
    let run = WorkRun {
        engine: Engine::new(AppBuffer::Auto),
        worker: &worker,
        session,
        options,
        cancel: &cancel,
        jobs: AtomicU64::new(0),
        error: Mutex::new(None),
    };
    let alive = Cancel::new();
    let tally = thread::scope(|threads| {
        // The scope waits for the thread, however the work ends.
        let _ends = RaisedOnDrop(&alive);
        let keep = || worker.keep_alive(&alive);
        if let Err(error) = thread::Builder::new().name("lease".into()).spawn_scoped(threads, keep) {
            return Err(exit::said(format_args!("cannot start a thread for the lease: {error}"), exit::OS));
        }
        run.execute(args.parallel).map_err(failed)
    });
    run.session.end();
    store.leave().map_err(failed)?;
    let Some(tally) = tally? else {
        return Err(exit::said("stopped: run it again for the rest", exit::TEMPORARY));
    };
    if tally.done == tally.units {
        // Another worker may still write what it completes too late.
        if let Err(error) = worker.target().clean() {
            tracing::warn!("all units are done, but {error}: remove the directory when no worker runs");
        }
        if let Some(note) = plan.header().left_out_note() {
            tracing::warn!("{note}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (plan, retires) = (args.plan.display(), worker.is_retired());
    let message = match tally.failed {
        0 if retires => "this host cannot fetch or write files: other workers may".to_owned(),
        0 => {
            return Err(exit::said(
                "other workers have the units that are left: run it again",
                exit::TEMPORARY,
            ));
        }
        1 => "a unit has failed".to_owned(),
        units => format!("{units} units have failed"),
    };
    let message =
        format!("{message}; longhaul plan status {plan} says why, and plan retry lets workers try again");
    Err(exit::said(message, exit::UNITS_FAILED))
}

fn options(args: &WorkArgs, header: &PlanHeader, cancel: &Cancel) -> anyhow::Result<JobOptions> {
    let common = &args.transfer;
    let source = Url::parse(&header.source).ok();
    source.iter().try_for_each(|url| common.client.check_cleartext(url))?;
    let client = common.receiving_client(cancel)?;
    TransferArgs::warn_of_unused_proxy(&client, source.iter());
    Ok(JobOptions {
        transfer: common.transfer_options(common.receiving_limit(), client)?,
        segment: None,
        count_pages: common.json || common.shows_line(),
        verify: common.verify,
        writer: WriterChoice::Auto,
        max_size: None,
        assume_unchanged: false,
        existing: Default::default(),
        keep_time: true,
        logins_for: source,
    })
}

/// Raises a flag however its scope is left.
struct RaisedOnDrop<'a>(&'a Cancel);

impl Drop for RaisedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// One run of a worker.
struct WorkRun<'a> {
    engine: Engine,
    worker: &'a Worker<'a>,
    session: CommandSession,
    options: JobOptions,
    cancel: &'a Cancel,
    /// The number of files so far.
    jobs: AtomicU64,
    /// The first error of the plan's state.
    error: Mutex<Option<FarmError>>,
}

impl WorkRun<'_> {
    /// Fetches files until no unit is left for this worker; `None` if it was stopped.
    fn execute(&self, parallel: usize) -> Result<Option<Tally>, FarmError> {
        loop {
            let before = self.jobs.load(Ordering::Relaxed);
            let files = std::iter::from_fn(|| self.worker.next_file());
            self.engine
                .run_each(files, JobAdmission::new(parallel), self.cancel, |task| self.execute_file(task));
            if let Some(error) = self.error.lock().take() {
                return Err(error);
            }
            if self.cancel.is_cancelled() {
                return self.worker.release().map(|()| None);
            }
            let tally = self.worker.pause()?;
            if tally.is_some() || self.worker.is_retired() {
                return tally.map_or_else(|| self.worker.tally(), Ok).map(Some);
            }
            if self.jobs.load(Ordering::Relaxed) == before {
                self.cancel.sleep(POLL_INTERVAL);
            }
        }
    }

    fn execute_file(&self, task: FileTask) -> Option<Bytes> {
        // Whatever fails within one file, even by a panic, its unit ends.
        let caught = catch_unwind(AssertUnwindSafe(|| self.fetch(&task)));
        let end = caught.unwrap_or_else(|_| file_failed("an internal error: report it as a bug".to_owned()));
        let size = match end {
            FileEnd::Received(size) | FileEnd::Present(size) => Some(size),
            FileEnd::Failed { .. } | FileEnd::Unjoinable(_) => None,
        };
        if let Err(error) = self.worker.finish_file(task, end) {
            self.worker.retire();
            self.error.lock().get_or_insert(error);
        }
        size
    }

    fn fetch(&self, task: &FileTask) -> FileEnd {
        let file = task.file();
        let urls: Result<Vec<Url>, _> = file.urls.iter().map(|url| url.parse()).collect();
        let urls = match urls {
            Ok(urls) if !urls.is_empty() => urls,
            _ => return file_failed(format!("{} has no valid URL", file.path.display())),
        };
        let id = JobId::new(self.jobs.fetch_add(1, Ordering::Relaxed) + 1);
        let tag = JobTag::new(id, &SafeUrl::of(&urls[0]).to_string());
        let range = match task.part() {
            Some(FilePart::Range { start, end, .. }) => Some(ByteRange::new(start, end)),
            _ => None,
        };
        let is_range = range.is_some();
        if let Some(size) = self.worker.target().present(file).filter(|_| !is_range) {
            let there = Unchanged { path: self.worker.target().path_of(file), size };
            let shown = self.session.run(&tag, |_| Ok::<_, TransferError>(there), TransferError::kind);
            return shown.map_or_else(|_| file_failed("stopped".to_owned()), |()| FileEnd::Present(size));
        }
        if let Some(FilePart::Join { .. }) = task.part() {
            return self.worker.join(task);
        }
        let expected = Expected {
            // Apache states no length of an empty file.
            size: file.size.filter(|size| *size > Bytes::ZERO),
            checksums: file.checksum.iter().filter(|_| !is_range).cloned().collect(),
            modified: file.modified(),
            is_dated: true,
            is_listed: true,
            ..Expected::default()
        };
        let (root, path) = (self.worker.target().root().clone(), task.staged().to_owned());
        let output = match range.zip(file.size) {
            Some((range, size)) => {
                let creates = !task.has_range();
                Output::Slice(FileSlice { root, path, size, range, creates })
            }
            _ => Output::Beneath { root, path },
        };
        let admission = self.admit(&urls[0], file.size, task.cancel());
        let job = Job { urls, output, expected, options: self.options_of(&admission) };
        let (mut size, mut failed) = (Bytes::ZERO, file_failed(String::new()));
        let mut get = |observer: JobObserver<'_>| {
            let (worker, received) = (self.worker, AtomicU64::new(0));
            let counted = CountedBytes { observer, worker, admission: &admission, received };
            let result = self.engine.run(&job, JobObserver::new(&tag, &counted), task.cancel());
            result.inspect(|outcome| {
                size = outcome.size;
                counted.count_to(outcome.size - outcome.resumed);
                task.explain(Self::held(outcome, &admission));
            })
        };
        let get = |observer: JobObserver<'_>| {
            get(observer).inspect_err(|error| failed = self.noted(error, is_range))
        };
        if self.session.run(&tag, get, TransferError::kind).is_err() {
            return failed;
        }
        match file.size {
            Some(planned) if planned != size => file_failed(format!(
                "{} has {} bytes, and {} were planned: it was changed",
                tag.url(),
                size.get(),
                planned.get()
            )),
            // A part of it may be of a worker that was stopped.
            _ => FileEnd::Received(range.map_or(size, ByteRange::len)),
        }
    }

    /// Waits until a file may be received.
    fn admit(&self, url: &Url, size: Option<Bytes>, cancel: &Cancel) -> Admission {
        let wants = match self.options.transfer.streams {
            _ if size.is_some_and(|size| size <= MAX_SMALL) => 1,
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

    /// Returns for how long what held a file back.
    fn held(outcome: &Outcome, admission: &Admission) -> Vec<(HeldBy, Duration)> {
        let is_farms = admission.limit().is_farms();
        let held = |limit| match limit {
            LimitedBy::Limit if is_farms => HeldBy::FarmLimit,
            limit => HeldBy::Transfer(limit),
        };
        let ranked = outcome.finding.shares.ranked().into_iter();
        ranked.map(|(limit, share)| (held(limit), outcome.time.mul_f64(share))).collect()
    }

    /// Returns the failure of a file. One of this host's disk or memory makes the worker claim nothing more.
    fn noted(&self, error: &TransferError, is_range: bool) -> FileEnd {
        use FailureKind::{CannotCreate, Config, Denied, Disk, Host, NoHost, Protocol, Unavailable};
        let is_of_all_ranges = match error {
            // The source has another state, or proves none.
            TransferError::Failed(failure) => failure.cause == Cause::OtherFile,
            // The file that receives the ranges is missing.
            TransferError::Output(OutputError::Create { source, .. }) => source.kind() == ErrorKind::NotFound,
            _ => false,
        };
        if is_range && is_of_all_ranges {
            return FileEnd::Unjoinable(error.to_string());
        }
        if matches!(error.kind(), Disk | CannotCreate | Host) {
            self.worker.retire();
        }
        let is_refused = matches!(error.kind(), Denied | NoHost | Unavailable | Protocol | Config);
        FileEnd::Failed { why: error.to_string(), is_refused }
    }
}

/// Returns the failure of a file that is not the host's fault.
fn file_failed(why: String) -> FileEnd {
    FileEnd::Failed { why, is_refused: false }
}

/// Counts the bytes that a job receives for the worker's heartbeat.
struct CountedBytes<'a> {
    observer: JobObserver<'a>,
    worker: &'a Worker<'a>,
    admission: &'a Admission,
    received: AtomicU64,
}

impl CountedBytes<'_> {
    /// Counts what was received since the last call; `received` is all of the job.
    fn count_to(&self, received: Bytes) {
        let before = self.received.fetch_max(received.get(), Ordering::Relaxed);
        self.worker.count(received - Bytes::new(before), self.admission);
    }
}

impl Observer for CountedBytes<'_> {
    fn on(&self, _job: &JobTag, at: Duration, event: &Event) {
        if let Event::Progress(progress) = event {
            self.count_to(progress.received);
            self.admission.note_streams(progress.streams);
        }
        self.observer.on(at, event);
    }
}
