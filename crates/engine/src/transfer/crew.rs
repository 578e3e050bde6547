//! The threads of a transfer, from their start to their end.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread;

use crossbeam_channel::Receiver;
use longhaul_core::advice::Facts;
use longhaul_core::event::Event;
use longhaul_core::units::Bytes;

use super::error::TransferError;
use super::pages::PageCounter;
use super::shared::Shared;
use super::stream::Stream;
use super::{Job, monitor};
use crate::recv::part_file::{OutputError, PartFile};
use crate::recv::pool::Segment;
use crate::recv::writer::{self, Writer};

/// Runs every thread of the transfer to its end.
///
/// The streams start first: reserving a large file takes the disk a while, and a socket that nobody
/// reads meanwhile closes its window in the middle of slow start.
pub(super) fn run(
    job: &Job<'_>,
    shared: &Shared<'_>,
    streams: Vec<Stream<'_>>,
    segments: &Receiver<Segment>,
    pages: Option<PageCounter>,
) -> Facts {
    let writer = OnceLock::new();
    let (alive, ended) = crossbeam_channel::bounded(0);
    shared.running.store(streams.len(), Ordering::SeqCst);
    thread::scope(|threads| {
        for stream in streams {
            let alive = alive.clone();
            let work = move || {
                stream.run();
                drop(alive);
            };
            if let Err(error) = named("stream").spawn_scoped(threads, work) {
                shared.fail(TransferError::Thread("a stream", error));
            }
        }
        drop(alive);
        let writers = match prepare(job) {
            Ok(ready) => start_writers(job, shared, threads, writer.get_or_init(|| ready).as_ref(), segments),
            Err(error) => {
                shared.fail(error.into());
                Vec::new()
            }
        };
        let facts = monitor::watch(job, shared, pages, &ended);
        writers.into_iter().for_each(|writer| drop(writer.join()));
        shared.checkpoint.end();
        facts
    })
}

/// Empties a partial file that is not resumed, reserves its space and opens its writer.
fn prepare(job: &Job<'_>) -> Result<Box<dyn Writer>, OutputError> {
    let Job { part, request, size, resumed, .. } = *job;
    if resumed == Bytes::ZERO {
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

/// Starts the writers and the thread that commits what they write.
fn start_writers<'scope, 'env: 'scope>(
    job: &Job<'scope>,
    shared: &'scope Shared<'_>,
    threads: &'scope thread::Scope<'scope, 'env>,
    writer: &'scope dyn Writer,
    segments: &'scope Receiver<Segment>,
) -> Vec<thread::ScopedJoinHandle<'scope, ()>> {
    let Job { part, journal, size, resumed, .. } = *job;
    shared.emit(&Event::Opened { path: part.target().to_owned(), size, resumed, writer: writer.name() });
    if let Some(journal) = journal {
        // Before the first write, so that its descriptor hears of every write-back error.
        let file = part.reopen();
        let commit = move || {
            let path = part.journal_path();
            if let Err(source) = file.and_then(|file| shared.checkpoint.run(&file, journal, path)) {
                let path = path.to_owned();
                shared.fail(OutputError::Write { operation: "commit to", path, source }.into());
            }
        };
        if let Err(error) = named("checkpoint").spawn_scoped(threads, commit) {
            shared.fail(TransferError::Thread("the journal", error));
        }
    }
    let start = |_| {
        let started = named("writer").spawn_scoped(threads, move || drain(shared, segments, writer, part));
        started.map_err(|error| shared.fail(TransferError::Thread("the writer", error))).ok()
    };
    (0..writer.threads()).filter_map(start).collect()
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
                shared.checkpoint.write_failed();
                let path = part.path().to_owned();
                shared.fail(OutputError::Write { operation: "write", path, source }.into());
            }
        }
    }
}

pub(super) fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}
