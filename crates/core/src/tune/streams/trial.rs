//! The verdict on another number of streams, from two mean goodputs and their standard errors.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

use super::initial_count::INITIAL_WINDOW;
use super::statistics::IntervalMean;

/// The least relative gain for which more streams are kept.
const MIN_GAIN: f64 = 0.05;
/// The share of a gain in proportion to the streams from which each stream is limited by its
/// window, not by the path.
const PROPORTIONAL_GAIN: f64 = 0.75;
/// The least share of a gain in proportion to the streams, with losses but no queue: on a full
/// path, more streams take the rest from other sessions, and a session that has half of the path
/// gains less.
const FAIR_GAIN: f64 = 0.5;
/// The share of the goodput that fewer streams must keep.
const KEPT_GOODPUT: f64 = 0.97;
/// The margin on the number of streams that a path needs, because not all streams are always busy.
pub(super) const STREAM_MARGIN: f64 = 1.05;
/// The least number of intervals for a verdict, and the number after which it no longer waits for
/// certainty.
pub(super) const TRIAL_INTERVALS: (usize, usize) = (4, 12);

/// The goodput of a number of streams, as the baseline of a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) streams: usize,
    /// The goodput in bits per second.
    pub(super) goodput: f64,
    /// The relative standard error of the goodput.
    pub(super) error: f64,
    /// Whether the path was not full, so that the goodput divided by the streams is the capability
    /// of one stream.
    pub(super) had_room: bool,
    /// Whether packets were lost without a visible queue.
    lost: bool,
}

/// The verdict on a trial of more streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialVerdict {
    /// The measurements are not yet sufficient.
    Unknown,
    /// The goodput grew in proportion: still more streams are tried.
    InProportion,
    /// The goodput grew by less, to the path's capacity, which needs this many streams.
    Fills(usize),
    /// The goodput did not grow.
    NoGain,
}

impl Level {
    pub(super) fn new(streams: usize, view: &IntervalMean) -> Self {
        let (queue, losing) = (view.has_queue(), view.is_losing());
        Self {
            streams,
            goodput: view.goodput,
            error: view.error,
            had_room: !queue && !losing,
            lost: losing && !queue,
        }
    }

    /// Returns the duration of a new stream's slow start to the goodput of the others.
    pub(super) fn ramp_up(&self, rtt: Rtt) -> Duration {
        ramp_up(Rate::bits_per_sec((self.goodput / self.streams.max(1) as f64) as u64).bdp(rtt), rtt)
    }

    /// Returns whether the last two or three intervals with `streams`, a larger number, already
    /// show a gain in proportion.
    pub(super) fn grows_in_proportion(&self, streams: usize, last: &IntervalMean) -> bool {
        let share = streams as f64 / self.streams.max(1) as f64 - 1.0;
        last.intervals >= 2
            && last.was_never_full()
            && last.goodput * (1.0 - last.error) >= self.goodput * (1.0 + PROPORTIONAL_GAIN * share)
    }

    /// Returns the verdict on `streams`, a larger number, from a mean after their ramp-up.
    pub(super) fn judge_more(&self, streams: usize, view: &IntervalMean) -> TrialVerdict {
        let (least, most) = TRIAL_INTERVALS;
        let gain = view.goodput / self.goodput - 1.0;
        let noise = 2.0 * view.error.hypot(self.error);
        if view.intervals < least || (gain - MIN_GAIN).abs() < noise && view.intervals < most {
            return TrialVerdict::Unknown;
        }
        // The gain less its standard error.
        let certain = gain - noise / 2.0;
        let share = streams as f64 / self.streams.max(1) as f64 - 1.0;
        let fair = if self.lost { FAIR_GAIN * share } else { 0.0 };
        if certain < MIN_GAIN.max(fair) {
            TrialVerdict::NoGain
        } else if certain >= PROPORTIONAL_GAIN * share {
            TrialVerdict::InProportion
        } else {
            let needed = (self.streams as f64 * (1.0 + gain) * STREAM_MARGIN).ceil() as usize;
            TrialVerdict::Fills(if self.had_room { needed.min(streams) } else { streams })
        }
    }
}

/// Returns the duration of slow start to this window: log2(window / initial window) RTTs.
pub(super) fn ramp_up(window: Bytes, rtt: Rtt) -> Duration {
    let doublings = (window.get() as f64 / INITIAL_WINDOW.get() as f64).max(1.0).log2();
    // Rounded up, plus one RTT for the first request.
    rtt.get().saturating_mul(doublings as u32 + 2)
}

/// Returns whether fewer streams keep a goodput of `before`, in bits per second.
pub(super) fn keeps(before: f64, view: &IntervalMean) -> bool {
    view.intervals >= TRIAL_INTERVALS.0 && view.goodput * (1.0 - view.error) >= KEPT_GOODPUT * before
}
