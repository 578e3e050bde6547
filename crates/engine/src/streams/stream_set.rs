//! The streams of one source: started as many as are wanted, drained where there are too many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::Sender;
use longhaul_core::event::Event;
use longhaul_core::schedule::WorkerId;

use super::run_stream::run_stream;
use crate::sink::pipeline::Inlet;
use crate::source::StreamPeer;
use crate::threads::{lock, spawn_guarded};
use crate::transfer::error::{Cause, Retry, SourceError, TransferError};
use crate::transfer::{SourceProgress, Stream, StreamHandle, StreamOptions, TransferState};

/// What every stream of a source works with.
pub(crate) struct StreamSet<'a> {
    pub(crate) transfer: &'a TransferState<'a>,
    pub(crate) source: &'a dyn StreamPeer,
    /// The source's index in the transfer.
    pub(crate) index: usize,
    pub(crate) options: StreamOptions,
    /// Whether the number of streams is controlled: then a server that takes no more streams is obeyed, and that is no failure.
    controlled: bool,
    /// The source is of no more use: it is down, or sends another file.
    dropped: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
}

/// What a server that takes no further stream has said by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// How many other streams it was serving.
    pub(crate) open: usize,
    /// For how long it wants no more, where it said so.
    pub(crate) wait: Option<Duration>,
}

/// Starts streams on threads of their own.
pub(crate) struct Starter<'scope, 'env, 'a: 'scope> {
    pub(crate) threads: &'scope Scope<'scope, 'env>,
    /// The way to the disk; `None` where the streams send.
    pub(crate) inlet: Option<Inlet<'a>>,
    /// Dropped once every stream has ended, and the starter.
    pub(crate) alive: Sender<()>,
}

impl Clone for Starter<'_, '_, '_> {
    fn clone(&self) -> Self {
        Self { threads: self.threads, inlet: self.inlet.clone(), alive: self.alive.clone() }
    }
}

impl<'a> StreamSet<'a> {
    pub(crate) fn new(
        transfer: &'a TransferState<'a>,
        source: &'a dyn StreamPeer,
        index: usize,
        options: StreamOptions,
        controlled: bool,
    ) -> Self {
        let (dropped, refusal) = (AtomicBool::new(false), Mutex::default());
        Self { transfer, source, index, options, controlled, dropped, refusal }
    }

