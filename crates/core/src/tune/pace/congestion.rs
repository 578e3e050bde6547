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
    /// The pace does not become less.
    least: Rate,
}

/// A queue for which room was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// When it was last looked at, once a round trip.
    at: Duration,
    /// How long it was when it was looked at the last two times: it may sway.
    looked: [Option<Duration>; 2],
    /// When it was last seen at all.
    seen: Duration,
    /// The pace when it was first seen.
    from: Rate,
    /// What had been sent again when it was first seen.
    lost: Bytes,
    /// How often in a row it did not drain.
    looks: u32,
}

/// A queue that stands for longer than this, and a hundredth of the RTT, is one that somebody fills.
const QUEUE: Duration = Duration::from_millis(2);
/// A shorter queue, and a two-hundredth of the RTT, is noise.
const OWN_QUEUE: Duration = Duration::from_micros(1600);
/// A queue of which less than this part of a round trip drains in one does not drain;
const DRAINS: u32 = 50;
/// it stays, when that was seen so many times, the first of which tells nothing;
const LOOKS: u32 = 2;
/// where something is lost of it, and it is not so many times as long as counts, so many times.
const DEEP: u32 = 4;
const MOST_LOOKS: u32 = 4;
/// A queue must be seen for this part of a round trip.
pub(super) const NOTICED: u32 = 10;
/// The pace over what others leave,
const HELD: f64 = 0.97;
/// and for the first round trip, so that the queue drains.
const DRAINING: f64 = 0.92;
/// A loss of this share of what is sent is congestion even where no queue tells,
const LOSS: f64 = 0.02;
/// unless it is of a few packets.
const FEW: Bytes = Bytes::kib(24);
/// Never less than this share of a pace that was held, or of the bottleneck's rate, before it is known who has come.
pub(super) const DEEPEST_CUT: f64 = 0.3;
/// Two segments a round trip are always left, unless it was less: nothing grows from no pace at all.
const LEAST: Bytes = Bytes::new(2 * 1448);

impl Pacer {
    /// Makes room for whoever has come; no less than this share of the pace, or of the bottleneck's rate, is left.
    pub(super) fn cut(&mut self, from: Rate, share: f64, seen: &Observation, now: Duration) {
        let before = if share > 0.0 { self.makes_room(from, seen, now) } else { from };
        self.cut = Some(Cut {
            since: now.saturating_sub(seen.min_rtt.get() / NOTICED),
            from,
            lost_before: seen.retransmits,
            least: before
                .max(self.capacity.unwrap_or_default())
                .scaled(share)
                .min(from.scaled(DRAINING))
                .max(least_pace(seen))
                .min(from),
        });
        self.deaf_until = now + seen.rtt.get() + QUEUE;
        if let Phase::Cruise { probe, .. } = &mut self.phase {
            probe.put_off(self.deaf_until + seen.min_rtt.get());
        }
    }

    /// Chooses the pace after a cut: all that arrives in the round trip after it was still sent at the old pace.
    pub(super) fn recut(&mut self, seen: &Observation, now: Duration) {
        let Some(Cut { since, from, lost_before, least }) = self.cut else { return };
        let arrives = self.history.delivery_rate(since);
        let sent = self
            .history
            .sending_rate(since.saturating_sub(seen.rtt.get()), now.saturating_sub(seen.rtt.get()));
        let share = self.left(arrives, sent);
        // Of a queue that overflows, bursts lose more than what comes evenly: others may have lost nothing.
        let left =
            if seen.retransmits > lost_before { share.scaled(0.5) + arrives.scaled(0.5) } else { share };
        let held = |share| left.min(from).scaled(share).max(least);
        if let Phase::Cruise { target, .. } = &mut self.phase {
            (*target, self.pace) = (held(HELD), Some(held(DRAINING)));
        }
    }

