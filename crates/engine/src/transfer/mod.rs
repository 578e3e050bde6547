//! Wires the stages of a transfer from the network to the disk.
//!
//! ```text
//!              per stream
//!            +-------------------------+       +--------------------------------------------+
//!  server -->| socket buffer -- read --|------>| sink::pipeline: ring, writers, checkpoint  |--> target
//!            |   (kernel, RWIN)        |   ^   +--------------------------------------------+
//!            +-------------------------+   |
//!  Blocks: first come, first served -------'
//! ```
//!
//! A thread a stream, a few for the writer, one for the checkpoint; the caller's thread watches.

mod buffer;
mod claims;
mod crew;
mod edge;
mod error;
mod memory;
mod monitor;
mod opening;
mod remote;
mod request;
mod run;
mod sampler;
mod seat;
mod shared;
mod stream;
mod tuned;
mod tuning;
mod work;

use std::io;
use std::thread;
use std::time::Instant;

use longhaul_core::advice;
use longhaul_core::blocks::Blocks;
use longhaul_core::event::{Event, Observer};
use longhaul_core::limit::Limiter;
use longhaul_core::plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};

pub use crate::sink::output::Output;
pub use error::{Kept, TransferError};
pub use request::{AptSettings, GetRequest, Outcome, Streams};

use crate::cancel::Cancel;
use crate::path_memory::KnownPath;
use crate::sink::memory_budget::MemoryBudget;
use crate::sink::output_error::OutputError;
use crate::sink::pages::PageCounter;
use crate::sink::pipeline::Pipeline;
use crate::sink::segment_pool::SegmentPool;
use crate::source::http::{Client, Connection, HttpError};
use crate::threads::named;
use longhaul_core::checksum::Checksum;
use memory::Memory;
use opening::Opening;
use remote::Remote;
use run::Shown;
use shared::Shared;
use stream::{Means, StreamOptions};
use tuned::Tuning;
use work::Work;

/// Fetches a file; returns once it is complete, verified and under its final name.
///
/// # Errors
/// [`TransferError`]. What was fetched is kept for the next run wherever the server lets that be safe;
/// nothing ever stands half-written under the final name.
pub fn get(request: &GetRequest, observer: &dyn Observer, cancel: &Cancel) -> Result<Outcome, TransferError> {
    let start = Instant::now();
    let emit = |event: &Event| observer.on(start.elapsed(), event);
    // Raised by the user's flag, and by any thread that fails for good.
    let stop = cancel.child();
    let memory = Memory::read(request.memory.as_deref(), &emit);
    let opening = opening::open(request, &memory, &stop, &emit)?;
    let tuning = tuning::choose(request, &opening);
    let Opening { client, remote, connection, first, part, replace, journal, committed, corrected, .. } =
        opening;
    let size = remote.size;
    let mut claimed = committed.clone();
    claimed.insert(first);
    let gaps = size.map_or_else(Vec::new, |size| claimed.gaps(ByteRange::with_len(0, size)));
    let (streams, tuned) = (tuning.streams(), !matches!(tuning, Tuning::Fixed(_)));
    let pool = SegmentPool::new(&MemoryBudget::new(request.app_buffer), request.segment, streams);
    // Not of a segment's size that was asked for: tiny ones shall cost calls, not requests.
    let block = if tuned { FINE } else { plan::segments(request.app_buffer.at_start(), streams).size };
    let mut blocks = Blocks::new(gaps, streams, tuned, block);
    if let Tuning::Apt(apt) = &tuning {
        blocks.allow(apt.chunk().size - first.len());
    }
    let work = Work::new(blocks);
    let limiter = request.limit.map(Limiter::new);
    let pipeline = Pipeline::new(part, journal, size, committed, request.writer, pool);
    let shared = Shared::new(start, observer, stop, work, pipeline, limiter, tuned);
    let source = Source { client, remote, connection, first, tuning, memory, corrected, replace };
    let counted = request.sample.is_some() || request.count_pages;
    let pages = counted.then(|| PageCounter::of(shared.pipeline.part().file())).flatten();
    // Whoever looks more often counts, for all.
    let Some(interval) = request.sample else { return fetch(request, cancel, &shared, source, pages) };
    thread::scope(|threads| {
        let (alive, ended) = crossbeam_channel::bounded(0);
        let shared = &shared;
        let sample = move || sampler::run(shared, pages, interval, &ended);
        if let Err(error) = named("sampler").spawn_scoped(threads, sample) {
            tracing::warn!("no samples are taken: cannot start a thread: {error}");
        }
        let result = fetch(request, cancel, shared, source, None);
        drop(alive);
        result
    })
}

