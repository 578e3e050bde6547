//! One round of a transfer: an attempt to move what is missing of its file.

use std::sync::Arc;

use parking_lot::Mutex;

use super::direction::{Direction, Receiving};
use super::error::TransferError;
use super::progress::{SourceProgress, TransferProgress};
use super::running_streams::{RunningStreams, StreamHandle};
use super::shared_schedule::SharedSchedule;
use super::transfer_options::TransferOptions;
use crate::cancel::Cancel;

/// One attempt to move the missing bytes of a file, shared by its streams.
pub(crate) struct Round<'a, D: Direction = Receiving> {
    pub(crate) transfer: &'a TransferProgress<'a>,
    pub(crate) end: &'a RoundEnd,
    pub(crate) schedule: Arc<SharedSchedule>,
    pub(crate) running: RunningStreams,
    pub(crate) options: &'a TransferOptions,
    /// Where received bytes go; their writers end once the round is dropped.
    pub(crate) inlet: D::Inlet<'a>,
}

/// What ends a round: a cancellation, a failure, or that nothing is left to move. The writers of
/// received bytes share it, and outlive the round.
pub(crate) struct RoundEnd {
    /// Raised when the user cancels, and on any permanent failure.
    pub(crate) stop: Cancel,
    /// Raised with `stop`, and once all bytes have arrived.
    pub(crate) finished: Cancel,
    failure: Mutex<Option<TransferError>>,
    /// The error of the last stream that gave up.
    given_up: Mutex<Option<TransferError>>,
}

impl RoundEnd {
    /// Creates the end of a round, whose failure raises `stop`.
    pub(crate) fn new(stop: Cancel) -> Self {
        let finished = stop.child();
        Self { stop, finished, failure: Mutex::default(), given_up: Mutex::default() }
    }

    /// Ends the round with `error`, unless it has failed already.
    pub(crate) fn fail(&self, error: TransferError) {
        self.failure.lock().get_or_insert(error);
        self.stop.cancel();
    }

    /// Records the error of a stream that gave up, which becomes the round's error if bytes are
    /// left.
    pub(crate) fn note_given_up(&self, error: TransferError) {
        self.given_up.lock().replace(error);
    }

    /// Takes the error that ended the round before it was complete; `None` also after a
    /// cancellation.
    pub(crate) fn take_error(&self, is_complete: bool) -> Option<TransferError> {
        let given_up = || self.given_up.lock().take().filter(|_| !is_complete && !self.stop.is_cancelled());
        self.failure.lock().take().or_else(given_up)
    }
}

impl<'a, D: Direction> Round<'a, D> {
    pub(crate) fn new(
        transfer: &'a TransferProgress<'a>,
        end: &'a RoundEnd,
        schedule: Arc<SharedSchedule>,
        options: &'a TransferOptions,
        inlet: D::Inlet<'a>,
    ) -> Self {
        Self { transfer, end, schedule, running: RunningStreams::default(), options, inlet }
    }

    /// Creates handles for `count` streams of a source.
    pub(crate) fn register(&self, source: usize, count: usize) -> Vec<Arc<StreamHandle>> {
        let first = self.transfer.take_numbers(count);
        let new = |id| Arc::new(StreamHandle::new(id, source, &self.end.stop));
        let handles: Vec<_> = (first..first + count).map(new).collect();
        self.running.register(&handles);
        handles
    }

    /// Returns whether another source is usable or is being compared.
    pub(crate) fn has_other_source(&self, source: usize) -> bool {
        let delivers = |(other, progress): (usize, &SourceProgress)| other != source && progress.is_usable();
        self.running.are_joining() || self.transfer.sources.iter().enumerate().any(delivers)
    }

    /// Returns the number of connections, open or planned, over all sources.
    pub(crate) fn connections(&self) -> usize {
        let streams = self.running.all();
        let of = |source: usize| streams.iter().filter(|stream| stream.source == source).count();
        let sources = self.transfer.sources.iter().enumerate();
        sources.map(|(source, progress)| progress.connections(of(source))).sum()
    }

    /// Cancels the waits of all streams and mirrors, because no work is left.
    pub(crate) fn interrupt_all(&self) {
        self.end.finished.cancel();
        self.running.all().iter().for_each(|stream| stream.interrupt());
    }
}
