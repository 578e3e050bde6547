//! Wires the stages of a transfer from the network to the disk.
//!
//! ```text
//!              per stream                           shared
//!            +-------------------------+        +---------------------------+
//!  server -->| socket buffer -- read --|------->| segment --+--> writer x n |--> part file --> target
//!            |   (kernel, RWIN)        |   ^    |  (application buffer)     |    (direct | mmap | buffered)
//!            +-------------------------+   |    +------------|--------------+
//!  Blocks: first come, first served -------'                 v
//!                                                     Checkpoint: fdatasync, then journal
//! ```
//!
//! A thread a stream, a few for the writer, one for the checkpoint; the caller's thread watches.

mod arrivals;
mod crew;
mod error;
mod monitor;
mod opening;
mod pages;
mod place;
mod remote;
mod request;
mod sampler;
pub(crate) mod shared;
mod stream;
pub(crate) mod watched;
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
use longhaul_sys::write_back;

pub use error::{Kept, TransferError, TransferErrorKind};
pub use request::{GetRequest, Outcome, Target};

use crate::cancel::Cancel;
use crate::digest;
use crate::recv::checkpoint::Checkpoint;
use crate::recv::journal::Journal;
use crate::recv::part_file::{OutputError, PartFile};
use crate::recv::pool::SegmentPool;
use crate::source::http::HttpError;
use opening::Opening;
use pages::PageCounter;
use shared::Shared;
use stream::{Stream, StreamOptions};
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
    let opening = opening::open(request, &stop, &emit)?;
    let (size, resumed, streams) = (opening.remote.size, opening.committed.total(), opening.streams);

    let usual = plan::segments(request.app_buffer, streams);
    let plan = request.segment.map_or(usual, |size| plan::segments_of(size, request.app_buffer, streams));
    let mut claimed = opening.committed.clone();
    claimed.insert(opening.first);
    let gaps = size.map_or_else(Vec::new, |size| claimed.gaps(ByteRange::with_len(0, size)));
    // Not of the size asked for: tiny segments shall cost calls, not requests.
    let work = Work::new(Blocks::new(gaps, streams, usual.size));
    let limiter = request.limit.map(Limiter::new);
    let checkpoint = Checkpoint::new(opening.committed.clone());
    let shared = Shared::new(start, observer, stop, work, SegmentPool::new(plan), checkpoint, limiter);
    let counted = request.sample.is_some() || request.count_pages;
    let pages = counted.then(|| PageCounter::of(opening.part.file())).flatten();
    // Whoever looks more often counts, for all.
    let Some(interval) = request.sample else { return fetch(request, cancel, &shared, opening, pages) };
    thread::scope(|threads| {
        let (alive, ended) = crossbeam_channel::bounded(0);
        let shared = &shared;
        let sample = move || sampler::run(shared, pages, resumed, interval, &ended);
        if let Err(error) = crew::named("sampler").spawn_scoped(threads, sample) {
            tracing::warn!("no samples are taken: cannot start a thread: {error}");
        }
        let result = fetch(request, cancel, shared, opening, None);
        drop(alive);
        result
    })
}

/// Fetches an opened file: runs the threads, verifies, gives the final name; `pages` are counted on the way.
fn fetch(
    request: &GetRequest,
    cancel: &Cancel,
    shared: &Shared<'_>,
    opening: Opening,
    pages: Option<PageCounter>,
) -> Result<Outcome, TransferError> {
    let Opening { client, remote, connection, first, part, journal, committed, streams } = opening;
    let (size, resumed) = (remote.size, committed.total());
    // A buffer that the user has set is the window that the user wants.
    let hold_window = request.client.recv_buffer.is_none();
    let options = StreamOptions { retries: request.retries, stall: request.stall, hold_window };
    let (queue, segments) = crossbeam_channel::unbounded();
    let mut crew: Vec<_> =
        (0..streams).map(|id| Stream::new(id, shared, queue.clone(), &client, &remote, options)).collect();
    drop(queue);
    if let Some(leader) = crew.first_mut() {
        leader.begin_with(connection, first);
    }
    let job = Job { request, cancel, part: &part, journal: journal.as_ref(), size, resumed };
    let facts = crew::run(&job, shared, crew, &segments, pages);

    let written = shared.checkpoint.written();
    let resumable = journal.is_some() && written > Bytes::ZERO;
    let digest = match conclude(&job, shared, resumable) {
        Ok(digest) => digest,
        Err(error) => return Err(leave(part, resumable, error)),
    };
    let path = part.finish(matches!(request.target, Target::File(_)))?;
    let time = shared.start.elapsed();
    Ok(Outcome {
        path,
        size: written,
        resumed,
        time,
        goodput: Rate::over(written - resumed, time),
        streams: facts.streams,
        out_of_order: facts.out_of_order,
        digest,
        finding: advice::diagnose(&facts),
    })
}

/// What a transfer is about.
struct Job<'a> {
    request: &'a GetRequest,
    cancel: &'a Cancel,
    part: &'a PartFile,
    journal: Option<&'a Journal>,
    size: Option<Bytes>,
    resumed: Bytes,
}

/// Says whether the file is complete and what was asked for; returns its digest where a checksum was given.
fn conclude(
    job: &Job<'_>,
    shared: &Shared<'_>,
    resumable: bool,
) -> Result<Option<digest::Checksum>, TransferError> {
    let Job { part, size, request, cancel, .. } = *job;
    let written = shared.checkpoint.written();
    let kept = if resumable { Kept::Resumable(written) } else { Kept::Nothing };
    match shared.failure() {
        None | Some(TransferError::Http(HttpError::Cancelled)) if cancel.is_cancelled() => {
            return Err(TransferError::Interrupted { kept });
        }
        Some(error) => return Err(error),
        None => {}
    }
    let path = part.path().to_owned();
    if size.is_some_and(|size| !shared.checkpoint.covers(ByteRange::with_len(0, size))) {
        if let Some(error) = shared.last_given_up() {
            return Err(error);
        }
        let source = io::Error::other(format!("only {written} were written"));
        return Err(OutputError::Write { operation: "complete", path, source }.into());
    }
    let Some(wanted) = &request.checksum else { return Ok(None) };
    shared.emit(&Event::Verifying);
    // From the device, where the kernel lets go of its copy: a write that was lost is found too.
    let synced = part
        .file()
        .sync_data()
        .and_then(|()| write_back::finish_and_drop(part.file(), ByteRange::with_len(0, written)));
    let read = synced.and_then(|()| digest::of_file(&path, wanted.algorithm, cancel));
    let read =
        read.map_err(|source| OutputError::Write { operation: "verify", path: path.clone(), source })?;
    let found = read.ok_or(TransferError::Interrupted { kept })?;
    if found == *wanted {
        Ok(Some(found))
    } else {
        Err(TransferError::Checksum { path, wanted: wanted.clone(), found, kept: resumable })
    }
}

/// Ends a failed transfer: keeps what the next run can use, removes what it cannot.
fn leave(part: PartFile, resumable: bool, error: TransferError) -> TransferError {
    if !resumable {
        part.discard();
    }
    error
}
