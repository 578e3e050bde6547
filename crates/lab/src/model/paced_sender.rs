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
    stalls: Option<RttStalls>,
    /// The congestion control to switch to once the controller has settled.
    final_congestion: Option<CongestionAlgorithm>,
}

/// Stalls of a host that make the smoothed RTT longer for a while.
#[derive(Debug)]
struct RttStalls {
    random: ChaCha8Rng,
    /// How much longer the RTT is now.
    excess: Duration,
}

/// The mean time between two such stalls, and the time in which the smoothed RTT forgets most of one.
const RTT_STALL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum added to the RTT by one.
const RTT_STALL: Duration = Duration::from_millis(5);
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
    /// Creates a sender of packets of `packet` bytes, whole MTUs, on the path of `spec`, beside its cross flows.
    ///
    /// All flows use the congestion control of `spec`. With a pacer, a BBR flow begins with CUBIC's slow start and
    /// switches to BBR once the pacer has settled, like the engine. Connections are open at the start.
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
        Self { network, download, ending, pacer, noise: None, stalls: None, final_congestion }
    }

    /// Uses another congestion control than the cross flows.
    #[must_use]
    pub fn under(mut self, algorithm: CongestionAlgorithm) -> Self {
        self.network.set_congestion(self.download, algorithm);
        self
    }

    /// Adds random delays to the controller's timer and to acknowledgements, as on a busy host.
    #[must_use]
    pub fn with_noise(mut self, seed: u64) -> Self {
        self.noise = Some(ChaCha8Rng::seed_from_u64(seed));
        self
    }

    /// Makes the smoothed RTT longer ten times a second, as on a host that others stop.
    #[must_use]
    pub fn with_rtt_stalls(mut self, seed: u64) -> Self {
        self.stalls = Some(RttStalls { random: ChaCha8Rng::seed_from_u64(seed), excess: Duration::ZERO });
        self
    }

    /// Sends at a fixed pace.
    #[must_use]
    pub fn at(mut self, rate: Rate) -> Self {
        self.network.set_pace(self.download, Some(rate));
        self
    }

    /// Returns the controller.
    pub fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_ref()
    }

    /// Returns the counts since the start.
    pub fn counts(&self) -> PacketCounts {
        self.network.counts(self.download)
    }

    /// Returns the counts of the background traffic.
    pub fn background(&self) -> BackgroundCounts {
        self.network.background()
    }

    /// Runs until `end` after the start; returns the counts of this run.
    pub fn run_until(&mut self, end: Duration) -> PacketCounts {
        let before = self.counts();
        while self.now() < end {
            self.step(end - self.now());
        }
        self.counts() - before
    }

    /// Runs until `packets` are acknowledged, or until `end`; returns the time since the start.
    pub fn run_packets(&mut self, packets: u64, end: Duration) -> Duration {
        while self.now() < end && self.counts().arrived < packets {
            self.step(STEP);
        }
        self.now()
    }

    /// Runs for `time` without the controller; returns the observation at its end, `None` before the first
    /// acknowledgement.
    pub fn observe(&mut self, time: Duration) -> Option<Observation> {
        let until = self.network.now() + time;
        if let Some((cross, end)) = self.ending.take_if(|(_, end)| *end <= until) {
            self.network.advance(end);
            self.network.connect(cross, 0);
        }
        self.network.advance(until);
        self.network.observe(self.download)
    }

    fn now(&self) -> Duration {
        self.network.now().since(Time::START)
    }

    /// Runs for one interval of the controller, or for `most`.
    fn step(&mut self, most: Duration) {
        let late = self.delay();
        let interval = self.pacer.as_ref().map_or(most, |pacer| pacer.interval() + late).min(most);
        let seen = self.observe(interval);
        let late =
            self.delay() + self.stalls.as_mut().map_or(Duration::ZERO, |stalls| stalls.after(interval));
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

impl RttStalls {
    /// Returns what is added to the RTT, `time` after the last call.
    fn after(&mut self, time: Duration) -> Duration {
        let intervals = time.as_secs_f64() / RTT_STALL_INTERVAL.as_secs_f64();
        if self.random.random_bool(intervals.min(1.0)) {
            self.excess += RTT_STALL.mul_f64(self.random.random());
        }
        self.excess = self.excess.mul_f64((-intervals).exp());
        self.excess
    }
}
