//! The congestion window of a connection: slow start (RFC 5681), then Reno or CUBIC (RFC 9438).

use std::time::Duration;

use crate::model::{Time, cubic};

/// How a window grows and shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionAlgorithm {
    /// By one packet a round trip, halved by a loss (RFC 5681): what the simulations of the 2000s had.
    #[default]
    Reno,
    /// By a cubic curve, to 0.7 by a loss (RFC 9438): what Linux has, but for HyStart. Slow start ends with a loss here.
    Cubic,
}

const MIN_CWND_PACKETS: f64 = 2.0;

/// How many packets may be in flight.
#[derive(Debug)]
pub(super) struct Congestion {
    algorithm: CongestionAlgorithm,
    initial: f64,
    /// What the peer's socket buffer holds.
    most: f64,
    window: f64,
    /// Where slow start ends.
    threshold: f64,
    cubic: Cubic,
}

/// What CUBIC remembers.
#[derive(Debug, Default)]
struct Cubic {
    /// The window before the last loss.
    before: f64,
    /// When growth began after it, and from which window.
    begun: Option<(Time, f64)>,
    /// What a Reno that loses as much would have by now (RFC 9438, 4.3).
    reno: f64,
}

impl Congestion {
    /// Makes the window of a new connection: `initial` packets, and never more than `most`.
    pub(super) fn new(algorithm: CongestionAlgorithm, initial: u64, most: u64) -> Self {
        let (initial, most) = (initial.min(most) as f64, most as f64);
        Self { algorithm, initial, most, window: initial, threshold: f64::INFINITY, cubic: Cubic::default() }
    }

    /// Says whether one more packet may join those in flight.
    pub(super) fn allows(&self, in_flight: usize) -> bool {
        (in_flight + 1) as f64 <= self.window
    }

    /// Grows for a packet acknowledged at `now`, which found `in_flight` packets; not where something else limits them.
    pub(super) fn acknowledged(&mut self, now: Time, rtt: Duration, in_flight: usize) {
        if self.allows(in_flight) {
            return;
        }
        let grown = match self.algorithm {
            _ if self.window < self.threshold => self.window + 1.0,
            CongestionAlgorithm::Reno => self.window + 1.0 / self.window,
            CongestionAlgorithm::Cubic => self.cubic.grown(self.window, now, rtt),
        };
        self.window = grown.min(self.most);
    }

    /// Shrinks for a loss.
    pub(super) fn lost(&mut self) {
        self.threshold = (self.window * self.cut()).max(MIN_CWND_PACKETS);
        self.window = self.threshold;
    }

    /// Begins anew after a timeout that found `in_flight` packets; only the first in a row is a loss (RFC 5681, 3.1).
    pub(super) fn timed_out(&mut self, in_flight: usize, is_first: bool) {
        if is_first {
            self.threshold = (self.window.min(in_flight as f64) * self.cut()).max(MIN_CWND_PACKETS);
        }
        self.window = 1.0;
    }

    /// Begins anew after a pause longer than the timeout (RFC 5681, 4.1), and remembers three quarters of what it had as the
    /// threshold (RFC 2861, 3).
    pub(super) fn paused(&mut self) {
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min(self.initial);
        self.cubic.begun = None;
    }

    /// Returns what a loss leaves of the window.
    fn cut(&mut self) -> f64 {
        match self.algorithm {
            CongestionAlgorithm::Reno => 0.5,
            CongestionAlgorithm::Cubic => {
                self.cubic.lost(self.window);
                cubic::BETA
            }
        }
    }
}

impl Cubic {
    fn grown(&mut self, window: f64, now: Time, rtt: Duration) -> f64 {
        let (begun, from) = *self.begun.get_or_insert((now, window));
        if begun == now {
            self.reno = window;
        }
        // So that both get the same share at the same loss, until what was lost is regained.
        let pace =
            if self.reno < self.before { 3.0 * (1.0 - cubic::BETA) / (1.0 + cubic::BETA) } else { 1.0 };
        self.reno += pace / window;
        let before = self.before.max(from);
        let target = cubic::window(before, from, (now.since(begun) + rtt).as_secs_f64());
        let cubic = window + (target.clamp(window, 1.5 * window) - window) / window;
        cubic.max(self.reno)
    }

    fn lost(&mut self, window: f64) {
        // Fast convergence: a flow that did not regain its window yields to new flows (RFC 9438, section 4.7).
        let shrinks = window < self.before;
        self.before = if shrinks { window * (1.0 + cubic::BETA) / 2.0 } else { window };
        self.begun = None;
    }
}
