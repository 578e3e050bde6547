//! A simulated sender under a pace controller, with optional late and noisy observations.

use std::time::Duration;

use longhaul_core::tune::pace::{Observation, Pacer};
use longhaul_core::units::{Bytes, Rate, Rtt};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::simulation::{FlowObservation, FlowTotals, SimulatedControl, Simulation};
use crate::PathSpec;

/// A sender on a path, paced or not.
#[derive(Debug)]
pub struct PacedSender {
    simulation: Simulation,
    packet: Bytes,
    pacer: Option<Pacer>,
    noise: Option<ChaCha8Rng>,
    stalls: Option<RttStalls>,
    /// The congestion control to switch to once the controller has settled.
    final_control: Option<SimulatedControl>,
    now: Duration,
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
/// Simulated time between two observations of an unpaced sender.
const STEP: Duration = Duration::from_millis(10);

impl PacedSender {
    /// Creates a sender of packets of `packet` bytes on the path of `spec`, beside its cross flows.
    ///
    /// All flows use the congestion control of `spec`. With a pacer, a BBR flow begins with CUBIC's slow start and
    /// switches to BBR once the pacer has settled, like the engine.
    pub fn new(spec: &PathSpec, packet: Bytes, pacer: Option<Pacer>) -> Self {
        let control = SimulatedControl::named(&spec.congestion);
        let simulation = Simulation::new(spec.link(0), spec.one_way(), packet).beside(spec.cross_flows);
        let mut simulation = simulation.under(control);
        let final_control = (pacer.is_some() && control == SimulatedControl::Bbr).then_some(control);
        if final_control.is_some() {
            simulation.set_control(SimulatedControl::Cubic);
        }
        Self { simulation, packet, pacer, noise: None, stalls: None, final_control, now: Duration::ZERO }
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
        self.simulation.set_pace(Some(rate));
        self
    }

    /// Returns the controller.
    pub fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_ref()
    }

    /// Returns the totals since the start.
    pub fn totals(&self) -> FlowTotals {
        self.simulation.totals()
    }

    /// Runs until `end` after the start; returns the totals of this run.
    pub fn run_until(&mut self, end: Duration) -> FlowTotals {
        let before = self.simulation.totals();
        while self.now < end {
            self.step(end - self.now);
        }
        let after = self.simulation.totals();
        FlowTotals {
            sent: after.sent - before.sent,
            acknowledged: after.acknowledged - before.acknowledged,
            lost: after.lost - before.lost,
            background: after.background,
        }
    }

    /// Runs until `packets` are acknowledged, or until `end`; returns the time since the start.
    pub fn run_packets(&mut self, packets: u64, end: Duration) -> Duration {
        while self.now < end && self.simulation.totals().acknowledged < packets {
            self.step(STEP);
        }
        self.now
    }

    /// Runs for one interval of the controller, or for `most`.
    fn step(&mut self, most: Duration) {
        let late = self.delay();
        let interval = self.pacer.as_ref().map_or(most, |pacer| pacer.interval() + late).min(most);
        let mut seen = None;
        self.simulation.run(interval, interval, |observation, _| {
            seen = Some(observation);
            None
        });
        self.now += interval;
        let late =
            self.delay() + self.stalls.as_mut().map_or(Duration::ZERO, |stalls| stalls.after(interval));
        let (Some(seen), Some(pacer)) = (seen, &mut self.pacer) else { return };
        let seen = observed(&seen, self.packet, late);
        self.simulation.set_pace(pacer.observe(&seen, self.now));
        if let Some(control) = self.final_control.take_if(|_| !pacer.is_starting()) {
            self.simulation.set_control(control);
        }
        if pacer.is_held_back(&seen, self.now) {
            self.simulation.restart_growth();
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

/// Returns the kernel's observation of a simulated sender.
fn observed(seen: &FlowObservation, packet: Bytes, late: Duration) -> Observation {
    let FlowTotals { sent, acknowledged, lost, .. } = seen.totals;
    Observation {
        goodput: packet * acknowledged,
        window: seen.window,
        rtt: Rtt::new(seen.rtt.get() + late),
        min_rtt: seen.min_rtt,
        sent: packet * sent,
        lost: packet * lost,
    }
}
