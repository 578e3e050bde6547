//! Longhaul's own tuner at work.

use longhaul_core::tune::streams::{Remembered, StreamTuner};
use longhaul_core::units::Rtt;

use super::meter::Meter;
use super::obey;
use crate::transfer::crew::Refusal;
use crate::transfer::run::Foreman;

/// Shows the tuner an interval after the other, and does what it wants, until the work is done.
pub(super) fn run(mut tuner: StreamTuner, rtt: Rtt, foreman: &Foreman<'_, '_, '_>) -> Option<Remembered> {
    let shared = foreman.shared();
    let mut meter = Meter::new(rtt, shared);
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
        if let Some(Refusal { open, wait }) = refusal {
            tuner.refused(open, wait, shared.start.elapsed());
        }
        let wanted = tuner.observe(&seen, shared.start.elapsed());
        tracing::debug!(target: "longhaul::streams", wanted, ?seen);
        obey(wanted, refusal, foreman);
    }
}
