//! The congestion window of a sender: slow start, then CUBIC (RFC 9438), without HyStart.

use crate::model::{Time, cubic};

/// RFC 6928.
const INITIAL: f64 = 10.0;
const MIN_CWND_PACKETS: f64 = 2.0;

/// How many packets may be in flight.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    packets: f64,
    is_in_slow_start: bool,
    /// The last reduction.
    reduced: Option<Reduction>,
}

#[derive(Debug)]
struct Reduction {
    at: Time,
    /// The window before it.
    from: f64,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self { packets: INITIAL, is_in_slow_start: true, reduced: None }
    }
}

impl CongestionWindow {
    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Says whether one more packet may join those in flight.
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        (in_flight + 1) as f64 <= self.packets
    }

    /// Returns how many windows the kernel paces into a round trip.
    pub(super) fn headroom(&self) -> f64 {
        if self.is_in_slow_start { 2.0 } else { 1.2 }
    }

    /// Goes back to slow start, from the window that it has.
    pub(super) fn grow_again(&mut self) {
        self.is_in_slow_start = true;
    }

    /// Grows at an acknowledgement at `now`, which found `in_flight` packets; not where the pace is what limits them.
    pub(super) fn acknowledged(&mut self, now: Time, in_flight: usize) {
        let in_flight = in_flight as f64;
        if self.is_in_slow_start {
            if self.packets < 2.0 * in_flight {
                self.packets += 1.0;
            }
        } else if let Some(reduction) = &self.reduced
            && self.packets < in_flight + 2.0
        {
            let seconds = now.since(reduction.at).as_secs_f64();
            let target = cubic::window(reduction.from, reduction.from * cubic::BETA, seconds);
            self.packets += (target.min(1.5 * self.packets) - self.packets).max(0.0) / self.packets;
        }
    }

    /// Shrinks at `now`, when a packet that was sent at `sent` is found lost: once for all that was in flight then.
    pub(super) fn lost(&mut self, sent: Time, now: Time) {
        if self.reduced.as_ref().is_some_and(|reduction| sent < reduction.at) {
            return;
        }
        self.is_in_slow_start = false;
        self.reduced = Some(Reduction { at: now, from: self.packets });
        self.packets = (self.packets * cubic::BETA).max(MIN_CWND_PACKETS);
    }
}
