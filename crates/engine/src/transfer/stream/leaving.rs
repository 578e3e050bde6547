//! How a stream ends: with the work, sent away, refused by the server, or for good reason.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::event::{Event, Warning};
use longhaul_core::units::Bytes;
use longhaul_sys::host;

use super::{Pacing, Stream};
use crate::source::http::{HttpError, Retry};
use crate::transfer::error::TransferError;

impl Stream<'_> {
    /// Drops the connection; what has arrived is written, what has not is for anyone to claim.
    pub(super) fn abandon(&mut self) {
        self.flush();
        if self.connection.take().is_some() {
            self.shared.sockets.remove(self.seat.id);
            self.shared.emit(&Event::Closed { stream: self.seat.id });
        }
        if matches!(std::mem::replace(&mut self.pacing, Pacing::Off), Pacing::On(_)) {
            self.shared.set_paced(false);
        }
        self.seat.connected(None);
        self.open = false;
        self.requested.clear();
        self.shared.work.give_back(&self.seat);
    }

    /// Goes where the server takes no further stream and somebody chooses their number; returns whether it did.
    pub(super) fn leaves_refused(&self, error: &TransferError, brought: Bytes) -> bool {
        let wait = match error.retry() {
            Retry::After(wait) => Some(wait),
            Retry::Now | Retry::Never => None,
        };
        let refused = match error {
            TransferError::Changed { .. } | TransferError::Memory(_) => false,
            // Accepted and then left waiting, while others are served: a server with so many workers.
            TransferError::TakenOver(_) => {
                brought == Bytes::ZERO && self.shared.crew.serves_another(&self.seat)
            }
            TransferError::Http(HttpError::Status { status: 429 | 503, .. }) => true,
            _ => brought == Bytes::ZERO,
        };
        refused && self.tell_refusal(error, wait)
    }

    fn tell_refusal(&self, error: &TransferError, wait: Option<Duration>) -> bool {
        let left_waiting = matches!(error, TransferError::TakenOver(_));
        let refusal = self.shared.crew.leave_refused(&self.seat, left_waiting, wait);
        if let Some(refusal) = refusal {
            let (stream, reason, open) = (self.seat.id, error.to_string(), refusal.open);
            self.shared.emit(&Event::Refused { stream, reason, open });
        }
        refusal.is_some()
    }

    /// Leaves the rest to the other streams; where there is none in the end, `error` is why the file is incomplete.
    pub(super) fn give_up(self, error: TransferError) {
        let fatal = matches!(error, TransferError::Changed { .. });
        if !fatal && self.tell_refusal(&error, None) {
            self.shared.gave_up(error);
        } else if !fatal && self.shared.crew.leave_to_others(&self.seat) {
            let lost = Warning::StreamLost { stream: self.seat.id, reason: error.to_string() };
            self.shared.emit(&Event::Warning(lost));
            self.shared.gave_up(error);
        } else {
            self.shared.fail(error);
        }
        self.leave();
    }

    pub(super) fn leave(mut self) {
        self.abandon();
        self.shared.work.leave(&self.seat);
        self.shared.crew.leave(&self.seat);
        if self.shared.work.is_done() {
            // Some may still wait for a connection.
            self.shared.crew.dismiss();
        }
        let cpu = u64::try_from(host::thread_cpu_time().as_nanos()).unwrap_or(u64::MAX);
        self.shared.waits.busiest.fetch_max(cpu, Ordering::Relaxed);
    }
}
