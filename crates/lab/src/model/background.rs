//! Background traffic: packets that arrive at random and share the bottleneck.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Time;

/// Keeps its random numbers apart from those of other nodes that are given the same seed.
const BACKGROUND_SEED_STREAM: u64 = 1;

/// What a background has done so far. Its packets end at the bottleneck: no host sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackgroundCounts {
    /// Packets that have arrived.
    pub offered: u64,
    /// Those of them that the queue refused.
    pub lost: u64,
    /// Bytes of all that arrived, at the IP layer.
    pub bytes: Bytes,
}

/// Packets of one size that arrive as a Poisson process, at a mean rate that changes in steps.
///
/// The first packet that the bottleneck gets from elsewhere starts it, so that its times are those of the transfer.
#[derive(Debug)]
pub struct Background {
    size: Bytes,
    /// From when, since the start, which mean rate holds. In order of time.
    steps: Vec<(Duration, Rate)>,
    /// How many of the steps lie behind.
    behind: usize,
    /// The mean rate now, in bits a second.
    rate: f64,
    /// When the first packet came from elsewhere.
    begun: Option<Time>,
    /// Its next arrival; none where there is none any more.
    next: Option<Time>,
    random: ChaCha8Rng,
    counts: BackgroundCounts,
}

impl Background {
    /// Makes packets of `size` bytes at the IP layer (at least 1), at the mean rates `steps` says, each from its time on.
    ///
    /// Before the first step nothing arrives. The same `seed` gives the same arrivals.
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

    /// Returns what it has done so far.
    pub fn counts(&self) -> BackgroundCounts {
        self.counts
    }

    /// Returns the size of its packets.
    pub(super) fn size(&self) -> Bytes {
        self.size
    }

    /// Returns the next arrival if it is not after `now`.
    pub(super) fn next_until(&mut self, now: Time) -> Option<Time> {
        if self.begun.is_none() {
            self.begun = Some(now);
            self.next = self.draw(now);
        }
        self.next.filter(|at| *at <= now)
    }

    /// Counts the arrival that [`next_until`](Self::next_until) told, and draws the one after it.
    pub(super) fn arrived(&mut self, is_taken: bool) {
        self.count(1);
        self.counts.lost += u64::from(!is_taken);
        if let Some(at) = self.next {
            self.next = self.draw(at);
        }
    }

    /// Counts the loss of a packet that had arrived.
    pub(super) fn lost_one(&mut self) {
        self.counts.lost += 1;
    }

    /// Passes over the arrivals before `until`, of which none is lost, and counts as many as their mean rate makes.
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
    /// Gaps are exponential. A Poisson process has no memory, so what is left of a gap where the rate changes goes on at
    /// the new rate.
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

    /// Returns when the current step ends; none where it is the last.
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

    /// Returns a packet's size in bits.
    fn bits(&self) -> f64 {
        self.size.get() as f64 * 8.0
    }
}
