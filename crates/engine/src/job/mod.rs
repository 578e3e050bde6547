//! One file from its URLs to its final name.
//!
//! ```text
//!  open: describe, name, partial file, journal --> streams of each source --> verify --> final name
//!                                                  ^      (StreamSet)            |
//!                                                  '---- wrong bytes, again -----'
//! ```

mod already_there;
mod mirrors;
mod monitor;
mod open;
mod request;
mod verify;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use longhaul_core::advice::{End, KnownLimits, SenderPace};
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::{Event, JobObserver, Warning};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::identity::Identity;
use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::schedule::{Blocks, RangeScheduler};
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rate};
use parking_lot::Mutex;

pub use crate::transfer::error::{Kept, RefutedFate, TransferError};
pub use crate::transfer::{AptSettings, Streams, TransferOptions};
pub use request::{ExistingFilePolicy, Expected, FileHere, Job, JobOptions, Outcome};

use crate::cancel::Cancel;
use crate::digest::WantedDigests;
use crate::engine::EngineState;
use crate::known_paths::KnownPaths;
use crate::limit_watch::LimitWatch;
use crate::rate_limit::{RateLimit, is_of_pace};
use crate::sink::origin_tag;
use crate::sink::output::Output;
use crate::sink::pages::PageCounter;
use crate::sink::pipeline::{Pipeline, PipelineError};
use crate::source::{Description, Source};
use crate::streams::{CountControl, CountStart, Starter, StreamSet, chosen};
use crate::threads::named;
use crate::transfer::{FileTransfer, SharedSchedule, SourceProgress, StreamOptions, TransferState};
use crate::tree_digest::TreeDigest;
use crate::verify::Verify;
use monitor::PathFacts;
use open::OpenedJob;
use verify::Verification;

/// The alignment of blocks while the number of streams may change: every writer accepts multiples
/// of it.
const BLOCK_ALIGNMENT: Bytes = Bytes::kib(64);
/// A shorter transfer has no usable best second.
const LEVEL_FOR: std::time::Duration = std::time::Duration::from_secs(2);

/// Connects to the server of a job's first URL, and holds the connection for a job expected within
/// seconds.
pub(crate) fn hold_early(engine: &EngineState, job: &Job) -> Result<(), Failure> {
    let paths = KnownPaths::read(job.options.transfer.memory.as_deref(), &|_| ());
    open::hold_early(engine, job, &paths)
}

/// Fetches a file; returns once it is complete, verified and under its final name.
///
/// # Errors
/// [`TransferError`]. The bytes fetched so far are kept for the next run if the server allows a
/// safe resume; an incomplete file never appears under the final name.
pub(crate) fn run(
    engine: &EngineState,
    job: &Job,
    observer: JobObserver<'_>,
    cancel: &Cancel,
) -> Result<Outcome, TransferError> {
    let start = Instant::now();
    let emit = |event: &Event| observer.on(start.elapsed(), event);
    // Raised by the user's flag, and by any thread with a permanent failure.
    let stop = cancel.child();
    let in_order;
    let job = if matches!(job.output, Output::Stream { .. }) {
        in_order = for_stream(job);
        &in_order
    } else {
        job
    };
    let paths = KnownPaths::read(job.options.transfer.memory.as_deref(), &emit);
    let opened = open::open(engine, job, &paths, &stop, &emit)?;
    let OpenedJob { sources, primary, description, part, replace, journal, committed, expected } = opened;
    let options = &job.options;
    let size = description.size;
    let paced = description.pace.is_some() && options.transfer.pace != Pace::Off;
    let left = size.unwrap_or_default() - committed.total();
    let control = chosen(
        options.transfer.streams,
        &CountStart::of_fetch(sources[primary].as_ref(), &description, paced, left),
    );

    let mut requested = committed.clone();
    requested.insert(description.first);
    let gaps = size.map_or_else(Vec::new, |size| requested.gaps(ByteRange::with_len(0, size)));
    sources[primary].expect_streams(control.streams());
    let (streams, joinable) = (control.streams(), control.is_controlled() || sources.len() > 1);
    let pool = engine.pool(options.segment, streams);
    // Independent of a requested segment size: tiny segments cost system calls, not requests.
    let alignment =
        if joinable { BLOCK_ALIGNMENT } else { plan::segments(engine.app_buffer_at_start(), streams).size };
    let mut scheduler = RangeScheduler::new(Blocks::new(gaps, streams, joinable, alignment));
    if let Some(chunk) = control.first_chunk() {
        scheduler.allow(chunk - description.first.len());
    }
    let pipeline = Pipeline::new(part, journal, size, committed, options.writer, pool);
    let pipeline = pipeline.stopped_by(stop.clone()).of_at_most(options.max_size);
    let pipeline = match options.verify {
        Verify::Passing => hashing(pipeline, expected.digests()),
        Verify::Disk => pipeline,
    };
    let schedule = SharedSchedule::new(start, scheduler, options.transfer.limit.clone());
    let streams =
        TransferState::new(start, observer, stop, schedule, options.transfer.limit.clone(), sources.len());
    let transfer = FileTransfer::new(streams, pipeline);
    let sources: Vec<&dyn Source> = sources.iter().map(|source| source.as_ref() as &dyn Source).collect();
    let peer_pace = description.pace.and_then(|stated| SenderPace::of(stated, requested_pace(options)));
    let limits = Mutex::new(LimitWatch::new(End::Receiver, peer_pace));
    let fetch = Fetch {
        job,
        transfer: &transfer,
        sources,
        primary,
        description,
        expected,
        paths: &paths,
        replace,
        limits: &limits,
    };
    let is_file = !transfer.pipeline.part().is_stream();
    let counted = is_file && (options.transfer.sample.is_some() || options.count_pages);
    let pages = counted.then(|| PageCounter::of(transfer.pipeline.part().file())).flatten();
    // One thread counts the pages: the sampler if there is one, else the monitor.
    let Some(interval) = &options.transfer.sample else { return fetch.run(control, cancel, pages) };
    thread::scope(|threads| {
        let (alive, ended) = crossbeam_channel::bounded(0);
        let transfer = &transfer;
        let sample = move || monitor::sample(transfer, pages, interval, &ended);
        if let Err(error) = named("sampler").spawn_scoped(threads, sample) {
            tracing::warn!("no samples are taken: cannot start a thread: {error}");
        }
        let result = fetch.run(control, cancel, None);
        drop(alive);
        result
    })
}

