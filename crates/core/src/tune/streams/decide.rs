//! What is decided in each phase.

use std::time::Duration;

use crate::units::{Rate, Rtt};

use super::meter::View;
use super::trial::{INTERVALS, Level, More, keeps};
use super::{Interval, Phase, Remembered, StreamTuner, round_trips};

/// So many intervals show what the present number of streams brings.
const VIEW: usize = 8;
/// Losses are called persistent after so many intervals.
const LOSING: usize = 6;
/// What streams had in flight that are gone arrives, or leaves the queue, for so many round trips.
const DRAIN: u32 = 2;
/// For so many round trips, and this time, fewer streams may grow to carry what more did.
const RECOVERY: (u32, Duration) = (15, Duration::from_millis(1500));
/// A ramp-up ends after so many round trips, and this time, whether goodput still grows or not.
const LONGEST_RAMP_UP: (u32, Duration) = (50, Duration::from_secs(5));
/// With less time left than this nothing is changed any more: who comes then comes late, and who goes saves nothing.
const NEAR_END: Duration = Duration::from_secs(2);
/// Giving streams up may cost something first, which is not worth it with less time left than this.
const LONG: Duration = Duration::from_secs(10);
/// The share of the streams that stay where sessions lose at each other's cost.
const CUT: f64 = 0.75;
/// A goodput that differs by this share from what it used to be: the path, or the traffic on it, is another.
const CHANGED: f64 = 0.25;

impl StreamTuner {
    pub(super) fn ramp_up(&mut self, first: Option<Duration>, seen: &Interval, now: Duration) {
        let first = first.or((seen.goodput > Rate::default()).then_some(now));
        self.phase = Phase::RampUp { first };
        let Some(first) = first else { return };
        let late = now > first.saturating_add(round_trips(LONGEST_RAMP_UP, seen));
        if late || self.since.is_some() && self.meter.is_level() {
            self.phase = Phase::Hold;
            self.since = Some(first);
            // These are level already.
            self.meter.keep_last(3);
        }
    }

    pub(super) fn hold(&mut self, seen: &Interval, now: Duration) {
        let Some(settled) = self.settled() else { return };
        let Some(view) = self.meter.view(settled, VIEW) else { return };
        if view.intervals < INTERVALS.0 {
            return;
        }
        self.follow(&view, now);
        self.conclude(&view, seen.rtt);
        let left = view.rate().time_for(seen.left);
        if left < NEAR_END {
            return;
        }
        let several = self.wanted > 1;
        if view.has_queue() || view.is_losing() && !self.confident {
            self.up.tread_softly();
        }
        if several && view.has_queue() && view.is_losing() {
            if view.intervals >= LOSING && self.cut.is_due(now) {
                self.make_room(seen.rtt, now);
            }
        } else if several && left > LONG && self.down.is_due(now) && self.may_do_with_fewer(&view, now) {
            self.shrink(&view, seen.rtt, now);
        } else if self.up.is_due(now) && !view.is_held_back() && self.meter.is_level() {
            self.grow(&view, seen, now);
        }
    }

    fn may_do_with_fewer(&self, view: &View, now: Duration) -> bool {
        view.has_queue() || view.is_held_back() || self.up.rests(now)
    }

    /// Notes where the path has become another.
    fn follow(&mut self, view: &View, now: Duration) {
        if view.intervals < VIEW {
            return;
        }
        let usual = *self.usual.get_or_insert(view.goodput);
        if (view.goodput / usual - 1.0).abs() > CHANGED {
            self.usual = Some(view.goodput);
            self.anchor = None;
            for patience in [&mut self.up, &mut self.down, &mut self.cut] {
                patience.renew(now);
            }
        }
    }

    fn conclude(&mut self, view: &View, rtt: Rtt) {
        self.confident |= view.has_queue() && view.intervals == VIEW;
        if self.confident && !view.is_held_back() {
            self.concluded = Some(Remembered { rtt, rate: view.rate(), streams: self.wanted });
        }
    }

