//! The jobs of one command, and their observers: `--json` or progress, and the record.

use std::collections::HashSet;
use std::error::Error;
use std::time::{Duration, Instant};

use longhaul_core::advice::{FileOfRun, LimitedBy, RunDiagnosis};
use longhaul_core::event::{Done, Event, JobId, JobObserver, JobTag, Observer, RunDone};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_scope::record::Recorder;
use longhaul_scope::record::schema::Side;
use parking_lot::Mutex;
use url::Url;

use crate::json::JsonLines;
use crate::many_files::FileResult;
use crate::progress::ProgressLines;
use crate::results::Results;
use crate::transfer_args::TransferArgs;
use crate::{config_file, exit, say, summary};

/// Observes all jobs of a command, which may run concurrently.
pub(crate) struct CommandSession {
    side: Side,
    /// Whether a line is printed for each result, on a terminal or in a log.
    results: bool,
    /// The results of several files.
    table: Option<ResultTable>,
    /// What limited several files together.
    run: Option<Mutex<RunDiagnosis>>,
    /// The number of files, if known.
    files: Option<usize>,
    started: Instant,
    shown: ShownProgress,
    recorder: Option<Recorder>,
    cancel: Cancel,
    /// The active jobs whose file is open.
    begun: Mutex<HashSet<JobId>>,
}

/// The results of several files, printed at the end.
struct ResultTable {
    results: Mutex<Results>,
    /// Whether progress lines are shown; then files have no result line.
    lines: bool,
}

enum ShownProgress {
    Json(JsonLines),
    Progress(ProgressLines),
}

impl CommandSession {
    /// Begins a session of `files`, `None` if unknown, that draws progress if `lines`; `what` is
    /// recorded in the header, and must not contain secrets.
    ///
    /// # Errors
    /// A record or a thread that cannot be made.
    pub(crate) fn begin(
        args: &TransferArgs,
        side: Side,
        what: &str,
        files: Option<usize>,
        lines: bool,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        // A record names the fixed pace of what is sent.
        let recorder = args.record.begin(side, what, args.pace.rate().filter(|_| side == Side::Put))?;
        let shown = if args.json {
            ShownProgress::Json(JsonLines::start().map_err(|error| {
                Failure::new(FailureKind::Host, format!("cannot start a thread for --json: {error}"))
            })?)
        } else {
            ShownProgress::Progress(ProgressLines::begin(lines, side, files))
        };
        let results = !args.quiet && !args.json;
        let several = results && files != Some(1);
        let table = several.then(|| ResultTable { results: Mutex::new(Results::begin()), lines });
        let run = (files != Some(1)).then(Mutex::default);
        let (cancel, started, begun) = (cancel.clone(), Instant::now(), Mutex::default());
        Ok(Self { side, results, table, run, files, started, shown, recorder, cancel, begun })
    }

