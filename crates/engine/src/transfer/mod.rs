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
mod error;
mod monitor;
mod opening;
mod place;
mod remote;
mod request;
mod shared;
mod stream;
mod work;

use std::io;
use std::time::Instant;

use crossbeam_channel::Receiver;
use longhaul_core::advice::{self, Facts};
use longhaul_core::blocks::Blocks;
use longhaul_core::event::{Event, Observer};
use longhaul_core::limit::Limiter;
use longhaul_core::plan;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::{Bytes, Rate};

pub use error::{Kept, TransferError, TransferErrorKind};
pub use request::{GetRequest, Outcome, Target};

use crate::cancel::Cancel;
use crate::digest;
use crate::recv::checkpoint::Checkpoint;
use crate::recv::journal::Journal;
use crate::recv::part_file::{OutputError, PartFile};
use crate::recv::pool::{Segment, SegmentPool};
use crate::recv::writer::{self, Writer};
use crate::source::http::HttpError;
use opening::Opening;
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
    let Opening { client, remote, connection, first, part, journal, committed, streams } =
        opening::open(request, cancel, &emit)?;
    let (size, resumed) = (remote.size, committed.total());
    let writer = match prepare(&part, &committed, size, request) {
        Ok(writer) => writer,
        Err(error) => return Err(leave(part, resumed > Bytes::ZERO, error.into())),
    };
    emit(&Event::Opened { path: part.target().to_owned(), size, resumed, writer: writer.name() });

    let plan = plan::segments(request.app_buffer, streams);
    let mut claimed = committed.clone();
    claimed.insert(first);
    let gaps = size.map_or_else(Vec::new, |size| claimed.gaps(ByteRange::with_len(0, size)));
    let work = Work::new(Blocks::new(gaps, streams, plan.size));
    let limiter = request.limit.map(Limiter::new);
    let shared =
        Shared::new(start, observer, work, SegmentPool::new(plan), Checkpoint::new(committed), limiter);
    // A buffer that the user has set is the window that the user wants.
    let hold_window = request.client.recv_buffer.is_none();
    let options = StreamOptions { retries: request.retries, stall: request.stall, hold_window };
    let (queue, segments) = crossbeam_channel::unbounded();
    let mut crew: Vec<_> =
        (0..streams).map(|id| Stream::new(id, &shared, queue.clone(), &client, &remote, options)).collect();
    drop(queue);
    if let Some(leader) = crew.first_mut() {
        leader.begin_with(connection, first);
    }
    let facts =
        run(&shared, crew, &segments, writer.as_ref(), (&part, journal.as_ref()), (resumed, size, cancel));
    drop(writer);

    let written = shared.checkpoint.written();
    let resumable = journal.is_some() && written > Bytes::ZERO;
    let digest = match conclude(&shared, &part, size, resumable, request, cancel) {
        Ok(digest) => digest,
        Err(error) => return Err(leave(part, resumable, error)),
    };
    let path = part.finish(matches!(request.target, Target::File(_)))?;
    let time = start.elapsed();
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

/// Empties a partial file that is not resumed, reserves its space and opens its writer.
fn prepare(
    part: &PartFile,
    committed: &RangeSet,
    size: Option<Bytes>,
    request: &GetRequest,
) -> Result<Box<dyn Writer>, OutputError> {
    if committed.total() == Bytes::ZERO {
        part.start_over()?;
    }
    if let Some(size) = size {
        part.reserve(size)?;
    }
    writer::open(request.writer, part.file(), size).map_err(|source| OutputError::Writer {
        path: part.path().to_owned(),
        writer: request.writer.name(),
        source,
    })
}

/// Runs every thread of the transfer to its end.
fn run(
    shared: &Shared<'_>,
    crew: Vec<Stream<'_>>,
    segments: &Receiver<Segment>,
    writer: &dyn Writer,
    (part, journal): (&PartFile, Option<&Journal>),
    (resumed, size, cancel): (Bytes, Option<Bytes>, &Cancel),
) -> Facts {
    let (alive, ended) = crossbeam_channel::bounded(0);
    shared.running.store(crew.len(), std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|threads| {
        let start = |name: &'static str| std::thread::Builder::new().name(name.to_owned());
        if let Some(journal) = journal {
            let commit = || {
                if let Err(source) = shared.checkpoint.run(part.file(), journal, part.journal_path()) {
                    let path = part.journal_path().to_owned();
                    shared.fail(OutputError::Write { operation: "commit to", path, source }.into());
                }
            };
            if let Err(error) = start("checkpoint").spawn_scoped(threads, commit) {
                shared.fail(TransferError::Thread("the journal", error));
            }
        }
        let writers: Vec<_> = (0..writer.threads())
            .filter_map(|_| {
                let drain = || drain(shared, segments, writer, part);
                start("writer")
                    .spawn_scoped(threads, drain)
                    .map_err(|e| shared.fail(TransferError::Thread("the writer", e)))
                    .ok()
            })
            .collect();
        for stream in crew {
            let alive = alive.clone();
            let work = move || {
                stream.run();
                drop(alive);
            };
            if let Err(error) = start("stream").spawn_scoped(threads, work) {
                shared.fail(TransferError::Thread("a stream", error));
            }
        }
        drop(alive);
        let facts = monitor::watch(shared, resumed, size, cancel, &ended);
        writers.into_iter().for_each(|writer| drop(writer.join()));
        shared.checkpoint.end();
        facts
    })
}

/// Writes segments until every stream is gone; after a failure only frees them, so that nobody waits for ever.
fn drain(shared: &Shared<'_>, segments: &Receiver<Segment>, writer: &dyn Writer, part: &PartFile) {
    let mut failed = false;
    for segment in segments {
        if failed {
            continue;
        }
        match writer.write(segment.range().start(), segment.data()) {
            Ok(()) => shared.checkpoint.wrote(segment.range()),
            Err(source) => {
                failed = true;
                shared.fail(
                    OutputError::Write { operation: "write", path: part.path().to_owned(), source }.into(),
                );
            }
        }
    }
}

/// Says whether the file is complete and what was asked for; returns its digest where a checksum was given.
fn conclude(
    shared: &Shared<'_>,
    part: &PartFile,
    size: Option<Bytes>,
    resumable: bool,
    request: &GetRequest,
    cancel: &Cancel,
) -> Result<Option<digest::Checksum>, TransferError> {
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
    let read = digest::of_file(&path, wanted.algorithm, cancel);
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