    /// Gives streams up whatever that costs: others on this path do the same.
    fn make_room(&mut self, rtt: Rtt, now: Duration) {
        let fewer = (self.wanted as f64 * CUT).round() as usize;
        self.change(fewer.min(self.wanted - 1), DRAIN * rtt.get(), now);
        self.cut.failed(now);
        self.up.hesitate(now);
        (self.anchor, self.confident) = (None, true);
    }

    /// Tries more streams, where there are more to have and enough to fetch for them.
    fn grow(&mut self, view: &View, seen: &Interval, now: Duration) {
        let from = Level::new(self.wanted, view);
        let ramp_up = from.ramp_up(seen.rtt);
        let left = view.rate().time_for(seen.left);
        let more = (self.wanted + self.up.step(self.wanted)).min(self.ceiling.at(now));
        if more > self.wanted && left > (2 * ramp_up).saturating_add(NEAR_END) {
            self.phase = Phase::Trial { from };
            self.change(more, ramp_up, now);
        }
    }

    /// Tries fewer streams: those that only fill the queue, or a few.
    fn shrink(&mut self, view: &View, rtt: Rtt, now: Duration) {
        let step = match view.spare(self.wanted) {
            0 => self.down.step(self.wanted),
            spare => spare,
        };
        self.anchor.get_or_insert(view.goodput);
        self.phase = Phase::Trial { from: Level::new(self.wanted, view) };
        self.change(self.wanted - step.min(self.wanted / 2), DRAIN * rtt.get(), now);
    }

    pub(super) fn try_more(&mut self, from: &Level, seen: &Interval, now: Duration) {
        if let Some(last) = self.meter.view(self.changed, 2)
            && from.is_outgrown(self.wanted, &last)
        {
            // In time for the next streams to come before these have grown up.
            self.keep_more(None, now);
            self.grow(&last, seen, now);
            return;
        }
        let Some(grown_up) = self.settled() else { return };
        let view = self.meter.view(grown_up, INTERVALS.1);
        let late = now > grown_up.saturating_add(round_trips(LONGEST_RAMP_UP, seen));
        let verdict = match view {
            Some(view) if late || self.meter.is_level() => from.judge_more(self.wanted, &view),
            None if late => More::InVain,
            _ => More::Unknown,
        };
        match verdict {
            More::Unknown => {}
            More::InProportion => self.keep_more(Some(grown_up), now),
            More::Fills(needed) => {
                self.keep_more(Some(grown_up), now);
                self.up.failed(now);
                if needed < self.wanted {
                    self.change(needed, DRAIN * seen.rtt.get(), now);
                }
            }
            More::InVain => {
                self.phase = Phase::Hold;
                self.change(from.streams, DRAIN * seen.rtt.get(), now);
                self.up.failed(now);
                self.down.hesitate(now);
                // Those that stay may have suffered: what they bring now is not all they can.
                (self.anchor, self.confident) = (Some(from.goodput), true);
            }
        }
    }

    /// Stays with the streams that were tried; what arrives counts from when they had grown up.
    fn keep_more(&mut self, grown_up: Option<Duration>, now: Duration) {
        self.phase = Phase::Hold;
        (self.since, self.settling) = (grown_up, Duration::ZERO);
        self.up.succeeded(now);
        (self.anchor, self.confident) = (None, true);
    }

    pub(super) fn try_fewer(&mut self, from: &Level, seen: &Interval, now: Duration) {
        let Some(settled) = self.settled() else { return };
        let view = self.meter.view(settled, INTERVALS.0);
        if view.is_some_and(|view| keeps(self.anchor.unwrap_or(from.goodput), &view)) {
            self.phase = Phase::Hold;
            self.down.succeeded(now);
            self.up.hesitate(now);
            self.confident = true;
        } else if now > settled.saturating_add(round_trips(RECOVERY, seen)) {
            self.phase = Phase::Hold;
            self.change(from.streams, from.ramp_up(seen.rtt), now);
            self.down.failed(now);
            (self.anchor, self.confident) = (None, true);
        }
    }
}
