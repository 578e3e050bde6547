//! What a queue or a loss says, and what it leaves of the pace.

use std::time::Duration;

use super::{Observation, Pacer, Phase};
use crate::units::{Bytes, Rate};

/// A pace that was cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Since when a queue was seen.
    since: Duration,
    /// The pace that was cut.
    from: Rate,
    /// What had been sent again until then.
    lost_before: Bytes,
    /// How long the queue has become meanwhile.
    deepest: Duration,
    /// The pace does not become less.
    least: Rate,
}

/// A queue that stands for longer than this, and a hundredth of the RTT, is one that somebody fills.
const QUEUE: Duration = Duration::from_millis(2);
/// A shorter queue, and a two-hundredth of the RTT, is noise.
const OWN_QUEUE: Duration = Duration::from_micros(1600);
/// So many times as long, a queue that cost nothing shows how deep the path's is;
const DEEP: u32 = 4;
/// so much of it is tolerated from then on.
const TOLERATED: f64 = 0.75;
/// A queue must be seen for this part of a round trip.
const NOTICED: u32 = 10;
/// The pace over what others leave,
const HELD: f64 = 0.97;
/// and for the first round trip, so that the queue drains.
const DRAINING: f64 = 0.92;
/// A loss of this share of what is sent is congestion even where no queue tells,
const LOSS: f64 = 0.02;
/// unless it is of a few packets.
const FEW: Bytes = Bytes::kib(24);
/// Two segments a round trip are always left, unless it was less: nothing grows from no pace at all.
const LEAST: Bytes = Bytes::new(2 * 1448);

impl Pacer {
    /// Makes room for whoever has come; no less than this share of the pace is left.
    pub(super) fn cut(&mut self, from: Rate, share: f64, seen: &Observation, now: Duration) {
        // What stands when a cut that has cost something is over is mostly what it has left.
        if self.cut.is_some_and(|before| seen.retransmits > before.lost_before) {
            self.remains_until = now;
        }
        self.cut = Some(Cut {
            since: now.saturating_sub(seen.min_rtt.get() / NOTICED),
            from,
            lost_before: seen.retransmits,
            deepest: Duration::ZERO,
            least: from.scaled(share).max(least_pace(seen)).min(from),
        });
        self.deaf_until = now + seen.rtt.get() + QUEUE;
        if let Phase::Cruise { probe, .. } = &mut self.phase {
            probe.put_off(self.deaf_until + seen.min_rtt.get());
        }
    }

    /// Chooses the pace after a cut: all that arrives in the round trip after it was still sent at the old pace.
    pub(super) fn recut(&mut self, seen: &Observation, now: Duration) {
        let queue = self.standing(seen, now).saturating_sub(seen.min_rtt.get());
        let Some(cut) = &mut self.cut else { return };
        cut.deepest = cut.deepest.max(queue);
        let Cut { since, from, lost_before, least, .. } = *cut;
        let arrives = self.history.delivery_rate(since);
        let sent = self
            .history
            .pace_between(since.saturating_sub(seen.rtt.get()), now.saturating_sub(seen.rtt.get()));
        let share = self.left(arrives, sent);
        // Of a queue that overflows, bursts lose more than what comes evenly: others may have lost nothing.
        let left =
            if seen.retransmits > lost_before { share.scaled(0.5) + arrives.scaled(0.5) } else { share };
        let held = |share| left.min(from).scaled(share).max(least);
        if let Phase::Cruise { target, .. } = &mut self.phase {
            (*target, self.pace) = (held(HELD), Some(held(DRAINING)));
        }
    }

    /// Takes a cut back that was for a long queue which has cost nothing: it was somebody's pause, or the path has deep buffers.
    ///
    /// There is then nothing to be careful of: it climbs again, and the path itself tells where its end is.
    pub(super) fn reconsider(&mut self, seen: &Observation, now: Duration) {
        let Some(Cut { since, from, lost_before, deepest, .. }) = self.cut.take() else { return };
        if seen.retransmits > lost_before {
            self.tolerated = Duration::ZERO;
        } else if since > self.remains_until && deepest > DEEP * shortest_queue(seen) {
            self.tolerated = self.tolerated.max(deepest.mul_f64(TOLERATED)).min(seen.min_rtt.get() / 4);
            self.capacity = None;
            self.phase = Phase::Climb { from, since: Some(now), most: None };
            self.pace = Some(from);
        }
    }

    /// Says whether somebody fills the path: a queue that stands, or losses that are more than accidents.
    pub(super) fn is_congested(&self, seen: &Observation, now: Duration) -> bool {
        if now < self.deaf_until {
            return false;
        }
        let (lost, sent) = (seen.retransmits - self.counted.0, seen.sent - self.counted.1);
        let losing = lost > FEW && lost.get() as f64 > LOSS * sent.get() as f64;
        let probing = match &self.phase {
            Phase::Cruise { probe, .. } => probe.queue(now),
            _ => Duration::ZERO,
        };
        losing || self.queue(seen, now) > shortest_queue(seen).max(self.tolerated).max(probing)
    }

    /// Says whether a queue stands that is too short for anybody else's.
    pub(super) fn has_queue(&self, seen: &Observation, now: Duration) -> bool {
        self.queue(seen, now) > (OWN_QUEUE + seen.min_rtt.get() / 200).max(self.tolerated)
    }

    /// Returns how long a queue is that stands for a part of the round trip.
    ///
    /// Without what was there all the time: somebody else's queue that never empties is no reason to leave them everything.
    fn queue(&self, seen: &Observation, now: Duration) -> Duration {
        let base = self.history.least_rtt(Duration::ZERO, now).unwrap_or(seen.min_rtt.get());
        self.standing(seen, now).saturating_sub(base)
    }

    /// Returns the least RTT of a part of the last round trip.
    fn standing(&self, seen: &Observation, now: Duration) -> Duration {
        let since = now.saturating_sub(seen.min_rtt.get() / NOTICED);
        self.history.standing_rtt(since).unwrap_or(seen.min_rtt.get())
    }

    /// Returns what others leave of the bottleneck, from what arrives of what was sent.
    ///
    /// A FIFO queue gives each its share of what is offered: arrives = capacity x sent / (sent + others).
    fn left(&self, arrives: Rate, sent: Rate) -> Rate {
        match self.capacity {
            Some(capacity) if capacity > arrives && sent > arrives && arrives > Rate::default() => {
                let ratio = capacity.as_bits_per_sec() as f64 / arrives.as_bits_per_sec() as f64;
                let others = sent.scaled((ratio - 1.0).max(0.0));
                Rate::bits_per_sec(capacity.as_bits_per_sec().saturating_sub(others.as_bits_per_sec()))
            }
            _ => arrives,
        }
    }
}

/// Returns how long a queue must be to count.
fn shortest_queue(seen: &Observation) -> Duration {
    QUEUE + seen.min_rtt.get() / 100
}

/// Returns the pace below which no cut goes, unless it began there.
pub(super) fn least_pace(seen: &Observation) -> Rate {
    Rate::over(LEAST, seen.min_rtt.get())
}
