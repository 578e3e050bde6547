//! The decisions of each phase.

use std::time::Duration;

use crate::units::{Rate, Rtt};

use super::statistics::{FAST_GROWTH_INTERVALS, IntervalMean, SLOW_GROWTH_INTERVALS};
use super::trial::{Level, TRIAL_INTERVALS, TrialVerdict, keeps, ramp_up};
use super::{Anchor, Interval, Remembered, StreamTuner, TunerPhase, round_trips};

/// Intervals over which `Hold` measures the present number of streams.
const HOLD_INTERVALS: usize = 8;
/// Intervals after which persistent losses are acted on.
const LOSS_INTERVALS: usize = 6;
/// RTTs in which the data in flight of closed streams still arrives, or drains from the queue.
const DRAIN_RTTS: u32 = 2;
/// The largest share of the remaining time that a trial of fewer streams may cost.
const MAX_TRIAL_COST: f64 = 0.01;
/// The largest time that a trial of fewer streams may cost.
const MAX_TRIAL_LOSS: Duration = Duration::from_millis(250);
/// A goodput below this share of the previous one is less, beyond noise.
const CLEARLY_LESS: f64 = 0.9;
/// RTTs, and at least this time, in which the remaining streams may grow to the previous goodput.
const RECOVERY_TIME: (u32, Duration) = (20, Duration::from_secs(2));
/// The timeout of a ramp-up, in RTTs and at least this time, whether the goodput still grows or
/// not.
const RAMP_UP_TIMEOUT: (u32, Duration) = (50, Duration::from_secs(5));
/// The share of the streams' common bound from which slow start reaches it within two RTTs.
const NEAR_BOUND: f64 = 0.25;
/// The remaining time below which the number does not change, because a change would have no effect
/// before the end.
const NEAR_END: Duration = Duration::from_secs(2);
/// The least remaining time for closing streams that only fill the queue, or under pressure on this
/// host.
const MIN_LEFT_FOR_SPARE: Duration = Duration::from_secs(10);
/// The least remaining time for a trial of fewer streams, which costs goodput while the others
/// grow.
const MIN_LEFT_FOR_FEWER: Duration = Duration::from_secs(30);
/// With losses the step is at least one part in this many of the streams, to exceed the noise.
const LOSSY_STEP: usize = 4;
/// Under pressure, one stream in this many is closed at a time.
const PRESSED_STEP: usize = 4;
/// The validity of an anchor: reduced windows have grown again after it.
const ANCHOR_LIFETIME: Duration = Duration::from_secs(10);
/// The share of the streams kept on a crowded path.
const CROWDED_SHARE: f64 = 0.75;
/// A goodput that differs by this share from its usual value shows that the path or its traffic has
/// changed.
const PATH_CHANGE: f64 = 0.25;

impl StreamTuner {
    pub(super) fn ramp_up(
        &mut self,
        (first, initial): (Option<Duration>, usize),
        seen: &Interval,
        now: Duration,
    ) {
        let first = first.or((seen.goodput > Rate::default()).then_some(now));
        self.phase = TunerPhase::RampUp { first, initial };
        let Some(first) = first else {
            self.changed.at = now;
            return;
        };
        if let Some((more, ramp_up)) = self.more_before_bound(seen, now) {
            self.change(more, ramp_up, now);
            return;
        }
        let late = now > first.saturating_add(round_trips(RAMP_UP_TIMEOUT, seen));
        let is_settled = self.changed.settled().is_some_and(|settled| now >= settled);
        // A cap that is soon raised leaves the initial number to be taken.
        if late || is_settled && self.statistics.is_level() && !self.limit.is_capped_below(initial) {
            self.phase = TunerPhase::Hold;
            self.changed.since = Some(first);
            // The last three intervals are level.
            self.statistics.keep_last(3);
        }
    }

    /// Returns a larger number of streams and the duration of its slow start if the slow start of
    /// the present streams is about to end at their bound.
    fn more_before_bound(&self, seen: &Interval, now: Duration) -> Option<(usize, Duration)> {
        let bound = self.bound?;
        let each = Rate::over(bound.window, seen.rtt.get()).as_bits_per_sec() as f64;
        let goodput = seen.goodput.as_bits_per_sec() as f64;
        let has_room = |view: IntervalMean| {
            view.was_never_full() && !view.has_lost() && !view.is_held_back() && !view.is_pressed()
        };
        let is_near = goodput >= NEAR_BOUND * each * self.wanted as f64
            && self.statistics.view(Duration::ZERO, usize::MAX).is_some_and(has_room);
        let more = (2 * self.wanted).min(bound.streams_to_fill(seen.rtt)).min(self.limit.at(now));
        let ramp_up = ramp_up(bound.window, seen.rtt);
        let pays = seen.goodput.time_for(seen.left) > ramp_up;
        (is_near && more > self.wanted && pays).then_some((more, ramp_up))
    }