    pub(crate) fn progress(&self) -> &'a SourceProgress {
        &self.transfer.sources[self.index]
    }

    /// Sets the number of streams from now on: starts missing ones, and drains those that are too many.
    pub(crate) fn set_count<'scope>(&'scope self, count: usize, starter: &Starter<'scope, '_, 'a>)
    where
        'a: 'scope,
    {
        if self.is_dropped() {
            return;
        }
        let before = self.progress().connections(self.streams().len());
        let total = (self.transfer.connections() + count).saturating_sub(before);
        if let Some(inlet) = &starter.inlet {
            inlet.pipeline().pool().serve(total);
        }
        self.transfer.schedule.change(|schedule| schedule.plan_for(total));
        for handle in self.adjust(count) {
            self.start(handle, starter);
        }
    }

    /// Chooses which streams stay; returns the handles of those to be started.
    ///
    /// Draining streams that are still connected are kept before new ones are started. Of too many, unconnected ones are
    /// cancelled first, then the slowest are drained.
    fn adjust(&self, count: usize) -> Vec<Arc<StreamHandle>> {
        self.progress().set_wanted(count);
        self.progress().set_multiplexed(self.source.multiplexes());
        let count = if self.source.multiplexes() { count.min(1) } else { count };
        let status = |id: WorkerId| self.transfer.schedule.with(|schedule, _| schedule.status(id));
        let mut streams: Vec<_> = self.streams().into_iter().map(|s| (status(s.id), s)).collect();
        let mut staying = streams.iter().filter(|(_, stream)| !stream.is_draining()).count();
        for (status, stream) in &streams {
            if staying < count && stream.is_draining() && status.connected {
                stream.set_draining(false);
                staying += 1;
            }
        }
        if staying > count {
            streams.retain(|(_, stream)| !stream.is_draining());
            streams.sort_by_key(|(status, _)| (status.connected, status.rate));
            for (status, stream) in &streams[..staying - count] {
                stream.set_draining(true);
                if !status.connected {
                    stream.interrupt();
                }
            }
        }
        self.transfer.register(self.index, count.saturating_sub(staying))
    }

    fn start<'scope>(&'scope self, handle: Arc<StreamHandle>, starter: &Starter<'scope, '_, 'a>)
    where
        'a: 'scope,
    {
        let (alive, inlet) = (starter.alive.clone(), starter.inlet.clone());
        // Joined here, so that the schedule never looks done before the thread runs.
        let stream = Stream::new(Arc::clone(&handle), self.transfer, inlet, self.options);
        let run = move || {
            self.transfer.cpu.count(|| run_stream(self, stream));
            drop(alive);
        };
        let fail = || self.transfer.fail(TransferError::Panicked("a stream"));
        if let Err(error) = spawn_guarded(starter.threads, "stream", run, fail) {
            self.transfer.schedule.change(|schedule| schedule.leave(handle.id));
            // This host's limit is like a server's.
            if self.leave_refused(handle.id, Cause::Refused, None).is_none() {
                self.transfer.unregister(handle.id);
                self.transfer.fail(TransferError::Thread("a stream", error));
            }
        }
    }

    /// Returns the streams of this source that are at work, draining ones included.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamHandle>> {
        let mut streams = self.transfer.streams();
        streams.retain(|stream| stream.source == self.index);
        streams
    }

    /// Returns how many streams are to stay.
    pub(crate) fn staying(&self) -> usize {
        let workers = self.streams().iter().filter(|stream| !stream.is_draining()).count();
        self.progress().connections(workers)
    }

    /// Ends the source's streams: it is down, or sends another file.
    pub(crate) fn drop_source(&self) {
        self.dropped.store(true, Ordering::Relaxed);
        self.progress().set_usable(false);
        for stream in self.streams() {
            stream.set_draining(true);
            stream.interrupt();
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Takes the latest refusal.
    pub(crate) fn take_refusal(&self) -> Option<Refusal> {
        lock(&self.refusal).take()
    }

    /// Lets a stream end that its server has refused while others are served, and keeps the refusal for the control of their
    /// number; `None` where the stream has to go on.
    ///
    /// Other connected streams are served, or will be refused in their turn; but where this one was accepted and then left
    /// waiting, so may they be.
    fn leave_refused(&self, stream: WorkerId, cause: Cause, wait: Option<Duration>) -> Option<Refusal> {
        let others = |s: &Arc<StreamHandle>| s.id != stream && !s.is_draining();
        let mut staying = self.streams();
        staying.retain(others);
        if !self.controlled || staying.is_empty() || !self.transfer.leave_to_others(stream) {
            return None;
        }
        self.progress().set_wanted(staying.len());
        let is_served = |s: &Arc<StreamHandle>| {
            let status = self.transfer.schedule.with(|schedule, _| schedule.status(s.id));
            if cause == Cause::Interrupted { status.answered } else { status.connected }
        };
        let open = staying.iter().filter(|s| is_served(s)).count().max(1);
        let mut last = lock(&self.refusal);
        let refusal = Refusal { open, wait: wait.max(last.and_then(|refusal| refusal.wait)) };
        *last = Some(refusal);
        Some(refusal)
    }

    /// Lets a stream end whose `error` says that the server takes no further stream; returns whether it ends.
    pub(super) fn leaves_refused(&self, stream: WorkerId, error: &SourceError, delivered: bool) -> bool {
        let refused = match error.cause {
            Cause::OtherFile | Cause::NotModified | Cause::EveryStream | Cause::Memory => false,
            Cause::Refused => true,
            // Accepted and then left waiting, while others are served: a server with a fixed number of workers.
            Cause::Interrupted => !delivered && self.serves_another(stream),
            Cause::Unreachable | Cause::Connection => !delivered,
        };
        refused && self.report_refusal(stream, error)
    }

    /// Lets a stream end and reports why, where others do its work; returns whether it ends.
    pub(super) fn report_refusal(&self, stream: WorkerId, error: &SourceError) -> bool {
        let wait = match error.retry {
            Retry::After(wait) => Some(wait),
            _ => None,
        };
        let refusal = self.leave_refused(stream, error.cause, wait);
        if let Some(Refusal { open, .. }) = refusal {
            self.transfer.emit(&Event::Refused { stream, reason: error.to_string(), open });
        }
        refusal.is_some()
    }

    /// Returns whether the server answers another stream.
    fn serves_another(&self, stream: WorkerId) -> bool {
        let answered =
            |s: &Arc<StreamHandle>| self.transfer.schedule.with(|schedule, _| schedule.status(s.id).answered);
        self.streams().iter().any(|other| other.id != stream && answered(other))
    }
}
