//! The congestion window of a sender: slow start, then CUBIC (RFC 9438), without HyStart. In segments.

use super::congestion::AckSample;
use crate::model::{Time, cubic};

const MIN_CWND_SEGMENTS: f64 = 2.0;

/// How many segments may be in flight.
#[derive(Debug)]
pub(super) struct CubicWindow {
    segments: f64,
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

impl CubicWindow {
    /// Starts slow start from a window of `segments`.
    pub(super) fn new(segments: f64) -> Self {
        Self { segments, is_in_slow_start: true, reduced: None }
    }

    pub(super) fn segments(&self) -> f64 {
        self.segments
    }

    /// Returns how many windows the kernel paces into a round trip.
    pub(super) fn windows_per_rtt(&self) -> f64 {
        if self.is_in_slow_start { 2.0 } else { 1.2 }
    }

    /// Restarts slow start from the present window.
    pub(super) fn restart(&mut self) {
        self.is_in_slow_start = true;
    }

    /// Grows at an acknowledgement, unless the pace is what limits the sender.
    pub(super) fn acknowledged(&mut self, sample: &AckSample, now: Time) {
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

    /// Shrinks at `now`, when a packet that was sent at `sent` is found lost: once for all that was in flight then.
    pub(super) fn lost(&mut self, sent: Time, now: Time) {
        if self.reduced.as_ref().is_some_and(|reduction| sent < reduction.at) {
            return;
        }
        self.is_in_slow_start = false;
        self.reduced = Some(Reduction { at: now, from: self.segments });
        self.segments = (self.segments * cubic::BETA).max(MIN_CWND_SEGMENTS);
    }
}
