//! RED, Random Early Detection: drops packets at random before the queue is full.
//!
//! Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM
//! Transactions on Networking 1(4), 1993; `gentle` is Floyd's recommendation of 2000. Names are the
//! paper's.

use longhaul_core::units::{Bytes, Rate};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{AdmissionPolicy, Backlog, QueueLimit, QueueVerdict, Time};

/// Separates this node's random numbers from those of other nodes with one seed.
const RED_SEED_STREAM: u64 = 2;

/// Parameters of RED. Thresholds are in packets; a queue in bytes counts packets of the largest
/// size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedParameters {
    /// The average queue below which no packet is dropped.
    pub min_th: f64,
    /// The average queue above which all packets are dropped; with `gentle`, more than `max_p` of
    /// them.
    pub max_th: f64,
    /// The drop probability at `max_th`, 0 to 1.
    pub max_p: f64,
    /// The weight of the current queue in the average, above 0 and up to 1.
    pub w_q: f64,
    /// Whether the probability rises from `max_p` to 1 between `max_th` and twice `max_th`, instead
    /// of being 1.
    pub gentle: bool,
}

/// ns-2's classic values (5, 15, 0.1, 0.002), with `gentle` as in its later versions.
impl Default for RedParameters {
    fn default() -> Self {
        Self { min_th: 5.0, max_th: 15.0, max_p: 0.1, w_q: 0.002, gentle: true }
    }
}

impl RedParameters {
    /// Returns p_b, the drop probability before spacing, of an average queue in packets.
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

/// Drops packets at random, with a probability that rises with the average queue; drops all packets
/// beyond the limit.
///
/// The packet in transmission counts as queued, as in [`QueueLimit`]. For equal packets at a
/// constant average, the gap between drops is uniform from 1 to 1/p_b, as in the paper, so that
/// drops are not clustered. ns-2's default (`wait_`) makes the gap 1/p_b to 2/p_b, which drops
/// about a third less at one average. With a limit in bytes, average and gap are in bytes, and the
/// drop probability is proportional to the packet's size.
#[derive(Debug)]
pub struct Red {
    parameters: RedParameters,
    limit: QueueLimit,
    packet: Bytes,
    /// Packets of the largest size that the line sends per second.
    packets_per_sec: f64,
    /// avg, in packets.
    average: f64,
    /// Weighted packets admitted since the last drop, or since the average reached `min_th`.
    count: f64,
    random: ChaCha8Rng,
}

impl Red {
    /// Creates a queue of at most `limit` before a line of `rate` with packets of at most `packet`
    /// bytes.
    ///
    /// The average has the limit's unit. Drops are a function of `seed`.
    pub fn new(parameters: RedParameters, limit: QueueLimit, rate: Rate, packet: Bytes, seed: u64) -> Self {
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

    /// Updates the average with the queue that a packet finds.
    fn follow(&mut self, backlog: Backlog) {
        let w_q = self.parameters.w_q;
        if backlog.packets == 0 {
            // During idle time the average decays as if the line had sent packets of the largest
            // size: ns-2's `mean_pktsize_`. The paper assumes small packets.
            self.average *= (1.0 - w_q).powf(backlog.idle.as_secs_f64() * self.packets_per_sec);
        } else {
            let queue = match self.limit {
                QueueLimit::Bytes(_) => backlog.bytes.get() as f64 / self.packet.get() as f64,
                QueueLimit::Packets(_) => backlog.packets as f64,
            };
            self.average += w_q * (queue - self.average);
        }
    }

    /// Returns a packet's weight: 1 with a limit in packets, its share of the largest packet with a
    /// limit in bytes.
    fn weight(&self, size: Bytes) -> f64 {
        match self.limit {
            QueueLimit::Bytes(_) => size.get() as f64 / self.packet.get() as f64,
            QueueLimit::Packets(_) => 1.0,
        }
    }

    /// Decides at random whether a packet is dropped early.
    fn drops(&mut self, weight: f64) -> bool {
        let p_b = self.parameters.probability(self.average);
        // p_a = p_b / (1 - count p_b); the drop is certain at the end of the gap.
        let (wanted, left) = (weight * p_b, 1.0 - self.count * p_b);
        p_b >= 1.0 || p_b > 0.0 && (wanted >= left || self.random.random_bool(wanted / left))
    }
}

impl AdmissionPolicy for Red {
    fn judge(&mut self, now: Time, backlog: Backlog, size: Bytes) -> QueueVerdict {
        self.follow(backlog);
        let weight = self.weight(size);
        let verdict = match (self.drops(weight), self.limit.admits(now, backlog, size)) {
            (_, false) => QueueVerdict::Full,
            (true, true) => QueueVerdict::Early,
            (false, true) => QueueVerdict::Admitted,
        };
        let counts = verdict == QueueVerdict::Admitted && self.average >= self.parameters.min_th;
        self.count = if counts { self.count + weight } else { 0.0 };
        verdict
    }
}

#[cfg(test)]
mod tests;