    pub(super) fn hold(&mut self, seen: &Interval, now: Duration) {
        let Some(settled) = self.changed.settled() else { return };
        let Some(view) = self.statistics.view(settled, HOLD_INTERVALS) else { return };
        if view.intervals < TRIAL_INTERVALS.0 {
            return;
        }
        self.reference.anchor = self.reference.anchor.filter(|anchor| now < anchor.until);
        self.follow(&view, now);
        self.conclude(&view, seen.rtt);
        let left = view.rate().time_for(seen.left);
        if left < NEAR_END {
            return;
        }
        let several = self.wanted > 1;
        if view.is_filling() || view.is_losing() && !self.confident {
            self.backoffs.up.use_small_step();
        }
        let is_crowded = self.wanted > view.max_streams_at_loss() || view.has_queue() && view.is_losing();
        if several && is_crowded {
            if view.intervals >= LOSS_INTERVALS && self.backoffs.cut.is_due(now) {
                self.cut_streams(seen.rtt, now);
            }
        } else if several && self.backoffs.down.is_due(now) && self.may_do_with_fewer(&view, left, now) {
            self.shrink(&view, seen.rtt, now);
        } else if self.backoffs.up.is_due(now)
            && !view.is_held_back()
            && !view.is_pressed()
            && self.statistics.is_level()
        {
            self.grow(&view, seen, now);
        }
    }

    fn may_do_with_fewer(&self, view: &IntervalMean, left: Duration, now: Duration) -> bool {
        if view.spare(self.wanted) > 0 || view.is_pressed() {
            return left > MIN_LEFT_FOR_SPARE;
        }
        left > MIN_LEFT_FOR_FEWER
            && (view.has_queue() || view.is_held_back() || !self.backoffs.up.is_due(now))
    }

    /// Restarts the trials if the path has changed.
    fn follow(&mut self, view: &IntervalMean, now: Duration) {
        if view.intervals < HOLD_INTERVALS {
            return;
        }
        let usual = *self.reference.usual.get_or_insert(view.goodput);
        if (view.goodput / usual - 1.0).abs() > PATH_CHANGE {
            self.reference.usual = Some(view.goodput);
            self.reference.anchor = None;
            for patience in [&mut self.backoffs.up, &mut self.backoffs.down, &mut self.backoffs.cut] {
                patience.restart(now);
            }
        }
    }

    fn conclude(&mut self, view: &IntervalMean, rtt: Rtt) {
        self.confident |= view.has_queue() && view.intervals == HOLD_INTERVALS;
        if self.confident && !view.is_held_back() {
            // Streams that end carry less.
            let best = self.concluded.map_or(Rate::default(), |concluded| concluded.rate);
            self.concluded = Some(Remembered { rtt, rate: view.rate().max(best), streams: self.wanted });
        }
    }

    /// Closes a quarter of the streams at any cost, as other sessions on this path do.
    fn cut_streams(&mut self, rtt: Rtt, now: Duration) {
        let fewer = (self.wanted as f64 * CROWDED_SHARE).round() as usize;
        self.change(fewer.min(self.wanted - 1), rtt.get().saturating_mul(DRAIN_RTTS), now);
        self.backoffs.cut.postpone(now);
        self.backoffs.up.postpone(now);
        (self.reference.anchor, self.confident) = (None, true);
    }

    /// Sets the anchor to the present goodput, unless an earlier one is still valid.
    fn anchor(&mut self, goodput: f64, now: Duration) {
        self.reference.anchor.get_or_insert(Anchor { goodput, until: now.saturating_add(ANCHOR_LIFETIME) });
    }

    /// Tries more streams if the limit and the remaining bytes permit.
    fn grow(&mut self, view: &IntervalMean, seen: &Interval, now: Duration) {
        let mut from = Level::new(self.wanted, view);
        from.goodput = from.goodput.max(self.reference.anchor.map_or(0.0, |anchor| anchor.goodput));
        let ramp_up = from.ramp_up(seen.rtt);
        let left = view.rate().time_for(seen.left);
        let lossy = (self.wanted / LOSSY_STEP).max(1);
        let step = match self.backoffs.up.step(self.wanted) {
            _ if view.is_losing_much() => lossy,
            step if view.is_losing() && !view.has_queue() => step.max(lossy),
            step => step,
        };
        let more = (self.wanted + step).min(self.limit.at(now)).min(view.max_streams_at_loss());
        if more > self.wanted && left > ramp_up.saturating_mul(2).saturating_add(NEAR_END) {
            self.phase = TunerPhase::Trial { from };
            self.change(more, ramp_up, now);
        }
    }

    /// Tries fewer streams: without those that only fill the queue, or one step fewer.
    fn shrink(&mut self, view: &IntervalMean, rtt: Rtt, now: Duration) {
        let step = match view.spare(self.wanted) {
            0 if view.is_pressed() => self.backoffs.down.step(self.wanted).max(self.wanted / PRESSED_STEP),
            0 => self.backoffs.down.step(self.wanted),
            spare => spare,
        };
        self.anchor(view.goodput, now);
        self.phase = TunerPhase::Trial { from: Level::new(self.wanted, view) };
        self.change(self.wanted - step.min(self.wanted / 2), rtt.get().saturating_mul(DRAIN_RTTS), now);
    }

