//! A sender's congestion window in segments: slow start, then CUBIC (RFC 9438), without HyStart.

use super::congestion::{AckSample, CongestionControl};
use crate::model::{Time, cubic};

const MIN_CWND_SEGMENTS: f64 = 2.0;

/// The congestion window.
#[derive(Debug)]
pub(super) struct CubicWindow {
    segments: f64,
    is_in_slow_start: bool,
    /// The last window reduction.
    reduced: Option<Reduction>,
}

#[derive(Debug)]
struct Reduction {
    at: Time,
    /// The window before the reduction.
    from: f64,
}

impl CubicWindow {
    /// Creates a window of `segments` in slow start.
    pub(super) fn new(segments: f64) -> Self {
        Self { segments, is_in_slow_start: true, reduced: None }
    }
}

impl CongestionControl for CubicWindow {
    fn window(&self) -> f64 {
        self.segments
    }

    fn windows_per_rtt(&self) -> f64 {
        if self.is_in_slow_start { 2.0 } else { 1.2 }
    }

    fn restart(&mut self) {
        self.is_in_slow_start = true;
    }

    /// Grows on an acknowledgement, unless the pace limits the sender.
    fn acknowledged(&mut self, sample: &AckSample, now: Time) {
        let (in_flight, acknowledged) = (sample.in_flight as f64, sample.segments as f64);
        if self.is_in_slow_start {
            if self.segments < 2.0 * in_flight {
                self.segments += acknowledged;
            }
        } else if let Some(reduction) = &self.reduced
            && self.segments < in_flight + 2.0 * acknowledged
        {
            let seconds = now.since(reduction.at).as_secs_f64();
            let target = cubic::window(reduction.from, reduction.from * cubic::BETA, seconds);
            let growth = (target.min(1.5 * self.segments) - self.segments).max(0.0);
            self.segments += growth * acknowledged / self.segments;
        }
    }

    /// Reduces the window at `now` after the loss of a packet sent at `sent`: once per flight.
    fn lost(&mut self, sent: Time, now: Time) {
        if self.reduced.as_ref().is_some_and(|reduction| sent < reduction.at) {
            return;
        }
        self.is_in_slow_start = false;
        self.reduced = Some(Reduction { at: now, from: self.segments });
        self.segments = (self.segments * cubic::BETA).max(MIN_CWND_SEGMENTS);
    }
}