/// Returns the pace that is requested of servers.
fn requested_pace(options: &JobOptions) -> Option<Pace> {
    let field = options.transfer.client.headers.iter().find(|header| header.is(PACE_HEADER))?;
    PaceRequest::parse(field.value()).ok().map(|request| request.pace)
}

/// Adapts the job to an output stream: bytes in order over one connection, hashed during the
/// transfer.
fn for_stream(job: &Job) -> Job {
    let mut job = job.clone();
    (job.options.transfer.streams, job.options.verify) = (Streams::Fixed(1), Verify::Passing);
    job
}

/// Enables hashing in the pipeline; by BLAKE3's tree if the whole file's digest is BLAKE3.
fn hashing(pipeline: Pipeline, mut wanted: WantedDigests) -> Pipeline {
    let size = pipeline.size().filter(|_| wanted.whole == Some(Algorithm::Blake3));
    let tree = size.and_then(TreeDigest::new).map(Arc::new);
    wanted.whole = wanted.whole.filter(|_| tree.is_none());
    pipeline.hashing_in_order(wanted, tree)
}

/// An opened job during its transfer.
struct Fetch<'a> {
    job: &'a Job,
    transfer: &'a FileTransfer<'a>,
    sources: Vec<&'a dyn Source>,
    /// The index of the source that described the file.
    primary: usize,
    description: Description,
    expected: Expected,
    paths: &'a KnownPaths,
    /// Whether an existing file of the final name may be replaced.
    replace: bool,
    /// The limit watch; only one round of streams runs at a time.
    limits: &'a Mutex<LimitWatch>,
}

/// The result of one round of streams.
struct RoundResult {
    facts: PathFacts,
    /// The measurements of the path to the primary source, if reliable.
    path: Option<Remembered>,
}

impl<'a> Fetch<'a> {
    /// Runs the streams, verifies the file, and gives it its final name.
    fn run(
        &self,
        control: CountControl,
        cancel: &Cancel,
        pages: Option<PageCounter>,
    ) -> Result<Outcome, TransferError> {
        let pipeline = &self.transfer.pipeline;
        let fetched = self.fetch_and_verify(control, cancel, pages);
        let (shown, digest) = fetched.inspect_err(|_| {
            // The partial file is kept only if the next run can use it.
            if !pipeline.is_resumable() {
                pipeline.part().abandon();
            }
        })?;
        self.keep_time();
        self.keep_origin();
        let finished = pipeline.finish(self.replace)?;
        for warning in &finished.warnings {
            let reason = warning.to_string();
            self.transfer.emit(&Event::Warning(Warning::Finished { reason }));
        }
        let RoundResult { facts, path } = shown;
        let known = self.description.known.as_ref().zip(facts.rtt);
        let path_rate = known.and_then(|(known, rtt)| known.still_holds(rtt)).map(|path| path.rate);
        self.remember(&facts, path);
        let mut limits = self.limits.lock();
        limits.settle(self.transfer.start.elapsed(), |event| self.transfer.emit(event));
        let (time, size, resumed) = (self.transfer.start.elapsed(), pipeline.written(), pipeline.resumed());
        Ok(Outcome {
            path: finished.path,
            size,
            resumed,
            time,
            goodput: Rate::over(size - resumed, time),
            streams: facts.streams,
            out_of_order: facts.out_of_order,
            digest,
            finding: limits.finding(self.known_limits(path_rate)),
        })
    }

