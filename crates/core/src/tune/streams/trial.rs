//! Whether another number of streams pays: what is decided from two means and their uncertainty.

use std::time::Duration;

use crate::units::{Rate, Rtt};

use super::initial_count::INITIAL_WINDOW;
use super::statistics::IntervalMean;

/// More streams must bring so much more.
const PAYS: f64 = 0.05;
/// So much of what would be in proportion to the streams says that each is limited by itself, not by the path.
const IN_PROPORTION: f64 = 0.75;
/// Where something is lost and no queue shows, more streams must bring this part of what is in proportion: on a path
/// that is full they take the rest from others, and who has half of it takes no more.
const FAIR: f64 = 0.5;
/// Fewer streams must keep so much.
const KEEPS: f64 = 0.97;
/// What the path carries over what a stream does is rounded up by this, for streams are not always all at work.
const ROOM: f64 = 1.05;
/// So many intervals tell a mean; after so many it is as certain as it gets.
pub(super) const INTERVALS: (usize, usize) = (4, 12);

/// What a number of streams brought.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) streams: usize,
    /// Bits per second.
    pub(super) goodput: f64,
    /// The standard error, relative.
    pub(super) error: f64,
    /// Whether the path had room: then goodput over streams is what one is capable of.
    pub(super) had_room: bool,
    /// Whether something was lost though there was no queue: by accident, or in one too short to be seen.
    lost: bool,
}

/// What a trial of more streams has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialVerdict {
    /// Nothing yet.
    Unknown,
    /// The sum grew in proportion: go on.
    InProportion,
    /// It grew by less, to the rate of the path, for which so many streams do.
    Fills(usize),
    /// It did not grow.
    InVain,
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

    /// Returns how long slow start takes a new stream to carry as much as the others do.
    ///
    /// log2(window / initial window) round trips, where the window is that of one of the streams.
    pub(super) fn ramp_up(&self, rtt: Rtt) -> Duration {
        let each = Rate::bits_per_sec((self.goodput / self.streams.max(1) as f64) as u64).bdp(rtt).get();
        let doublings = (each as f64 / INITIAL_WINDOW.get() as f64).max(1.0).log2();
        // Rounded up, which leaves time for the first request.
        rtt.get().saturating_mul(doublings as u32 + 2)
    }

    /// Says whether `streams`, more than these, already bring what is in proportion, by the last two or three intervals.
    pub(super) fn is_outgrown(&self, streams: usize, last: &IntervalMean) -> bool {
        let share = streams as f64 / self.streams.max(1) as f64 - 1.0;
        last.intervals >= 2
            && last.was_never_full()
            && last.goodput * (1.0 - last.error) >= self.goodput * (1.0 + IN_PROPORTION * share)
    }

    /// Judges `streams`, more than these, by a view of them after their ramp-up.
    pub(super) fn judge_more(&self, streams: usize, view: &IntervalMean) -> TrialVerdict {
        let (least, most) = INTERVALS;
        let gain = view.goodput / self.goodput - 1.0;
        let noise = 2.0 * view.error.hypot(self.error);
        if view.intervals < least || (gain - PAYS).abs() < noise && view.intervals < most {
            return TrialVerdict::Unknown;
        }
        // Not by luck.
        let certain = gain - noise / 2.0;
        let share = streams as f64 / self.streams.max(1) as f64 - 1.0;
        let fair = if self.lost { FAIR * share } else { 0.0 };
        if certain < PAYS.max(fair) {
            TrialVerdict::InVain
        } else if certain >= IN_PROPORTION * share {
            TrialVerdict::InProportion
        } else {
            let needed = (self.streams as f64 * (1.0 + gain) * ROOM).ceil() as usize;
            TrialVerdict::Fills(if self.had_room { needed.min(streams) } else { streams })
        }
    }
}

/// Says whether fewer streams keep a goodput of `before`, in bits per second, by a view of them.
pub(super) fn keeps(before: f64, view: &IntervalMean) -> bool {
    view.intervals >= INTERVALS.0 && view.goodput * (1.0 - view.error) >= KEEPS * before
}
