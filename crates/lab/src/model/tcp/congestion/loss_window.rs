//! A congestion window that losses reduce: slow start (RFC 5681), then Reno or CUBIC (RFC 9438).

use super::{AckSample, CongestionAlgorithm, CongestionControl};
use crate::model::Time;
use crate::model::tcp::Tcp;

/// CUBIC's multiplicative decrease factor (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// Scaling factor of the cubic curve, in segments per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;
const MIN_CWND_SEGMENTS: f64 = 2.0;

/// The congestion window in segments.
#[derive(Debug)]
pub(super) struct LossWindow {
    initial: f64,
    /// Maximum window: the peer's socket buffer.
    most: f64,
    window: f64,
    /// Slow start threshold.
    threshold: f64,
    /// The state of CUBIC; `None`: Reno.
    cubic: Option<Cubic>,
}

/// CUBIC's state.
#[derive(Debug, Default)]
struct Cubic {
    /// The window before the last loss.
    before: f64,
    growth: Option<CubicGrowth>,
}

/// CUBIC's growth after a loss.
#[derive(Debug)]
struct CubicGrowth {
    /// Its start, and the window at that time.
    begun: Time,
    from: f64,
    /// The window of Reno with equal losses (RFC 9438, 4.3).
    reno: f64,
}

impl LossWindow {
    /// Creates a window of `window` segments in slow start.
    pub(super) fn new(tcp: &Tcp, window: f64) -> Self {
        let most = tcp.window() as f64;
        Self {
            initial: (tcp.initial as f64).min(most),
            most,
            window: window.min(most),
            threshold: f64::INFINITY,
            cubic: (tcp.algorithm == CongestionAlgorithm::Cubic).then(Cubic::default),
        }
    }

    fn is_in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Returns whether the window limits the sender: under CUBIC by Linux's rule, which a pace
    /// meets too (`tcp_is_cwnd_limited`).
    fn is_limiting(&self, sample: &AckSample) -> bool {
        let (in_flight, acknowledged) = (sample.in_flight as f64, sample.segments as f64);
        self.window
            < match self.cubic {
                None => in_flight + acknowledged,
                Some(_) if self.is_in_slow_start() => 2.0 * in_flight,
                Some(_) => in_flight + 2.0 * acknowledged,
            }
    }

    /// Returns the factor of a window reduction after a loss.
    fn cut(&mut self) -> f64 {
        self.cubic.as_mut().map_or(0.5, |cubic| {
            cubic.lost(self.window);
            BETA
        })
    }
}

impl CongestionControl for LossWindow {
    fn window(&self) -> f64 {
        self.window
    }

    fn windows_per_rtt(&self) -> f64 {
        if self.window < self.threshold / 2.0 { 2.0 } else { 1.2 }
    }

    fn acknowledged(&mut self, sample: &AckSample) {
        if sample.is_recovering || !self.is_limiting(sample) {
            return;
        }
        let acknowledged = sample.segments as f64;
        let grown = match &mut self.cubic {
            _ if self.window < self.threshold => self.window + acknowledged,
            None => self.window + acknowledged / self.window,
            Some(cubic) => cubic.grown(self.window, sample),
        };
        self.window = grown.min(self.most);
    }

    fn has_episode_per_flight(&self) -> bool {
        self.cubic.is_some()
    }

    fn lost(&mut self) {
        self.threshold = (self.window * self.cut()).max(MIN_CWND_SEGMENTS);
        self.window = self.threshold;
    }

    /// Only the first of consecutive timeouts lowers the threshold (RFC 5681, 3.1).
    fn timed_out(&mut self, in_flight: u64, is_first: bool) {
        if is_first {
            self.threshold = (self.window.min(in_flight as f64) * self.cut()).max(MIN_CWND_SEGMENTS);
        }
        self.window = 1.0;
    }

    /// Resets the window (RFC 5681, 4.1); the threshold becomes at least three quarters of the old
    /// window (RFC 2861, 3).
    fn paused(&mut self) {
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min(self.initial);
        if let Some(cubic) = &mut self.cubic {
            cubic.growth = None;
        }
    }

    fn restart(&mut self) {
        self.threshold = f64::INFINITY;
    }
}

impl Cubic {
    fn grown(&mut self, window: f64, sample: &AckSample) -> f64 {
        let AckSample { now, segments, .. } = *sample;
        let growth = self.growth.get_or_insert(CubicGrowth { begun: now, from: window, reno: window });
        // Growth that gives Reno and CUBIC equal shares at equal loss, until the old window is
        // regained (RFC 9438, 4.3).
        let pace = if growth.reno < self.before { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        growth.reno += pace * segments as f64 / window;
        let before = self.before.max(growth.from);
        let k = ((before - growth.from) / C).cbrt();
        let seconds = (now.since(growth.begun) + sample.rtt).as_secs_f64();
        let target = C * (seconds - k).powi(3) + before;
        let cubic = window + (target.clamp(window, 1.5 * window) - window) * segments as f64 / window;
        cubic.max(growth.reno)
    }

    fn lost(&mut self, window: f64) {
        // Fast convergence: a flow below its old window yields to new flows (RFC 9438, section
        // 4.7).
        let shrinks = window < self.before;
        self.before = if shrinks { window * (1.0 + BETA) / 2.0 } else { window };
        self.growth = None;
    }
}