    /// Returns the settings that may have limited the transfer.
    fn known_limits(&self, path_rate: Option<Rate>) -> KnownLimits {
        let (options, part) = (&self.job.options, self.transfer.pipeline.part());
        KnownLimits {
            path_rate,
            recv_buffer: options.transfer.client.recv_buffer,
            window_clamp: self.transfer.sources.iter().filter_map(SourceProgress::window_clamp).min(),
            limit_is_pace: is_of_pace(options.transfer.limit.as_ref(), options.transfer.pace),
            to_pipe: part.is_stream() && part.file().metadata().is_ok_and(|output| !output.is_file()),
            ..KnownLimits::default()
        }
    }

    /// Sets the complete file's modification time to the server's, if requested; without one,
    /// stores the entity tag.
    fn keep_time(&self) {
        let options = &self.job.options;
        let part = self.transfer.pipeline.part();
        if part.is_stream() || !options.keep_time {
            return;
        }
        let Some(modified) = self.description.modified.or(self.expected.modified) else {
            if let Some(Identity::ETag(tag)) = &self.description.identity
                && let Err(error) = origin_tag::write(part.file(), tag)
            {
                tracing::info!("{} does not keep its entity tag: {error}", part.target().display());
            }
            return;
        };
        if let Err(error) = part.set_modified(modified) {
            let reason =
                format!("{} does not get its time of modification: {error}", part.target().display());
            self.transfer.emit(&Event::Warning(Warning::Finished { reason }));
        }
    }

    /// Stores the complete file's origin with it, if a later run is to recognise the file.
    fn keep_origin(&self) {
        let part = self.transfer.pipeline.part();
        if let (Some(state), Some(url)) = (&self.description.state, self.job.urls.first())
            && self.job.options.existing.accept_complete
            && !part.is_stream()
            && let Err(error) = origin_tag::write_origin(part.file(), url, state)
        {
            tracing::info!("{} will not be recognised as complete: {error}", part.target().display());
        }
    }

    /// Fetches the file; fetches wrong bytes again from other sources.
    fn fetch_and_verify(
        &self,
        control: CountControl,
        cancel: &Cancel,
        pages: Option<PageCounter>,
    ) -> Result<(RoundResult, Option<Checksum>), TransferError> {
        let mut suspects = verify::Suspects::new(self.sources.len());
        let mut shown = self.run_streams(Some(control), &suspects, pages)?;
        self.check_end(cancel)?;
        loop {
            match verify::verify(self, &mut suspects, cancel)? {
                Verification::Correct(digest) => return Ok((shown, digest)),
                // The first round's facts describe the transfer.
                Verification::FetchAgain(wrong) => {
                    self.transfer.resume();
                    let again = self.run_streams(None, &suspects, None)?;
                    shown.facts.out_of_order += again.facts.out_of_order;
                    self.check_end(cancel)?;
                    // No remaining source can deliver the ranges.
                    if !self.transfer.schedule.is_done() {
                        return Err(wrong);
                    }
                }
            }
        }
    }