    /// Returns the pace before a queue that stays, although room was made for whoever fills it.
    ///
    /// What others send at their own rate is gone when there is room for it; whoever fills the queue by his window takes what he is left.
    pub(super) fn yielded_in_vain(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let queue = self.standing(seen, now)?.saturating_sub(seen.min_rtt.get());
        let rtt = seen.rtt.get();
        self.standing = self.standing.filter(|standing| now.saturating_sub(standing.seen) <= rtt * 2);
        let standing = self.standing.as_mut()?;
        let stands = queue > shortest_queue(seen);
        if stands {
            standing.seen = now;
        }
        if now.saturating_sub(standing.at) < rtt {
            return None;
        }
        standing.at = now;
        if !stands {
            (standing.looks, standing.looked) = (0, [None; 2]);
            self.others = None;
            return None;
        }
        // A round trip for the cut to be felt, and one to drain; longer where a short one may be too full to tell.
        let shortest = standing.looked.into_iter().flatten().min();
        let drains = shortest.is_some_and(|shortest| queue + seen.min_rtt.get() / DRAINS < shortest);
        standing.looks = if drains { 0 } else { standing.looks + 1 };
        standing.looked = [standing.looked[1], Some(queue)];
        let is_full = seen.retransmits > standing.lost && queue < DEEP * shortest_queue(seen);
        let patience = if is_full { MOST_LOOKS } else { LOOKS };
        (standing.looks >= patience).then_some(standing.from)
    }

    /// Notes that room is made for a queue at this pace; returns the pace at which the queue was first seen.
    pub(super) fn makes_room(&mut self, from: Rate, seen: &Observation, now: Duration) -> Rate {
        // It is longest where what is seen is of a moment ago.
        let at = now + seen.min_rtt.get() / NOTICED;
        let new = Standing { at, looked: [None; 2], seen: now, from, lost: seen.retransmits, looks: 0 };
        let gone = |standing: &Standing| now.saturating_sub(standing.seen) > seen.rtt.get();
        let standing = self.standing.filter(|standing| !gone(standing)).unwrap_or(new);
        self.standing = Some(Standing { seen: now, ..standing });
        standing.from
    }

    /// Says whether somebody fills the path: a queue that stands, or losses that are more than accidents.
    pub(super) fn is_congested(&self, seen: &Observation, now: Duration) -> bool {
        if now < self.deaf_until {
            return false;
        }
        let (lost, sent) = (seen.retransmits - self.counted.0, seen.sent - self.counted.1);
        let losing = lost > FEW && lost.get() as f64 > LOSS * sent.get() as f64;
        losing || self.others_queue(seen, now)
    }

    /// Says whether a queue stands that is longer than any that we make ourselves.
    pub(super) fn others_queue(&self, seen: &Observation, now: Duration) -> bool {
        let probing = match &self.phase {
            Phase::Cruise { probe, .. } => probe.queue(now),
            _ => Duration::ZERO,
        };
        self.queue(seen, now) > shortest_queue(seen).max(self.tolerated).max(probing)
    }

    /// Says whether a queue stands that is too short for anybody else's.
    pub(super) fn has_queue(&self, seen: &Observation, now: Duration) -> bool {
        self.queue(seen, now) > OWN_QUEUE + seen.min_rtt.get() / 200
    }

    /// Returns how long a queue is that stands for a part of the round trip.
    ///
    /// Without what was there all the time: somebody else's queue that never empties is no reason to leave them everything.
    fn queue(&self, seen: &Observation, now: Duration) -> Duration {
        let base = self.history.least_rtt(Duration::ZERO, now).unwrap_or(seen.min_rtt.get());
        self.standing(seen, now).map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base))
    }

    /// Returns the least RTT of a part of the last round trip, where something arrived in it.
    fn standing(&self, seen: &Observation, now: Duration) -> Option<Duration> {
        self.history.standing_rtt(now.saturating_sub(seen.min_rtt.get() / NOTICED))
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
pub(super) fn shortest_queue(seen: &Observation) -> Duration {
    QUEUE + seen.min_rtt.get() / 100
}

/// Returns the pace below which no cut goes, unless it began there.
pub(super) fn least_pace(seen: &Observation) -> Rate {
    Rate::over(LEAST, seen.min_rtt.get())
}
