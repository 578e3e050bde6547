//! `Share`: beside flows that fill the queue by their windows, the congestion control decides until they end.

use std::time::Duration;

use super::congestion::{min_pace, shortest_queue};
use super::{Observation, Pacer, PacerPhase};
use crate::tune::packet_train::MAX_TRAIN_RATE;
use crate::units::Rate;

/// The cap of the rate doubles in this many RTTs: the window may be twice what the pace let in flight.
const DOUBLING_RTTS: f64 = 8.0;
/// Competing flows have ended where the queue was empty for this many RTTs,
const EMPTY_RTTS: u32 = 4;
/// and at least this long: BBR flows drain the queue together, for 200 ms (ProbeRTT).
const MIN_EMPTY_TIME: Duration = Duration::from_millis(400);
/// Competing flows that return within this many RTTs had only paused.
const PAUSE_RTTS: u32 = 64;
/// Every so many RTTs the pacer checks whether the flows are still there,
const RECHECK_RTTS: u32 = 128;
/// at this share of the present rate of delivery.
const RECHECK_SHARE: f64 = 0.7;
/// The first cap is at least this share of the bottleneck's rate.
const MIN_INITIAL_SHARE: f64 = 0.5;
/// Slow start has reached its share after this many RTTs.
const GROWTH_RTTS: u32 = 16;
/// A delivery below this share of the bottleneck's rate restarts slow start,
const STARVED_SHARE: f64 = 0.2;
/// at most this often: among many flows the fair share is small.
const MAX_GROWTH_RESTARTS: u32 = 3;

impl Pacer {
    /// Returns whether competing flows were present so recently that they may only have paused.
    pub(super) fn competing_flows_paused(&self, seen: &Observation, now: Duration) -> bool {
        let lately = now.saturating_sub(seen.min_rtt.get() * PAUSE_RTTS);
        self.others.is_some_and(|seen| seen >= lately)
    }

    /// Starts to share, with a cap of `from`, the pace before the queue appeared.
    pub(super) fn begin_to_share(&mut self, from: Rate, now: Duration) {
        let from = from.max(self.capacity.unwrap_or_default().scaled(MIN_INITIAL_SHARE));
        self.phase = PacerPhase::Share { from, since: Some(now) };
        self.pace = Some(from);
    }

    /// Returns whether slow start should restart: once when sharing starts, and again where it has reached too little.
    pub(super) fn restarts_growth(&mut self, seen: &Observation, now: Duration) -> bool {
        let (times, last) = self.growth_restarts;
        let next_to_nothing = self.capacity.unwrap_or_default().scaled(STARVED_SHARE);
        let PacerPhase::Share { since: Some(since), .. } = self.phase else { return false };
        let has_grown = now.saturating_sub(last.max(since)) > seen.rtt.get() * GROWTH_RTTS;
        let fails =
            has_grown && self.delivery_over_rtt(seen, now).is_some_and(|passed| passed < next_to_nothing);
        let begins = times == 0 || (times < MAX_GROWTH_RESTARTS && fails);
        if begins {
            self.growth_restarts = (times + 1, now);
        }
        begins
    }

    /// Leaves the rate to the congestion control as long as the queue does not drain.
    pub(super) fn share(&mut self, from: Rate, since: Duration, seen: &Observation, now: Duration) {
        let min_rtt = seen.min_rtt.get();
        let doublings = now.saturating_sub(since).as_secs_f64() / min_rtt.as_secs_f64() / DOUBLING_RTTS;
        self.pace = Some(from.scaled(doublings.exp2())).filter(|pace| *pace < MAX_TRAIN_RATE);
        let passed = self.recent_delivery(seen, now);
        let looked = now.saturating_sub((min_rtt * EMPTY_RTTS).max(MIN_EMPTY_TIME));
        if since > looked || !self.history.reaches(looked) {
            return;
        }
        // Without deliveries there is no RTT to evaluate.
        let Some(longest) = self.history.largest_rtt(looked, now) else { return };
        // A pause of this sender must not lower its pace.
        let held = passed.max(self.history.delivery_rate(Duration::ZERO)).max(min_pace(seen));
        self.others = Some(now);
        if longest <= min_rtt + shortest_queue(seen) {
            self.settle(held, seen, now);
        } else if now.saturating_sub(since) > min_rtt * RECHECK_RTTS {
            // This connection's own window may keep the queue: at a lower rate it would drain.
            self.settle(held.scaled(RECHECK_SHARE), seen, now);
            self.start_draining(held.scaled(2.0), seen, now);
        }
    }
}
