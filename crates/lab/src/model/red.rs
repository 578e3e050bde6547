//! RED, Random Early Detection: a queue that drops at random before it is full.
//!
//! Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM Transactions on Networking
//! 1(4), 1993; `gentle` is Floyd's recommendation of 2000. Names are the paper's.

use longhaul_core::units::{Bytes, Rate};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Admission, Backlog, DropTail, Time};

/// Keeps its random numbers apart from those of other nodes that are given the same seed.
const RED_SEED_STREAM: u64 = 2;

/// How RED drops. Thresholds are in packets; where the queue is counted in bytes, a packet is as many as the largest has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedParameters {
    /// The average queue below which nothing is dropped.
    pub min_th: f64,
    /// The average queue from which on all is dropped, or, where it is gentle, more than `max_p`.
    pub max_th: f64,
    /// The probability towards which dropping grows between the thresholds, 0 to 1.
    pub max_p: f64,
    /// The weight of the queue now in its average, above 0 and up to 1.
    pub w_q: f64,
    /// From `max_th` to twice of it, whether the probability grows from `max_p` to 1, instead of being 1.
    pub gentle: bool,
}

/// ns-2's classic values (5, 15, 0.1, 0.002), and gentle as in its later versions.
impl Default for RedParameters {
    fn default() -> Self {
        Self { min_th: 5.0, max_th: 15.0, max_p: 0.1, w_q: 0.002, gentle: true }
    }
}

impl RedParameters {
    /// Returns p_b, the probability before drops are spaced, of an average queue of so many packets.
    fn probability(&self, average: f64) -> f64 {
        let Self { min_th, max_th, max_p, gentle, .. } = *self;
        if average < min_th {
            0.0
        } else if average < max_th {
            max_p * (average - min_th) / (max_th - min_th)
        } else if gentle {
            (max_p + (1.0 - max_p) * (average - max_th) / max_th).min(1.0)
        } else {
            1.0
        }
    }
}

/// Drops packets at random, the more the longer the queue has been on average; and all that a full queue does not hold.
///
/// The packet being sent counts as queued, as for [`DropTail`]. Among equal packets at a constant average, the gap from
/// one drop to the next is uniform from 1 to 1/p_b, as the paper wants it, so that drops do not come in clumps. ns-2 by
/// default (`wait_`) makes it 1/p_b to 2/p_b, and so drops about a third as much at the same average. Where the limit is in
/// bytes, average and gap are, too, and a packet is dropped in proportion to its size.
#[derive(Debug)]
pub struct Red {
    parameters: RedParameters,
    limit: DropTail,
    packet: Bytes,
    /// How many of the largest packets the line sends in a second.
    packets_per_sec: f64,
    /// avg, in packets.
    average: f64,
    /// Packets taken since the last drop, or since the average reached `min_th`, by their weight.
    count: f64,
    random: ChaCha8Rng,
}

impl Red {
    /// Makes a queue that holds `limit` at most, before a line of `rate` whose largest packet is `packet`.
    ///
    /// The average is counted as the limit is. The same `seed` drops the same packets.
    pub fn new(parameters: RedParameters, limit: DropTail, rate: Rate, packet: Bytes, seed: u64) -> Self {
        let packet = packet.max(Bytes::new(1));
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(RED_SEED_STREAM);
        Self {
            parameters,
            limit,
            packet,
            packets_per_sec: rate.as_bits_per_sec() as f64 / (packet.get() as f64 * 8.0),
            average: 0.0,
            count: 0.0,
            random,
        }
    }

    /// Follows the queue that a packet meets with the average.
    fn follow(&mut self, backlog: Backlog) {
        let w_q = self.parameters.w_q;
        if backlog.packets == 0 {
            // As if as many packets of the largest size had met an empty queue as the line could have sent meanwhile: ns-2's
            // `mean_pktsize_`. The paper has small ones.
            self.average *= (1.0 - w_q).powf(backlog.idle.as_secs_f64() * self.packets_per_sec);
        } else {
            let queue = match self.limit {
                DropTail::Bytes(_) => backlog.bytes.get() as f64 / self.packet.get() as f64,
                DropTail::Packets(_) => backlog.packets as f64,
            };
            self.average += w_q * (queue - self.average);
        }
    }

    /// Returns what a packet of `size` counts for: as much as any where packets are counted, as its bytes where those are.
    fn weight(&self, size: Bytes) -> f64 {
        match self.limit {
            DropTail::Bytes(_) => size.get() as f64 / self.packet.get() as f64,
            DropTail::Packets(_) => 1.0,
        }
    }

    /// Decides at random whether a packet is dropped early.
    fn drops(&mut self, weight: f64) -> bool {
        let p_b = self.parameters.probability(self.average);
        // p_a = p_b / (1 - count p_b), which is certain where the gap is over.
        let (wanted, left) = (weight * p_b, 1.0 - self.count * p_b);
        p_b >= 1.0 || p_b > 0.0 && (wanted >= left || self.random.random_bool(wanted / left))
    }
}

/// What RED decides about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It joins the queue.
    Admitted,
    /// It is to be dropped early, or marked where its sender understands that.
    Early,
    /// There is no room for it.
    Full,
}

impl Red {
    /// Decides about a packet of `size` bytes that meets `backlog` at `now`.
    pub(super) fn judge(&mut self, now: Time, backlog: Backlog, size: Bytes) -> Verdict {
        self.follow(backlog);
        let weight = self.weight(size);
        let verdict = match (self.drops(weight), self.limit.admits(now, backlog, size)) {
            (_, false) => Verdict::Full,
            (true, true) => Verdict::Early,
            (false, true) => Verdict::Admitted,
        };
        let counts = verdict == Verdict::Admitted && self.average >= self.parameters.min_th;
        self.count = if counts { self.count + weight } else { 0.0 };
        verdict
    }
}

impl Admission for Red {
    fn admits(&mut self, now: Time, backlog: Backlog, size: Bytes) -> bool {
        self.judge(now, backlog, size) == Verdict::Admitted
    }
}

#[cfg(test)]
mod tests;