/// Where blocks may end whose number of streams is not known: every writer takes multiples of it.
const FINE: Bytes = Bytes::kib(64);

/// Where an opened file comes from.
struct Source {
    client: Client,
    remote: Remote,
    /// Standing at the body of `first`.
    connection: Connection,
    first: ByteRange,
    tuning: Tuning,
    memory: Memory,
    /// What is remembered and no longer true: to be kept as this.
    corrected: Option<KnownPath>,
    /// Whether the file may take the place of another.
    replace: bool,
}

/// Fetches an opened file: runs the threads, verifies, gives the final name; `pages` are counted on the way.
fn fetch(
    request: &GetRequest,
    cancel: &Cancel,
    shared: &Shared<'_>,
    source: Source,
    pages: Option<PageCounter>,
) -> Result<Outcome, TransferError> {
    let Source { client, remote, connection, first, tuning, memory, corrected, replace } = source;
    // A buffer that the user has set is the window that the user wants.
    let hold_window = request.client.recv_buffer.is_none();
    let options = StreamOptions {
        retries: request.retries,
        stall: request.stall,
        hold_window,
        pace: request.window_pace(),
    };
    let (inlet, segments) = shared.pipeline.inlet();
    let means = Means { shared, inlet, client: &client, remote: &remote, options };
    let Shown { facts, path } = run::run(means, tuning, (connection, first), &segments, pages);

    let pipeline = &shared.pipeline;
    let digest = conclude(request, cancel, shared).inspect_err(|_| {
        // Kept only where the next run can use it.
        if !pipeline.is_resumable() {
            pipeline.part().abandon();
        }
    })?;
    let finished = pipeline.finish(replace)?;
    finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let received = pipeline.written() - pipeline.resumed();
    let found = path.or_else(|| tuning::found_by_server(request, &remote, &facts, received));
    let window = facts.rwin.unwrap_or_default();
    let found = found.and_then(|found| tuning::known_path(&remote, shared, found, window));
    // A redirect may have led from the one to the other.
    corrected.into_iter().chain(found).for_each(|path| memory.keep(path, &|event| shared.emit(event)));
    let (time, size, resumed) = (shared.start.elapsed(), pipeline.written(), pipeline.resumed());
    Ok(Outcome {
        path: finished.path,
        size,
        resumed,
        time,
        goodput: Rate::over(size - resumed, time),
        streams: facts.streams,
        out_of_order: facts.out_of_order,
        digest,
        finding: advice::diagnose(&facts),
    })
}

/// Says whether the file is complete and what was asked for; returns its digest where a checksum was given.
fn conclude(
    request: &GetRequest,
    cancel: &Cancel,
    shared: &Shared<'_>,
) -> Result<Option<Checksum>, TransferError> {
    let pipeline = &shared.pipeline;
    let (written, resumable) = (pipeline.written(), pipeline.is_resumable());
    let kept = if resumable { Kept::Resumable(written) } else { Kept::Nothing };
    match shared.failure() {
        None | Some(TransferError::Http(HttpError::Cancelled)) if cancel.is_cancelled() => {
            return Err(TransferError::Interrupted { kept });
        }
        Some(error) => return Err(error),
        None => {}
    }
    let path = pipeline.part().path().to_owned();
    if pipeline.size().is_some() && !pipeline.is_complete() {
        if let Some(error) = shared.last_given_up() {
            return Err(error);
        }
        let source = io::Error::other(format!("only {written} were written"));
        return Err(OutputError::Write { operation: "complete", path, source }.into());
    }
    let Some(wanted) = &request.checksum else { return Ok(None) };
    shared.emit(&Event::Verifying);
    let read = pipeline.read_back(wanted.algorithm, cancel)?;
    let found = read.ok_or(TransferError::Interrupted { kept })?;
    if found == *wanted {
        Ok(Some(found))
    } else {
        Err(TransferError::Checksum { path, wanted: wanted.clone(), found, kept: resumable })
    }
}
