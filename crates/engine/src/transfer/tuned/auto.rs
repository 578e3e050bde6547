//! Longhaul's own tuner at work.

use longhaul_core::tune::streams::{Remembered, StreamTuner};
use longhaul_core::units::Rtt;

use super::ceiling::Ceiling;
use super::meter::Meter;
use crate::transfer::run::Foreman;

/// Shows the tuner an interval after the other, and does what it wants, until the work is done.
pub(super) fn run(mut tuner: StreamTuner, rtt: Rtt, foreman: &Foreman<'_, '_, '_>) -> Option<Remembered> {
    let shared = foreman.shared();
    let (mut meter, mut ceiling) = (Meter::new(rtt, shared), Ceiling::default());
    loop {
        shared.work.rest(meter.interval(), &shared.stop);
        if shared.work.is_done() || shared.stop.is_cancelled() || shared.crew.running() == 0 {
            return tuner.conclusion();
        }
        if shared.is_paced() {
            meter.restart(shared);
            continue;
        }
        let seen = meter.look(shared);
        let refusal = shared.crew.take_refusal();
        if let Some(refusal) = refusal {
            tuner.refused(refusal.open, shared.start.elapsed());
            ceiling.refused(refusal);
        }
        let wanted = tuner.observe(&seen, shared.start.elapsed());
        tracing::debug!(target: "longhaul::streams", wanted, ?seen);
        let wanted = ceiling.within(wanted, std::time::Instant::now()).max(1);
        // Blocks and segments are planned for those that were refused.
        if refusal.is_some() || wanted != shared.crew.staying() {
            foreman.want(wanted);
        }
    }
}
