//! Streams that the server refuses, or does not answer, while it serves others: they end without a
//! failure of the transfer, and the latest refusal bounds the number of streams.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::failure::{Cause, Failure};
use longhaul_core::retry::Retry;
use longhaul_core::schedule::WorkerId;

use super::stream_set::StreamSet;
use crate::transfer::{Direction, StreamHandle};

/// The refusal of a stream by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The number of other streams that the server was serving.
    pub(crate) open: usize,
    /// The time until the server accepts further streams, if it stated one.
    pub(crate) wait: Option<Duration>,
}

impl<D: Direction> StreamSet<'_, D> {
    /// Takes the latest refusal.
    pub(crate) fn take_refusal(&self) -> Option<Refusal> {
        self.refusal.lock().take()
    }

    /// Removes a stream that the server refused while serving others, and records the refusal for
    /// the control of the number of streams; `None` if the stream must continue.
    ///
    /// Other streams count as served: one that connects now and is refused records a refusal of
    /// its own. If this stream was accepted and then left waiting, only streams with a response
    /// count.
    pub(super) fn leave_refused(
        &self,
        stream: WorkerId,
        cause: Cause,
        wait: Option<Duration>,
    ) -> Option<Refusal> {
        let others = |s: &Arc<StreamHandle>| s.id != stream && !s.is_draining();
        let mut staying = self.streams();
        staying.retain(others);
        if !self.controlled || staying.is_empty() || !self.round.running.leave_to_others(stream) {
            return None;
        }
        self.progress().set_wanted(staying.len());
        let is_served = |s: &Arc<StreamHandle>| {
            let answered = || self.round.schedule.with(|schedule, _| schedule.status(s.id)).answered;
            cause != Cause::Interrupted || answered()
        };
        let open = staying.iter().filter(|s| is_served(s)).count().max(1);
        let mut last = self.refusal.lock();
        let refusal = Refusal { open, wait: wait.max(last.and_then(|refusal| refusal.wait)) };
        *last = Some(refusal);
        Some(refusal)
    }

    /// Removes a stream if `error` means that the server accepts no further stream; returns whether
    /// it was removed.
    pub(super) fn leaves_refused(&self, stream: WorkerId, error: &Failure, delivered: bool) -> bool {
        let refused = match error.cause {
            Cause::OtherFile | Cause::NotModified | Cause::EveryStream | Cause::Memory => false,
            Cause::Refused => true,
            // Accepted and then left waiting while others are served: a server with a fixed number
            // of workers.
            Cause::Interrupted => !delivered && self.serves_another(stream),
            Cause::Unreachable | Cause::Connection => !delivered,
        };
        refused && self.report_refusal(stream, error)
    }

    /// Removes a stream and reports the reason, if others can do its work; returns whether it was
    /// removed.
    pub(super) fn report_refusal(&self, stream: WorkerId, error: &Failure) -> bool {
        let wait = match error.retry {
            Retry::After(wait) => Some(wait),
            _ => None,
        };
        let refusal = self.leave_refused(stream, error.cause, wait);
        if let Some(Refusal { open, .. }) = refusal {
            self.round.transfer.emit(&Event::Refused { stream, reason: error.to_string(), open });
        }
        refusal.is_some()
    }

    /// Returns whether the server has responded to another stream.
    pub(super) fn serves_another(&self, stream: WorkerId) -> bool {
        let answered =
            |s: &Arc<StreamHandle>| self.round.schedule.with(|schedule, _| schedule.status(s.id).answered);
        self.streams().iter().any(|other| other.id != stream && answered(other))
    }
}
