//! The threads of a transfer, from their start to their end.

use std::sync::atomic::Ordering;
use std::thread;

use crossbeam_channel::Receiver;
use longhaul_core::advice::Facts;
use longhaul_core::event::Event;

use super::error::TransferError;
use super::monitor;
use super::shared::Shared;
use super::stream::Stream;
use crate::recv::pages::PageCounter;
use crate::recv::pipeline::PipelineError;
use crate::recv::pool::Segment;
use crate::threads::named;

/// Runs every thread of the transfer to its end.
///
/// The streams start first: reserving a large file takes the disk a while, and a socket that nobody
/// reads meanwhile closes its window in the middle of slow start.
pub(super) fn run(
    shared: &Shared<'_>,
    streams: Vec<Stream<'_>>,
    segments: &Receiver<Segment>,
    pages: Option<PageCounter>,
) -> Facts {
    let (alive, ended) = crossbeam_channel::bounded(0);
    let fail = |error: PipelineError| shared.fail(error.into());
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
        let pipeline = &shared.pipeline;
        let running = match pipeline.prepare() {
            Ok(writer) => {
                let (path, size, resumed) =
                    (pipeline.part().target().to_owned(), pipeline.size(), pipeline.resumed());
                shared.emit(&Event::Opened { path, size, resumed, writer: writer.name() });
                Some(pipeline.start(threads, &writer, segments, &fail))
            }
            Err(error) => {
                shared.fail(error.into());
                None
            }
        };
        let facts = monitor::watch(shared, pages, &ended);
        if let Some(running) = running {
            running.end();
        }
        facts
    })
}
