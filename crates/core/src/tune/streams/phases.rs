//! What is decided in each phase.

use std::time::Duration;

use crate::units::{Rate, Rtt};

use super::statistics::{FAST, IntervalMean, SLOWLY};
use super::trial::{INTERVALS, Level, TrialVerdict, keeps};
use super::{Anchor, Interval, Phase, Remembered, StreamTuner, round_trips};

/// So many intervals show what the present number of streams brings.
const VIEW: usize = 8;
/// Losses are called persistent after so many intervals.
const LOSING: usize = 6;
/// What streams that are gone had in flight still arrives, or leaves the queue, for so many round trips.
const DRAIN: u32 = 2;
/// While fewer streams grow to carry what more did, so much of the time that is left may be lost,
const PRICE: f64 = 0.01;
/// and this at most.
const DEAREST: Duration = Duration::from_millis(250);
/// Where they carry less than this part, that is more than noise.
const FAR: f64 = 0.9;
/// They get so many round trips, and this time, for it.
const RECOVERY: (u32, Duration) = (20, Duration::from_secs(2));
/// A ramp-up ends after so many round trips, and this time, whether goodput still grows or not.
const LONGEST_RAMP_UP: (u32, Duration) = (50, Duration::from_secs(5));
/// With less time left than this nothing is changed any more: who comes then comes late, and who goes saves nothing.
const NEAR_END: Duration = Duration::from_secs(2);
/// Giving streams up that only fill the queue costs nothing, but with less time left than this it saves nothing either.
const LONG: Duration = Duration::from_secs(10);
/// Giving up others may cost something while those that stay grow, which takes more time to make good.
const LONGER: Duration = Duration::from_secs(30);
/// Losses make goodput uncertain: a step of this part of the streams stands out from that.
const LOSSY_STEP: usize = 4;
/// What streams brought counts for so long: windows that were cut have grown again by then.
const ANCHORED: Duration = Duration::from_secs(10);
/// The share of the streams that stay where sessions lose at each other's cost.
const CUT: f64 = 0.75;
/// A goodput that differs by this share from what it used to be: the path, or the traffic on it, is another.
const CHANGED: f64 = 0.25;

impl StreamTuner {
    pub(super) fn ramp_up(&mut self, first: Option<Duration>, seen: &Interval, now: Duration) {
        let first = first.or((seen.goodput > Rate::default()).then_some(now));
        self.phase = Phase::RampUp { first };
        let Some(first) = first else {
            self.changed = now;
            return;
        };
        let late = now > first.saturating_add(round_trips(LONGEST_RAMP_UP, seen));
        if late || self.since.is_some() && self.statistics.is_level() {
            self.phase = Phase::Hold;
            self.since = Some(first);
            // These are level already.
            self.statistics.keep_last(3);
        }
    }

    pub(super) fn hold(&mut self, seen: &Interval, now: Duration) {
        let Some(settled) = self.settled() else { return };
        let Some(view) = self.statistics.view(settled, VIEW) else { return };
        if view.intervals < INTERVALS.0 {
            return;
        }
        self.anchor = self.anchor.filter(|anchor| now < anchor.until);
        self.follow(&view, now);
        self.conclude(&view, seen.rtt);
        let left = view.rate().time_for(seen.left);
        if left < NEAR_END {
            return;
        }
        let several = self.wanted > 1;
        if view.is_filling() || view.is_losing() && !self.confident {
            self.up.tread_softly();
        }
        let is_crowded = self.wanted > view.bearable() || view.has_queue() && view.is_losing();
        if several && is_crowded {
            if view.intervals >= LOSING && self.cut.is_due(now) {
                self.make_room(seen.rtt, now);
            }
        } else if several && self.down.is_due(now) && self.may_do_with_fewer(&view, left, now) {
            self.shrink(&view, seen.rtt, now);
        } else if self.up.is_due(now) && !view.is_held_back() && self.statistics.is_level() {
            self.grow(&view, seen, now);
        }
    }

    fn may_do_with_fewer(&self, view: &IntervalMean, left: Duration, now: Duration) -> bool {
        if view.spare(self.wanted) > 0 {
            return left > LONG;
        }
        left > LONGER && (view.has_queue() || view.is_held_back() || !self.up.is_due(now))
    }

