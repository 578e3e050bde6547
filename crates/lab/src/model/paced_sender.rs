//! A simulated sender under a pace controller, whose observations may be late and noisy.

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
    restarts: bool,
    /// The congestion control to change to once the controller has settled.
    final_control: Option<SimulatedControl>,
    now: Duration,
}

/// How late an observation is, and how much longer an RTT seems, on a busy host: up to this,
const USUAL_DELAY: Duration = Duration::from_millis(1);
/// and in this share of the cases
const STALLS: f64 = 0.01;
/// up to this.
const STALL: Duration = Duration::from_millis(20);
/// How far an unpaced sender goes between two looks at what it has sent.
const STEP: Duration = Duration::from_millis(10);

impl PacedSender {
    /// Makes a sender of packets of `packet` bytes on the path of `spec`, beside its cross flows.
    ///
    /// All are under the congestion control of `spec`. With a pacer, one under BBR begins with slow start, and changes once the
    /// pacer has settled, as the engine has it.
    pub fn new(spec: &PathSpec, packet: Bytes, pacer: Option<Pacer>) -> Self {
        let control = SimulatedControl::named(&spec.congestion);
        let simulation = Simulation::new(spec.link(0), spec.one_way(), packet).beside(spec.cross_flows);
        let mut simulation = simulation.under(control);
        let final_control = (pacer.is_some() && control == SimulatedControl::Bbr).then_some(control);
        if final_control.is_some() {
            simulation.set_control(SimulatedControl::Cubic);
        }
        Self { simulation, packet, pacer, noise: None, restarts: true, final_control, now: Duration::ZERO }
    }

    /// Delays the controller's timer and the acknowledgements at random, as a busy host does.
    #[must_use]
    pub fn with_noise(mut self, seed: u64) -> Self {
        self.noise = Some(ChaCha8Rng::seed_from_u64(seed));
        self
    }

    /// Never restarts slow start, whatever the controller asks for.
    #[must_use]
    pub fn without_restarts(mut self) -> Self {
        self.restarts = false;
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

    /// Returns what was done since the start.
    pub fn totals(&self) -> FlowTotals {
        self.simulation.totals()
    }

    /// Goes on until `end` after the start; returns what was done meanwhile.
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

    /// Goes on until so many packets are acknowledged, or until `end`; returns the time since the start.
    pub fn run_packets(&mut self, packets: u64, end: Duration) -> Duration {
        while self.now < end && self.simulation.totals().acknowledged < packets {
            self.step(STEP);
        }
        self.now
    }

    /// Goes on by one interval of the controller, or by `most`.
    fn step(&mut self, most: Duration) {
        let late = self.delay();
        let interval = self.pacer.as_ref().map_or(most, |pacer| pacer.interval() + late).min(most);
        let mut seen = None;
        self.simulation.run(interval, interval, |observation, _| {
            seen = Some(observation);
            None
        });
        self.now += interval;
        let late = self.delay();
        let (Some(seen), Some(pacer)) = (seen, &mut self.pacer) else { return };
        let seen = observed(&seen, self.packet, late);
        self.simulation.set_pace(pacer.observe(&seen, self.now));
        if let Some(control) = self.final_control.take_if(|_| pacer.has_settled(&seen)) {
            self.simulation.set_control(control);
        }
        if pacer.is_held_back(&seen, self.now) && self.restarts {
            self.simulation.restart_growth();
        }
    }

    fn delay(&mut self) -> Duration {
        let Some(random) = &mut self.noise else { return Duration::ZERO };
        let most = if random.random_bool(STALLS) { STALL } else { USUAL_DELAY };
        most.mul_f64(random.random())
    }
}

/// Returns what the kernel would report of the simulated sender.
fn observed(seen: &FlowObservation, packet: Bytes, late: Duration) -> Observation {
    let FlowTotals { sent, acknowledged, lost, .. } = seen.totals;
    Observation {
        goodput: packet * acknowledged,
        window: seen.window,
        in_flight: packet * sent.saturating_sub(acknowledged + lost),
        rtt: Rtt::new(seen.rtt.get() + late),
        min_rtt: seen.min_rtt,
        sent: packet * sent,
        retransmits: packet * lost,
    }
}
