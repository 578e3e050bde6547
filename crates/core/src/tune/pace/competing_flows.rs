//! Beside others who fill the queue by their windows: the congestion control decides, until they have gone.

use std::time::Duration;

use super::congestion::{least_pace, shortest_queue};
use super::{Observation, Pacer, Phase};
use crate::tune::packet_train::MAX_TRAIN_RATE;
use crate::units::Rate;

/// Beside others the bound of the rate doubles in so many round trips: the window may be twice of what was let in flight.
const SLOW: f64 = 8.0;
/// Whoever shared a queue that was empty for so many round trips has gone,
const EMPTY: u32 = 4;
/// and for so long: all BBR flows on a path drain it together, for 200 ms;
const LONGEST_LULL: Duration = Duration::from_millis(400);
/// who comes so many round trips later has only paused.
const PAUSE: u32 = 64;
/// After so many round trips it is looked whether they are still there,
const LOOK: u32 = 128;
/// with this share of what passes.
const DRAINING_ALL: f64 = 0.7;
/// Beside others, at least this share of the bottleneck's rate is left to the congestion control from the start.
const LEAST_SHARE: f64 = 0.5;
/// Slow start has come to what it can within so many round trips,
const GROWS: u32 = 16;
/// and is begun anew where that is less than this share of the bottleneck's rate,
const NEXT_TO_NOTHING: f64 = 0.2;
/// but not for ever: where many share the path that is what there is.
const MOST_BEGINNINGS: u32 = 3;

impl Pacer {
    /// Says whether others who fill the queue may only have paused.
    pub(super) fn others_pause(&self, seen: &Observation, now: Duration) -> bool {
        let lately = now.saturating_sub(seen.min_rtt.get() * PAUSE);
        self.others.is_some_and(|seen| seen >= lately)
    }

    /// Begins to share, where `from` was held before the others were seen.
    pub(super) fn begin_to_share(&mut self, from: Rate, now: Duration) {
        let from = from.max(self.capacity.unwrap_or_default().scaled(LEAST_SHARE));
        self.phase = Phase::Share { from, since: Some(now) };
        self.pace = Some(from);
    }

    /// Says whether slow start is to begin anew: when others were found, and where next to nothing has come of it.
    pub(super) fn begins_anew(&mut self, seen: &Observation, now: Duration) -> bool {
        let (times, last) = self.begun_anew;
        let next_to_nothing = self.capacity.unwrap_or_default().scaled(NEXT_TO_NOTHING);
        let Phase::Share { since: Some(since), .. } = self.phase else { return false };
        let has_grown = now.saturating_sub(last.max(since)) > seen.rtt.get() * GROWS;
        let fails = has_grown && self.round_trip(seen, now).is_some_and(|passed| passed < next_to_nothing);
        let begins = times == 0 || (times < MOST_BEGINNINGS && fails);
        if begins {
            self.begun_anew = (times + 1, now);
        }
        begins
    }

    /// Leaves the rate to the congestion control for as long as somebody keeps the queue from emptying.
    pub(super) fn share(&mut self, from: Rate, since: Duration, seen: &Observation, now: Duration) {
        let min_rtt = seen.min_rtt.get();
        let doublings = now.saturating_sub(since).as_secs_f64() / min_rtt.as_secs_f64() / SLOW;
        self.pace = Some(from.scaled(doublings.exp2())).filter(|pace| *pace < MAX_TRAIN_RATE);
        let passed = self.passed(seen, now);
        let looked = now.saturating_sub((min_rtt * EMPTY).max(LONGEST_LULL));
        if since > looked || !self.history.reaches(looked) {
            return;
        }
        // Where nothing has arrived nothing is known.
        let Some(longest) = self.history.largest_rtt(looked, now) else { return };
        // A lull of our own is no reason to stay slow.
        let held = passed.max(self.history.delivery_rate(Duration::ZERO)).max(least_pace(seen));
        self.others = Some(now);
        if longest <= min_rtt + shortest_queue(seen) {
            self.settle(held, seen, now);
        } else if now.saturating_sub(since) > min_rtt * LOOK {
            // A window of our own may keep the queue up as well: with less, it would drain.
            self.settle(held.scaled(DRAINING_ALL), seen, now);
            self.makes_room(held.scaled(2.0), seen, now);
        }
    }
}
