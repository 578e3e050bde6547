//! A simulated sender under a pace controller, with optional late and noisy observations.

use std::time::Duration;

use longhaul_core::tune::pace::{Observation, Pacer};
use longhaul_core::units::{Bytes, Rate, Rtt};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tcp::{CongestionAlgorithm, Network, PacketCounts, Tcp};
use super::{BackgroundCounts, Time};
use crate::PathSpec;

/// A bulk sender on a path, paced or not, beside cross flows without a pace.
#[derive(Debug)]
pub struct PacedSender {
    network: Network,
    /// The sender's download.
    download: usize,
    /// The cross flows' download, and their end.
    ending: Option<(usize, Time)>,
    pacer: Option<Pacer>,
    noise: Option<ChaCha8Rng>,
    /// The congestion control to switch to once the controller has settled.
    final_congestion: Option<CongestionAlgorithm>,
}

/// Maximum delay of an observation and of an RTT sample on a busy host, except in stalls.
const USUAL_DELAY: Duration = Duration::from_millis(1);
/// Share of observations that are delayed by a stall.
const STALLS: f64 = 0.01;
/// Maximum delay of a stall.
const STALL: Duration = Duration::from_millis(20);
/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// Simulated time between two observations of an unpaced sender.
const STEP: Duration = Duration::from_millis(10);

impl PacedSender {
    /// Creates a sender of packets of `packet` bytes, whole MTUs, on the path of `spec`, beside its
    /// cross flows.
    ///
    /// All flows use the congestion control of `spec`. With a pacer, a BBR flow begins with CUBIC's
    /// slow start and switches to BBR once the pacer has settled, like the engine. Connections are
    /// open at the start.
    pub fn new(spec: &PathSpec, packet: Bytes, pacer: Option<Pacer>) -> Self {
        let segments = (packet.get() / spec.ends.mtu.get().max(1)).max(1);
        let algorithm = CongestionAlgorithm::named(&spec.ends.congestion);
        let buffer = Bytes::new(u64::MAX);
        let tcp = Tcp { algorithm, payload: packet, segments, buffer, initial: INITIAL_WINDOW };
        // Noise is a matter of `with_noise`.
        let mut network = Network::new(spec, tcp).without_jitter();
        let download = network.add_endless(1, Time::START);
        let cross = network
            .add_endless(spec.traffic.cross_flows.count.into(), Time::START + spec.traffic.cross_flows.from);
        let ending = spec.traffic.cross_flows.to.map(|to| (cross, Time::START + to));
        let final_congestion =
            (pacer.is_some() && algorithm == CongestionAlgorithm::Bbr).then_some(algorithm);
        if final_congestion.is_some() {
            network.set_congestion(download, CongestionAlgorithm::Cubic);
        }
        Self { network, download, ending, pacer, noise: None, final_congestion }
    }

    /// Adds random delays to the controller's timer and to acknowledgements, as on a busy host.
    #[must_use]
    pub fn with_noise(mut self, seed: u64) -> Self {
        self.noise = Some(ChaCha8Rng::seed_from_u64(seed));
        self
    }

    /// Sends at a fixed pace.
    #[must_use]
    pub fn at(mut self, rate: Rate) -> Self {
        self.network.set_pace(self.download, Some(rate));
        self
    }

    /// Returns the counts since the start.
    pub fn counts(&self) -> PacketCounts {
        self.network.counts(self.download)
    }

    /// Returns the counts of the background traffic.
    pub fn background(&self) -> BackgroundCounts {
        self.network.background()
    }

    /// Runs until `packets` are acknowledged, or until `end`; returns the time since the start.
    pub fn run_packets(&mut self, packets: u64, end: Duration) -> Duration {
        while self.now() < end && self.counts().arrived < packets {
            self.step(STEP);
        }
        self.now()
    }

    /// Runs for `time` without the controller; returns the observation at its end, `None` before
    /// the first acknowledgement.
    pub(super) fn observe(&mut self, time: Duration) -> Option<Observation> {
        let until = self.network.now + time;
        if let Some((cross, end)) = self.ending.take_if(|(_, end)| *end <= until) {
            self.network.advance(end);
            self.network.connect(cross, 0);
        }
        self.network.advance(until);
        self.network.observe(self.download)
    }

    fn now(&self) -> Duration {
        self.network.now.since(Time::START)
    }

    /// Runs for one interval of the controller, or for `most`.
    fn step(&mut self, most: Duration) {
        let seen = self.run_interval(most);
        let late = self.delay();
        self.control(seen, late);
    }

    /// Runs until the controller's timer fires, at most for `most`; returns the observation then.
    fn run_interval(&mut self, most: Duration) -> Option<Observation> {
        let late = self.delay();
        let interval = self.pacer.as_ref().map_or(most, |pacer| pacer.interval() + late);
        self.observe(interval.min(most))
    }

    /// Gives the controller an observation whose RTT is longer by `late`.
    fn control(&mut self, seen: Option<Observation>, late: Duration) {
        let now = self.now();
        let (Some(mut seen), Some(pacer)) = (seen, &mut self.pacer) else { return };
        seen.rtt = Rtt::new(seen.rtt.get() + late);
        self.network.set_pace(self.download, pacer.observe(&seen, now));
        if let Some(algorithm) = self.final_congestion.take_if(|_| !pacer.is_starting()) {
            self.network.set_congestion(self.download, algorithm);
        }
        if pacer.is_held_back(&seen, now) {
            self.network.restart_growth(self.download);
        }
    }

    fn delay(&mut self) -> Duration {
        let Some(random) = &mut self.noise else { return Duration::ZERO };
        let most = if random.random_bool(STALLS) { STALL } else { USUAL_DELAY };
        most.mul_f64(random.random())
    }
}

#[cfg(test)]
mod tests;