    pub(super) fn try_more(&mut self, from: &Level, seen: &Interval, now: Duration) {
        if let Some(last) = self.statistics.view(self.changed.at, 2)
            && from.grows_in_proportion(self.wanted, &last)
        {
            // The next streams are opened before these have ramped up.
            self.keep_more(None, now);
            self.grow(&last, seen, now);
            return;
        }
        let Some(ramped_up) = self.changed.settled() else { return };
        let view = self.statistics.view(ramped_up, TRIAL_INTERVALS.1);
        let late = now > ramped_up.saturating_add(round_trips(RAMP_UP_TIMEOUT, seen));
        let verdict = match view {
            Some(view) if late || self.statistics.is_level() => from.judge_more(self.wanted, &view),
            None if late => TrialVerdict::NoGain,
            _ => TrialVerdict::Unknown,
        };
        match verdict {
            TrialVerdict::Unknown => {}
            TrialVerdict::InProportion => self.keep_more(Some(ramped_up), now),
            TrialVerdict::Fills(needed) => {
                self.keep_more(Some(ramped_up), now);
                self.backoffs.up.failed(now);
                if needed < self.wanted {
                    self.anchor(view.map_or(from.goodput, |view| view.goodput), now);
                    self.phase = TunerPhase::HandOver { to: needed };
                }
            }
            TrialVerdict::NoGain => {
                self.phase = TunerPhase::HandOver { to: from.streams };
                self.backoffs.up.failed(now);
                self.backoffs.down.postpone(now);
                self.anchor(from.goodput, now);
                self.confident = true;
            }
        }
    }

    /// Closes streams without a gain as the others recover from the losses of the trial.
    pub(super) fn hand_over(&mut self, to: usize, seen: &Interval, now: Duration) {
        let Some(settled) = self.changed.settled() else { return };
        let view = self.statistics.view(settled, TRIAL_INTERVALS.0);
        let before = self.reference.anchor.map_or(0.0, |anchor| anchor.goodput);
        if let Some(view) = view.filter(|view| keeps(before, view)) {
            let step = view.spare(self.wanted).max(self.wanted / 8).max(1);
            self.change(
                to.max(self.wanted.saturating_sub(step)),
                seen.rtt.get().saturating_mul(DRAIN_RTTS),
                now,
            );
        }
        if self.wanted <= to || now > settled.saturating_add(round_trips(RECOVERY_TIME, seen)) {
            self.phase = TunerPhase::Hold;
        }
    }

    /// Keeps the streams of the trial; the goodput counts from the end of their ramp-up.
    fn keep_more(&mut self, ramped_up: Option<Duration>, now: Duration) {
        self.phase = TunerPhase::Hold;
        (self.changed.since, self.changed.settling) = (ramped_up, Duration::ZERO);
        self.backoffs.up.succeeded(now);
        self.backoffs.down.failed(now);
        (self.reference.anchor, self.confident) = (None, true);
    }

    pub(super) fn try_fewer(&mut self, from: &Level, seen: &Interval, now: Duration) {
        let Some(settled) = self.changed.settled() else { return };
        let Some(view) = self.statistics.view(settled, HOLD_INTERVALS) else { return };
        let before = self.reference.anchor.map_or(from.goodput, |anchor| anchor.goodput);
        let elapsed = now.saturating_sub(settled);
        let price = elapsed.mul_f64((1.0 - view.goodput / before).max(0.0));
        let left = view.rate().time_for(seen.left);
        // A goodput that does not grow will not recover; a large decrease shows soon.
        let is_far = view.intervals >= TRIAL_INTERVALS.0
            && view.goodput * (1.0 + 2.0 * view.error) < CLEARLY_LESS * before;
        let is_final = (is_far || view.intervals == HOLD_INTERVALS)
            && !self.statistics.is_growing(if is_far {
                FAST_GROWTH_INTERVALS
            } else {
                SLOW_GROWTH_INTERVALS
            });
        if keeps(before, &view) {
            self.phase = TunerPhase::Hold;
            self.backoffs.down.succeeded(now);
            self.backoffs.down.use_small_step();
            self.backoffs.up.postpone(now);
            self.confident = true;
        } else if is_final
            || price > MAX_TRIAL_LOSS.min(left.mul_f64(MAX_TRIAL_COST))
            || elapsed > round_trips(RECOVERY_TIME, seen)
        {
            self.phase = TunerPhase::Hold;
            self.change(from.streams, from.ramp_up(seen.rtt), now);
            self.backoffs.down.failed(now);
            (self.reference.anchor, self.confident) = (None, true);
        }
    }
}
