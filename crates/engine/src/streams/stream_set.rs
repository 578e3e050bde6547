//! The streams of one source: starts missing ones, and drains surplus ones.

use std::sync::Arc;
use std::thread::Scope;

use crossbeam_channel::Sender;
use longhaul_core::failure::Cause;
use longhaul_core::schedule::WorkerId;
use parking_lot::Mutex;

use super::refused_streams::Refusal;
use super::run_stream::run_stream;
use crate::source::StreamPeer;
use crate::threads::{not_started, spawn_guarded};
use crate::transfer::error::TransferError;
use crate::transfer::{Direction, Receiving, Round, SourceLiveness, SourceProgress, Stream, StreamHandle};

/// The state shared by the streams of a source in one round.
pub(crate) struct StreamSet<'a, D: Direction = Receiving> {
    pub(crate) round: &'a Round<'a, D>,
    pub(crate) peer: &'a dyn StreamPeer<D>,
    /// The source's index in the transfer.
    pub(crate) index: usize,
    /// Whether the number of streams is controlled; then a refusal by the server is not a failure.
    pub(super) controlled: bool,
    pub(super) refusal: Mutex<Option<Refusal>>,
}

/// Starts streams on threads.
#[derive(Clone)]
pub(crate) struct Starter<'scope, 'env> {
    pub(crate) threads: &'scope Scope<'scope, 'env>,
    /// Dropped once the starter and every stream have ended.
    pub(crate) alive: Sender<()>,
}

impl<'a, D: Direction> StreamSet<'a, D> {
    pub(crate) fn new(
        round: &'a Round<'a, D>,
        peer: &'a dyn StreamPeer<D>,
        index: usize,
        controlled: bool,
    ) -> Self {
        Self { round, peer, index, controlled, refusal: Mutex::default() }
    }

    pub(crate) fn progress(&self) -> &'a SourceProgress {
        &self.round.transfer.sources[self.index]
    }

    /// Sets the target number of streams: starts missing ones, and drains surplus ones.
    pub(crate) fn set_count<'scope>(&'scope self, count: usize, starter: &Starter<'scope, '_>) {
        if !self.progress().is_usable() {
            return;
        }
        let before = self.progress().connections(self.streams().len());
        let total = (self.round.connections() + count).saturating_sub(before);
        D::plan_for(&self.round.inlet, total);
        self.round.schedule.change(|schedule| schedule.plan_for(total));
        for handle in self.adjust(count) {
            self.start(handle, starter);
        }
    }

    /// Chooses which streams continue; returns the handles of streams to start.
    ///
    /// Reuses draining streams that are still connected before starting new ones. Of surplus
    /// streams, cancels unconnected ones first, then drains those that the server has not answered,
    /// then the slowest.
    fn adjust(&self, count: usize) -> Vec<Arc<StreamHandle>> {
        self.progress().set_wanted(count);
        self.progress().set_multiplexed(self.peer.multiplexes());
        let is_one = self.peer.multiplexes() || self.peer.takes_one_stream();
        let count = if is_one { count.min(1) } else { count };
        let status = |id: WorkerId| self.round.schedule.with(|schedule, _| schedule.status(id));
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
            streams.sort_by_key(|(status, _)| (status.connected, status.answered, status.rate));
            for (status, stream) in &streams[..staying - count] {
                stream.set_draining(true);
                if !status.connected {
                    stream.interrupt();
                }
            }
        }
        self.round.register(self.index, count.saturating_sub(staying))
    }

    fn start<'scope>(&'scope self, handle: Arc<StreamHandle>, starter: &Starter<'scope, '_>) {
        let alive = starter.alive.clone();
        // Created here, so that the schedule does not look done before the thread runs.
        let stream = Stream::new(Arc::clone(&handle), self.round);
        let run = move || {
            self.round.transfer.cpu.count(|| run_stream(self, stream));
            drop(alive);
        };
        let fail = || self.round.end.fail(TransferError::panicked("a stream"));
        if let Err(error) = spawn_guarded(starter.threads, "stream", run, fail) {
            self.round.schedule.change(|schedule| schedule.leave(handle.id));
            // A lack of threads on this host is treated like a refusal by the server.
            if self.leave_refused(handle.id, Cause::Refused, None).is_none() {
                self.round.running.unregister(handle.id);
                self.round.end.fail(not_started("a stream", &error).into());
            }
        }
    }

    /// Returns the running streams of this source, including draining ones.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamHandle>> {
        let mut streams = self.round.running.all();
        streams.retain(|stream| stream.source == self.index);
        streams
    }

    /// Returns the number of connections that are not draining.
    pub(crate) fn staying(&self) -> usize {
        let workers = self.streams().iter().filter(|stream| !stream.is_draining()).count();
        self.progress().connections(workers)
    }

    /// Stops using the source, which is `liveness` now: drains and interrupts its streams.
    pub(crate) fn drop_source(&self, liveness: SourceLiveness) {
        self.progress().set_liveness(liveness);
        for stream in self.streams() {
            stream.set_draining(true);
            stream.interrupt();
        }
    }

    /// Drains and interrupts all streams of the source but one, and releases their leases.
    pub(super) fn keep_only(&self, kept: WorkerId) {
        for stream in self.streams() {
            stream.set_draining(stream.id != kept);
            if stream.is_draining() {
                stream.interrupt();
                self.round.schedule.change(|schedule| schedule.release(stream.id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use longhaul_core::event::{JobId, JobObserver, JobTag};
    use longhaul_core::schedule::{Blocks, ConnectionStatus, RangeScheduler};
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::cancel::Cancel;
    use crate::source::StreamWorker;
    use crate::transfer::{RoundEnd, Sending, TransferOptions, TransferProgress};

    struct UnusedPeer;

    impl StreamPeer<Sending> for UnusedPeer {
        fn shown(&self) -> &str {
            "http://h/f"
        }

        fn worker(&self) -> Box<dyn StreamWorker<Sending> + '_> {
            unreachable!("no stream is started")
        }
    }

    #[test]
    fn answered_stream_stays_even_if_no_bytes_arrived_in_the_last_round_trip() {
        let tag = JobTag::new(JobId::new(1), "http://h/f");
        let transfer = TransferProgress::new(Instant::now(), JobObserver::new(&tag, &()), None, 1);
        let scheduler = RangeScheduler::new(Blocks::new(Vec::new(), 1, false, Bytes::new(1)));
        let options = TransferOptions::default();
        let end = RoundEnd::new(Cancel::new());
        let schedule = transfer.schedule(scheduler, true);
        let round = Round::<Sending>::new(&transfer, &end, schedule, &options, ());
        let set = StreamSet::new(&round, &UnusedPeer, 0, true);
        let streams = set.adjust(3);
        let status = |answered| ConnectionStatus { connected: true, answered, ..ConnectionStatus::default() };
        for (stream, answered) in streams.iter().zip([true, false, false]) {
            round.schedule.with(|schedule, now| {
                schedule.join(stream.id, now);
                schedule.update(stream.id, |known| *known = status(answered));
            });
        }
        assert!(set.adjust(1).is_empty());
        let draining: Vec<_> = streams.iter().map(|stream| stream.is_draining()).collect();
        assert_eq!(draining, [false, true, true]);
    }
}
