//! The threads of a transfer, from their start to their end.

use std::sync::Arc;
use std::thread::{self, Scope};

use crossbeam_channel::{Receiver, Sender};
use longhaul_core::advice::Facts;
use longhaul_core::event::Event;
use longhaul_core::ranges::ByteRange;
use longhaul_core::tune::streams::Remembered;

use super::error::TransferError;
use super::monitor;
use super::seat::Seat;
use super::shared::Shared;
use super::stream::{Means, Stream};
use super::tuned::Tuning;
use crate::sink::pages::PageCounter;
use crate::sink::pipeline::PipelineError;
use crate::sink::pipeline::QueuedSegment;
use crate::source::http::Connection;
use crate::threads::named;

/// Starts the threads of streams, as many as are wanted.
pub(super) struct Foreman<'scope, 'env, 'a: 'scope> {
    threads: &'scope Scope<'scope, 'env>,
    means: Means<'a>,
    /// Gone once every stream is, and the foreman.
    alive: Sender<()>,
}

impl<'scope, 'a: 'scope> Foreman<'scope, '_, 'a> {
    /// Begins with so many streams, the first of which has a connection whose answer holds `range`.
    pub(super) fn begin(&self, count: usize, connection: Connection, range: ByteRange) {
        let mut seats = self.plan(count.max(1)).into_iter();
        if let Some(seat) = seats.next() {
            let mut stream = Stream::new(seat, self.means.clone());
            stream.begin_with(connection, range);
            self.start(stream);
        }
        seats.for_each(|seat| self.start(Stream::new(seat, self.means.clone())));
    }

    /// Wants so many streams from now on; those that are too many go when they have what they asked for.
    pub(super) fn want(&self, count: usize) {
        let seats = self.plan(count);
        self.shared().work.wake();
        seats.into_iter().for_each(|seat| self.start(Stream::new(seat, self.means.clone())));
    }

    pub(super) fn shared(&self) -> &'a Shared<'a> {
        self.means.shared
    }

    fn plan(&self, count: usize) -> Vec<Arc<Seat>> {
        let shared = self.shared();
        shared.pipeline.pool().serve(count);
        shared.work.plan_for(count);
        shared.crew.want(count)
    }

    fn start(&self, stream: Stream<'a>) {
        let (alive, seat) = (self.alive.clone(), stream.seat());
        let work = move || {
            stream.run();
            drop(alive);
        };
        if let Err(error) = named("stream").spawn_scoped(self.threads, work) {
            let shared = self.shared();
            shared.work.leave(&seat);
            // This host's limit is like a server's.
            if shared.crew.leave_refused(&seat, false, None).is_none() {
                shared.fail(TransferError::Thread("a stream", error));
            }
        }
    }
}

/// What a run has shown.
pub(super) struct Shown {
    pub(super) facts: Facts,
    /// What the path turned out to be, where somebody has found out.
    pub(super) path: Option<Remembered>,
}

/// Runs every thread of the transfer to its end.
///
/// The streams start first: reserving a large file takes the disk a while, and a socket that nobody
/// reads meanwhile closes its window in the middle of slow start.
pub(super) fn run(
    means: Means<'_>,
    tuning: Tuning,
    (connection, first): (Connection, ByteRange),
    segments: &Receiver<QueuedSegment>,
    pages: Option<PageCounter>,
) -> Shown {
    let shared = means.shared;
    let (alive, ended) = crossbeam_channel::bounded(0);
    let fail = |error: PipelineError| shared.fail(error.into());
    thread::scope(|threads| {
        let foreman = Foreman { threads, means, alive };
        foreman.begin(tuning.streams(), connection, first);
        let tuner = tuning.start(threads, foreman);
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
        // A panic in it has told itself.
        let path = tuner.and_then(|tuner| tuner.join().ok().flatten());
        Shown { facts, path }
    })
}