    /// Notes where the path has become another.
    fn follow(&mut self, view: &IntervalMean, now: Duration) {
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

    fn conclude(&mut self, view: &IntervalMean, rtt: Rtt) {
        self.confident |= view.has_queue() && view.intervals == VIEW;
        if self.confident && !view.is_held_back() {
            self.concluded = Some(Remembered { rtt, rate: view.rate(), streams: self.wanted });
        }
    }

    /// Gives streams up whatever that costs: others on this path do the same.
    fn make_room(&mut self, rtt: Rtt, now: Duration) {
        let fewer = (self.wanted as f64 * CUT).round() as usize;
        self.change(fewer.min(self.wanted - 1), rtt.get().saturating_mul(DRAIN), now);
        self.cut.hesitate(now);
        self.up.hesitate(now);
        (self.anchor, self.confident) = (None, true);
    }

    /// Keeps in mind what the present streams bring, unless it is known what they brought before something hurt them.
    fn anchor(&mut self, goodput: f64, now: Duration) {
        self.anchor.get_or_insert(Anchor { goodput, until: now.saturating_add(ANCHORED) });
    }

    /// Tries more streams, where there are more to have and enough to fetch for them.
    fn grow(&mut self, view: &IntervalMean, seen: &Interval, now: Duration) {
        let mut from = Level::new(self.wanted, view);
        from.goodput = from.goodput.max(self.anchor.map_or(0.0, |anchor| anchor.goodput));
        let ramp_up = from.ramp_up(seen.rtt);
        let left = view.rate().time_for(seen.left);
        let lossy = (self.wanted / LOSSY_STEP).max(1);
        let step = match self.up.step(self.wanted) {
            _ if view.is_losing_much() => lossy,
            step if view.is_losing() && !view.has_queue() => step.max(lossy),
            step => step,
        };
        let more = (self.wanted + step).min(self.limit.at(now)).min(view.bearable());
        if more > self.wanted && left > ramp_up.saturating_mul(2).saturating_add(NEAR_END) {
            self.phase = Phase::Trial { from };
            self.change(more, ramp_up, now);
        }
    }

    /// Tries fewer streams: those that only fill the queue, or a few.
    fn shrink(&mut self, view: &IntervalMean, rtt: Rtt, now: Duration) {
        let step = match view.spare(self.wanted) {
            0 => self.down.step(self.wanted),
            spare => spare,
        };
        self.anchor(view.goodput, now);
        self.phase = Phase::Trial { from: Level::new(self.wanted, view) };
        self.change(self.wanted - step.min(self.wanted / 2), rtt.get().saturating_mul(DRAIN), now);
    }

    pub(super) fn try_more(&mut self, from: &Level, seen: &Interval, now: Duration) {
        if let Some(last) = self.statistics.view(self.changed, 2)
            && from.is_outgrown(self.wanted, &last)
        {
            // In time for the next streams to come before these have grown up.
            self.keep_more(None, now);
            self.grow(&last, seen, now);
            return;
        }
        let Some(grown_up) = self.settled() else { return };
        let view = self.statistics.view(grown_up, INTERVALS.1);
        let late = now > grown_up.saturating_add(round_trips(LONGEST_RAMP_UP, seen));
        let verdict = match view {
            Some(view) if late || self.statistics.is_level() => from.judge_more(self.wanted, &view),
            None if late => TrialVerdict::InVain,
            _ => TrialVerdict::Unknown,
        };
        match verdict {
            TrialVerdict::Unknown => {}
            TrialVerdict::InProportion => self.keep_more(Some(grown_up), now),
            TrialVerdict::Fills(needed) => {
                self.keep_more(Some(grown_up), now);
                self.up.failed(now);
                if needed < self.wanted {
                    self.anchor(view.map_or(from.goodput, |view| view.goodput), now);
                    self.phase = Phase::HandOver { to: needed };
                }
            }
            TrialVerdict::InVain => {
                self.phase = Phase::HandOver { to: from.streams };
                self.up.failed(now);
                self.down.hesitate(now);
                self.anchor(from.goodput, now);
                self.confident = true;
            }
        }
    }

    /// Gives streams up that do not pay, as long as the others carry more: what was lost on the way to this has hurt them.
    pub(super) fn hand_over(&mut self, to: usize, seen: &Interval, now: Duration) {
        let Some(settled) = self.settled() else { return };
        let view = self.statistics.view(settled, INTERVALS.0);
        let before = self.anchor.map_or(0.0, |anchor| anchor.goodput);
        if let Some(view) = view.filter(|view| keeps(before, view)) {
            let step = view.spare(self.wanted).max(self.wanted / 8).max(1);
            self.change(to.max(self.wanted.saturating_sub(step)), seen.rtt.get().saturating_mul(DRAIN), now);
        }
        if self.wanted <= to || now > settled.saturating_add(round_trips(RECOVERY, seen)) {
            self.phase = Phase::Hold;
        }
    }

    /// Stays with the streams that were tried; what arrives counts from when they had grown up.
    fn keep_more(&mut self, grown_up: Option<Duration>, now: Duration) {
        self.phase = Phase::Hold;
        (self.since, self.settling) = (grown_up, Duration::ZERO);
        self.up.succeeded(now);
        self.down.failed(now);
        (self.anchor, self.confident) = (None, true);
    }

    pub(super) fn try_fewer(&mut self, from: &Level, seen: &Interval, now: Duration) {
        let Some(settled) = self.settled() else { return };
        let Some(view) = self.statistics.view(settled, VIEW) else { return };
        let before = self.anchor.map_or(from.goodput, |anchor| anchor.goodput);
        let elapsed = now.saturating_sub(settled);
        let price = elapsed.mul_f64((1.0 - view.goodput / before).max(0.0));
        let left = view.rate().time_for(seen.left);
        // What does not grow will not come back either; where much is missing, that shows at once.
        let is_far = view.intervals >= INTERVALS.0 && view.goodput * (1.0 + 2.0 * view.error) < FAR * before;
        let is_final = (is_far || view.intervals == VIEW)
            && !self.statistics.is_growing(if is_far { FAST } else { SLOWLY });
        if keeps(before, &view) {
            self.phase = Phase::Hold;
            self.down.succeeded(now);
            self.down.tread_softly();
            self.up.hesitate(now);
            self.confident = true;
        } else if is_final
            || price > DEAREST.min(left.mul_f64(PRICE))
            || elapsed > round_trips(RECOVERY, seen)
        {
            self.phase = Phase::Hold;
            self.change(from.streams, from.ramp_up(seen.rtt), now);
            self.down.failed(now);
            (self.anchor, self.confident) = (None, true);
        }
    }
}