    /// Runs one job to its end, and reports its result; its URL must not contain secrets. Returns
    /// the size of the file.
    ///
    /// # Errors
    /// The kind of the failure, which has been printed.
    pub(crate) fn run<E: Error>(
        &self,
        job: &JobTag,
        transfer: impl FnOnce(JobObserver<'_>) -> Result<Done, E>,
        kind: fn(&E) -> FailureKind,
    ) -> FileResult {
        let start = Instant::now();
        let result = transfer(JobObserver::new(job, self));
        let size = result.as_ref().map_or(Bytes::ZERO, |done| done.bytes);
        let (end, failure) = match result {
            Ok(done) => (Event::Done(Box::new(self.done_of(job, done))), None),
            Err(error) => {
                let exit_code = exit::of(exit::of_stop(kind(&error), &self.cancel));
                (Event::Error { message: error.to_string(), exit_code }, Some(error))
            }
        };
        self.on(job, start.elapsed(), &end);
        self.show_result(job, &end);
        let has_begun = self.begun.lock().remove(&job.id());
        failure.map_or(Ok(Some(size)), |error| {
            let kind = kind(&error);
            // The end of the command names its time limit; there is no more to say of a file that
            // was not begun.
            if has_begun || exit::of_stop(kind, &self.cancel) == kind {
                say::error(&error);
            }
            Err(kind)
        })
    }

    /// Returns the last event of a file; one of several files adds to the diagnosis of all.
    fn done_of(&self, job: &JobTag, mut done: Done) -> Done {
        if let Some(run) = self.run.as_ref().filter(|_| !done.unchanged) {
            let (ended, time, moved) = (self.started.elapsed(), done.time, done.bytes - done.resumed);
            let (mut run, finding) = (run.lock(), &done.finding);
            run.add(&FileOfRun { server: &server_of(job), ended, time, moved, finding });
            // The diagnosis of the run tells what its files lack, which share the path with each
            // other.
            let are_several = self.files.is_some() || run.files() > 1;
            if are_several && matches!(finding.limit, LimitedBy::SlowStart | LimitedBy::Path) {
                done.finding.advice.clear();
            }
        }
        config_file::add_origins(&mut done.finding.advice);
        done
    }

    /// Says why a file was not transferred, where results are printed.
    pub(crate) fn say_unchanged(&self, file: &Done, why: &str) {
        if self.results {
            let path = file.path.display().to_string();
            say::line(format_args!("{}: {why}", path.replace(char::is_control, "?")));
        }
    }

    /// Prints the result of a file, or stores it for the table.
    fn show_result(&self, job: &JobTag, end: &Event) {
        let is_table = self.table.as_ref().is_some_and(|table| table.lines);
        let name = match (end, self.side) {
            (Event::Done(done), Side::Get) => done.path.display().to_string(),
            _ => job.url().to_owned(),
        };
        if let Some(table) = &self.table {
            let mut results = table.results.lock();
            match end {
                Event::Done(done) if done.unchanged => results.unchanged(),
                Event::Done(done) => results.complete(&name, done),
                _ => results.failed(&name),
            }
        }
        if let (Event::Done(done), true, false) = (end, self.results, is_table)
            && !done.unchanged
        {
            summary::say(done, &name);
            if self.table.is_none() {
                summary::say_advice(&done.finding.advice);
            }
        }
    }

    /// Ends the session; waits only briefly for an output that is not read.
    pub(crate) fn end(self) {
        let run = self.run_done();
        if let Some(run) = &run {
            self.on(&JobTag::of_all(), run.time, &Event::Run(Box::new(run.clone())));
        }
        if let ShownProgress::Json(json) = &self.shown {
            json.end();
        }
        if let Some(table) = self.table {
            let results = table.results.into_inner();
            match table.lines {
                true => results.lines().into_iter().for_each(say::line),
                false => results.total().into_iter().for_each(say::line),
            }
            run.iter().for_each(|run| summary::say_advice(&run.advice));
        }
        // A truncated record is no failure of the transfer.
        if let Some(Err(error)) = self.recorder.map(|recorder| recorder.finish()) {
            say::error(error);
        }
    }

    /// Returns what limited several files together, if any was moved.
    fn run_done(&self) -> Option<RunDone> {
        let (run, time) = (self.run.as_ref()?.lock(), self.started.elapsed());
        let mut finding = run.finding();
        config_file::add_origins(&mut finding.advice);
        let (files, bytes) = (run.files(), run.moved());
        let goodput = Rate::over(bytes, time);
        let (limited_by, shares, advice) = (finding.limit, finding.shares, finding.advice);
        (files > 0).then_some(RunDone { files, bytes, time, goodput, limited_by, shares, advice })
    }
}

/// Returns the name of a job's server.
fn server_of(job: &JobTag) -> String {
    let url = Url::parse(job.url()).ok();
    url.as_ref().and_then(Url::host_str).unwrap_or_default().to_owned()
}

impl Observer for CommandSession {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        if let Event::Opened { .. } = event {
            self.begun.lock().insert(job.id());
        }
        if let (Some(run), Event::Connected { rtt: Some(rtt), .. }) = (&self.run, event) {
            run.lock().add_rtt(&server_of(job), *rtt);
        }
        match &self.shown {
            ShownProgress::Json(json) => json.on(job, at, event),
            ShownProgress::Progress(lines) => lines.on(job, at, event),
        }
        if let Some(recorder) = &self.recorder {
            recorder.on(job, at, event);
        }
    }
}
