//! Background traffic: random packets that share the bottleneck.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Time;

/// Separates this node's random numbers from those of other nodes with one seed.
const BACKGROUND_SEED_STREAM: u64 = 1;

/// Counts of background traffic. Its packets end at the bottleneck and reach no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackgroundCounts {
    /// Packets offered to the queue.
    pub offered: u64,
    /// Packets that the queue dropped.
    pub lost: u64,
    /// Offered bytes at the IP layer.
    pub bytes: Bytes,
}

/// A Poisson process of equal packets, with a mean rate that changes in steps.
///
/// Starts with the first packet of a host, so that its steps refer to the start of the transfer.
#[derive(Debug)]
pub struct Background {
    pub(super) size: Bytes,
    /// Start of each step since the first packet, and its mean rate; sorted by time.
    steps: Vec<(Duration, Rate)>,
    /// Number of steps already entered.
    behind: usize,
    /// Current mean rate in bits per second.
    rate: f64,
    /// Time of the first host packet.
    begun: Option<Time>,
    /// Next arrival; `None` if no step follows and the rate is zero.
    next: Option<Time>,
    random: ChaCha8Rng,
    pub(super) counts: BackgroundCounts,
}

impl Background {
    /// Creates packets of `size` bytes at the IP layer (at least 1), at the mean rates of `steps`,
    /// each from its time on.
    ///
    /// Nothing arrives before the first step. Arrivals are a function of `seed`.
    pub fn new(mut steps: Vec<(Duration, Rate)>, size: Bytes, seed: u64) -> Self {
        steps.sort_by_key(|(from, _)| *from);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(BACKGROUND_SEED_STREAM);
        Self {
            size: size.max(Bytes::new(1)),
            steps,
            behind: 0,
            rate: 0.0,
            begun: None,
            next: None,
            random,
            counts: BackgroundCounts::default(),
        }
    }

    /// Returns the next arrival if it is not after `now`.
    pub(super) fn next_until(&mut self, now: Time) -> Option<Time> {
        if self.begun.is_none() {
            self.begun = Some(now);
            self.next = self.draw(now);
        }
        self.next.filter(|at| *at <= now)
    }

    /// Counts the arrival that [`next_until`](Self::next_until) returned, and draws the next one.
    pub(super) fn arrived(&mut self, is_taken: bool) {
        self.count(1);
        self.counts.lost += u64::from(!is_taken);
        if let Some(at) = self.next {
            self.next = self.draw(at);
        }
    }

    /// Skips the arrivals before `until`; counts their expected number, without losses.
    pub(super) fn skip_to(&mut self, until: Time) {
        let Some(mut from) = self.next else { return };
        let mut bits = self.bits();
        while let Some(end) = self.step_end().filter(|end| *end <= until) {
            bits += self.rate * end.since(from).as_secs_f64();
            from = from.max(end);
            self.enter_step();
        }
        bits += self.rate * until.since(from).as_secs_f64();
        self.count((bits / self.bits()).round() as u64);
        self.next = self.draw(until);
    }

    /// Draws the first arrival after `from`.
    ///
    /// Gaps are exponential. A Poisson process is memoryless: after a step the rest of a gap is
    /// scaled to the new rate.
    fn draw(&mut self, mut from: Time) -> Option<Time> {
        let uniform: f64 = self.random.random();
        let mut bits = -(1.0 - uniform).ln() * self.bits();
        loop {
            let gap = if self.rate > 0.0 { bits / self.rate } else { f64::INFINITY };
            match self.step_end() {
                Some(end) if end.since(from).as_secs_f64() <= gap => {
                    bits -= self.rate * end.since(from).as_secs_f64();
                    from = from.max(end);
                    self.enter_step();
                }
                _ if gap.is_infinite() => return None,
                _ => return Some(from + Duration::from_nanos((gap * 1e9).round() as u64)),
            }
        }
    }

    /// Returns the end of the current step; `None` for the last step.
    fn step_end(&self) -> Option<Time> {
        Some(self.begun? + self.steps.get(self.behind)?.0)
    }

    fn enter_step(&mut self) {
        if let Some((_, rate)) = self.steps.get(self.behind) {
            self.rate = rate.as_bits_per_sec() as f64;
            self.behind += 1;
        }
    }

    fn count(&mut self, packets: u64) {
        self.counts.offered += packets;
        self.counts.bytes += self.size * packets;
    }

    /// Returns the packet size in bits.
    fn bits(&self) -> f64 {
        self.size.get() as f64 * 8.0
    }
}
