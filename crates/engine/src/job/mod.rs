//! One file from its URLs to its final name.
//!
//! ```text
//!  open: describe, name, partial file, journal --> Round<Receiving> --> verify --> final name
//!                                                  ^ (a StreamSet a source) |
//!                                                  '-- wrong bytes, again --'
//! ```

mod already_there;
mod fetch;
mod finishing;
mod joining_mirrors;
mod monitor;
mod open;
mod request;
mod verify;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use longhaul_core::advice::{End, SenderPace};
use longhaul_core::buffer_plan;
use longhaul_core::checksum::Algorithm;
use longhaul_core::event::{Done, Event, JobObserver};
use longhaul_core::failure::Failure;
use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::ranges::ByteRange;
use longhaul_core::schedule::{Blocks, RangeScheduler};
use longhaul_core::units::Bytes;

pub use crate::transfer::error::TransferError;
pub use crate::transfer::{AptSettings, StreamCap, Streams, TransferOptions};
pub use request::{ExistingFilePolicy, Expected, FileHere, Job, JobOptions};

use crate::cancel::Cancel;
use crate::digest::WantedDigests;
use crate::engine::Engine;
use crate::known_paths::KnownPaths;
use crate::limit_watch::LimitWatch;
use crate::sink::output::Output;
use crate::sink::pages::PageCounter;
use crate::sink::pipeline::Pipeline;
use crate::source::Source;
use crate::streams::{CountStart, chosen};
use crate::threads::named;
use crate::transfer::TransferProgress;
use crate::tree_digest::TreeDigest;
use crate::verify::Verify;
use fetch::{Fetch, RoundPlan};
use monitor::FetchMonitor;
use open::OpenedJob;
pub use open::RangeEvidence;

/// The alignment of blocks while the number of streams may change: every writer accepts multiples
/// of it.
const BLOCK_ALIGNMENT: Bytes = Bytes::kib(64);

impl Engine {
    /// Connects to the HTTP server of an expected job, with the job's settings, and holds the
    /// connection for 3 seconds. At most 2 connections per server and 8 in all are held; further
    /// calls return at once.
    ///
    /// # Errors
    /// Invalid settings of the job. A server that cannot be reached is not an error.
    pub fn hold_early(&self, job: &Job) -> Result<(), Failure> {
        let paths = KnownPaths::read(job.options.transfer.memory.as_deref(), &|_| ());
        open::hold_early(self, job, &paths)
    }

    /// Fetches a file; returns once it is complete, verified and under its final name.
    ///
    /// # Errors
    /// [`TransferError`]. The bytes fetched so far are kept for the next run if the server allows a
    /// safe resume; an incomplete file never appears under the final name.
    pub fn run(&self, job: &Job, observer: JobObserver<'_>, cancel: &Cancel) -> Result<Done, TransferError> {
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
        let opened = open::open(self, job, &paths, &stop, &emit)?;
        let OpenedJob { sources, primary, description, part, replace, journal, committed, expected } = opened;
        let options = &job.options;
        let size = description.file.size;
        let paced = description.path.pace.is_some() && options.transfer.pace != Pace::Off;
        let left = size.unwrap_or_default() - committed.total();
        let control = chosen(
            options.transfer.streams,
            &options.transfer.stream_cap,
            &CountStart::of_fetch(sources[primary].as_ref(), &description, paced, left),
        );

        let mut requested = committed.clone();
        requested.insert(description.ranges.first);
        let gaps = size.map_or_else(Vec::new, |size| requested.gaps(ByteRange::with_len(0, size)));
        sources[primary].expect_streams(control.streams());
        let (streams, joinable) = (control.streams(), control.is_controlled() || sources.len() > 1);
        let pool = self.pool(options.segment, streams);
        // Independent of a requested segment size: tiny segments cost system calls, not requests.
        let alignment = if joinable {
            BLOCK_ALIGNMENT
        } else {
            buffer_plan::segments(self.app_buffer_at_start(), streams).size
        };
        let mut scheduler = RangeScheduler::new(Blocks::new(gaps, streams, joinable, alignment));
        if let Some(chunk) = control.first_chunk() {
            scheduler.allow(chunk - description.ranges.first.len());
        }
        let pipeline = Pipeline::new(part, journal, size, committed, options.writer, pool);
        let pipeline = pipeline.stopped_by(stop.clone()).of_at_most(options.max_size);
        let pipeline = match options.verify {
            Verify::Passing => hashing(pipeline, expected.digests()),
            Verify::Disk => pipeline,
        };
        let transfer = TransferProgress::new(start, observer, options.transfer.limit.clone(), sources.len());
        let sources: Vec<&dyn Source> = sources.iter().map(|source| source.as_ref() as &dyn Source).collect();
        let sender_pace =
            description.path.pace.and_then(|stated| SenderPace::of(stated, requested_pace(options)));
        let monitor = FetchMonitor::new(&pipeline, LimitWatch::new(End::Receiver, sender_pace));
        let fetch = Fetch {
            job,
            transfer: &transfer,
            pipeline: &pipeline,
            monitor: &monitor,
            sources,
            primary,
            description,
            expected,
            paths: &paths,
            replace,
        };
        let is_file = !pipeline.part().is_stream();
        let counted = is_file && (options.transfer.sample.is_some() || options.count_pages);
        let pages = counted.then(|| PageCounter::of(pipeline.part().file())).flatten();
        let plan = RoundPlan { control: Some(control), scheduler, pages: None };
        // One thread counts the pages: the sampler if there is one, else the monitor.
        let Some(interval) = &options.transfer.sample else {
            return fetch.run(RoundPlan { pages, ..plan }, &stop, cancel);
        };
        thread::scope(|threads| {
            let (alive, ended) = crossbeam_channel::bounded(0);
            let (monitor, transfer) = (&monitor, &transfer);
            let sample = move || monitor.sample(transfer, pages, interval, &ended);
            if let Err(error) = named("sampler").spawn_scoped(threads, sample) {
                tracing::warn!("no samples are taken: cannot start a thread: {error}");
            }
            let result = fetch.run(plan, &stop, cancel);
            drop(alive);
            result
        })
    }
}

/// Returns the pace that is requested of servers.
fn requested_pace(options: &JobOptions) -> Option<Pace> {
    let field = options.transfer.client.requests.headers.iter().find(|header| header.is(PACE_HEADER))?;
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