    /// Runs every thread of the transfer until nothing is left to fetch, or the transfer fails.
    ///
    /// The streams start before the file is reserved. Reserving a large file takes time, and a
    /// socket that is not read meanwhile closes its window in the middle of slow start.
    fn run_streams(
        &self,
        control: Option<CountControl>,
        suspects: &verify::Suspects,
        pages: Option<PageCounter>,
    ) -> Result<RoundResult, TransferError> {
        let transfer = self.transfer;
        let options = StreamOptions {
            retries: self.job.options.transfer.retries,
            stall: self.job.options.transfer.stall,
            // A buffer size set by the user is also the window.
            hold_window: self.job.options.transfer.client.recv_buffer.is_none(),
        };
        let controlled = control.as_ref().is_none_or(CountControl::is_controlled);
        let sets: Vec<_> = (self.sources.iter().enumerate())
            .map(|(index, source)| {
                StreamSet::new(transfer, *source, index, options, controlled || index != self.primary)
            })
            .collect();
        let (inlet, segments) = transfer.pipeline.inlet();
        let (alive, ended) = crossbeam_channel::bounded(0);
        let fail = |error: PipelineError| transfer.fail(error.into());
        thread::scope(|threads| {
            let starter = Starter { threads, inlet: Some(inlet), alive };
            let first_round = control.is_some();
            let is_other = |set: &&StreamSet<'_>| !(first_round && set.index == self.primary);
            let trusted = sets.iter().filter(|set| suspects.is_trusted(set.index)).filter(is_other);
            let (usable, unproved): (Vec<_>, Vec<_>) = trusted.partition(|set| set.progress().is_usable());
            // Counted before the primary's streams start: a primary that fails at once leaves its
            // work to the mirrors.
            unproved.iter().for_each(|_| transfer.running.set_joining(true));
            // Started before the mirrors: a mirror takes the absence of streams for the end of the
            // transfer.
            let tuner = control.and_then(|control| {
                sets[self.primary].progress().set_usable(true);
                control.start(&sets[self.primary], starter.clone())
            });
            // In a second round, only sources that proved usable fetch.
            usable.into_iter().for_each(|set| set.set_count(1, &starter));
            unproved.into_iter().for_each(|set| mirrors::start_joining(self, set, starter.clone()));
            drop(starter);
            let running = match transfer.pipeline.prepare() {
                Ok(writer) => {
                    if first_round {
                        self.report_opened(writer.name());
                    }
                    Some(transfer.pipeline.start(threads, &writer, &segments, &fail))
                }
                Err(error) => {
                    transfer.fail(error.into());
                    None
                }
            };
            let facts = monitor::watch(transfer, pages, &mut self.limits.lock(), &ended);
            if let Some(running) = running {
                running.end();
            }
            let path = tuner.and_then(|tuner| tuner.join().ok().flatten());
            Ok(RoundResult { facts, path })
        })
    }

    fn report_opened(&self, writer: &'static str) {
        let pipeline = &self.transfer.pipeline;
        let (path, size, resumed) =
            (pipeline.part().target().to_owned(), pipeline.size(), pipeline.resumed());
        let resumable = self.description.resumable;
        self.transfer.emit(&Event::Opened { path, size, resumed, resumable, writer: writer.into() });
    }

    /// Returns the reason if the streams ended before the file was complete.
    fn check_end(&self, cancel: &Cancel) -> Result<(), TransferError> {
        match self.transfer.end.take_failure() {
            // A user's interrupt also fails the write to a stream.
            Some(error)
                if !cancel.is_cancelled()
                    || !(is_interruption(&error) || self.transfer.pipeline.part().is_stream()) =>
            {
                Err(error)
            }
            None if !cancel.is_cancelled() => match self.transfer.end.take_given_up() {
                Some(error) if !self.transfer.schedule.is_done() => Err(error),
                _ => Ok(()),
            },
            _ => Err(self.interrupted()),
        }
    }

    fn interrupted(&self) -> TransferError {
        let pipeline = &self.transfer.pipeline;
        let kept = if pipeline.is_resumable() { Kept::Resumable(pipeline.written()) } else { Kept::Nothing };
        TransferError::Interrupted { kept }
    }

    /// Stores the measurements of the path.
    fn remember(&self, facts: &PathFacts, path: Option<Remembered>) {
        let pipeline = &self.transfer.pipeline;
        let received = pipeline.written() - pipeline.resumed();
        // A fixed pace, the server's or the requested one, is none of the path.
        let pace = self.description.pace.unwrap_or(self.job.options.transfer.pace);
        let found = path.or_else(|| self.found_by_server(facts, received)).filter(|_| pace.rate().is_none());
        let window = facts.rwin.unwrap_or_default();
        let known = found.zip(self.description.endpoint.clone()).map(|(found, endpoint)| {
            let path = crate::path_memory::KnownPath::new(
                endpoint,
                found,
                pipeline.pool().usage().capacity(),
                window,
            );
            if self.description.pace.is_some() { path.paced() } else { path }
        });
        // Both hosts of a redirect count.
        let corrected = self.description.corrected.clone();
        corrected
            .into_iter()
            .chain(known)
            .for_each(|path| self.paths.keep(path, &|event| self.transfer.emit(event)));
    }

    /// Returns the measurements of a path whose server paces its sending; `None` if the transfer
    /// ended before they were reliable.
    fn found_by_server(&self, facts: &PathFacts, received: Bytes) -> Option<Remembered> {
        let options = &self.job.options;
        // During slow start the best second is far above the mean.
        let level = received >= facts.best.bytes_in(facts.flowing / 2);
        let alone = options.transfer.pace == Pace::Auto
            && self.description.pace.is_some()
            && facts.streams == 1
            && options.transfer.limit.as_ref().and_then(RateLimit::rate).is_none();
        let found = Remembered { rtt: facts.rtt?, rate: facts.best, streams: 1 };
        (alone && level && facts.flowing >= LEVEL_FOR).then_some(found)
    }
}

fn is_interruption(error: &TransferError) -> bool {
    error.kind() == FailureKind::Interrupted
}
