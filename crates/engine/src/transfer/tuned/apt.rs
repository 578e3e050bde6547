//! GridFTP-APT at work: a chunk after the other, each over as many streams as it says.

use std::time::{Duration, Instant};

use longhaul_core::tune::MOST_STREAMS;
use longhaul_core::tune::apt::Apt;
use longhaul_core::tune::stream_limit::StreamLimit;
use longhaul_core::units::{Bytes, Rate};

use super::obey;
use crate::transfer::crew::Refusal;
use crate::transfer::run::Foreman;

/// How often to look whether the transfer goes on.
const LOOK: Duration = Duration::from_millis(250);

/// A smaller chunk shows nothing but the way of its requests, and many of them take for ever. The paper has no such bound; below it are
/// goodputs of less than 2.8 Mbit/s at its Delta of 3 s.
const SMALLEST: Bytes = Bytes::mib(1);

/// Measures a chunk's goodput once all of it is there, and lets the next be claimed.
///
/// Connections stay open between chunks.
pub(super) fn run(mut apt: Apt, foreman: &Foreman<'_, '_, '_>) {
    let shared = foreman.shared();
    let mut limit = StreamLimit::new(MOST_STREAMS);
    loop {
        let (began, before) = (Instant::now(), shared.received_so_far());
        while !shared.work.rest_of_chunk(LOOK, &shared.stop) {
            if shared.stop.is_cancelled() || shared.crew.running() == 0 {
                return;
            }
        }
        if shared.work.is_done() {
            return;
        }
        let goodput = Rate::over(shared.received_so_far() - before, began.elapsed());
        let next = apt.observe(goodput);
        tracing::debug!(target: "longhaul::streams", %goodput, ?next, phase = ?apt.phase());
        let refusal = shared.crew.take_refusal();
        if let Some(Refusal { open, wait }) = refusal {
            limit.refused(open, wait, shared.start.elapsed());
        }
        obey(next.streams.min(limit.at(shared.start.elapsed())), refusal, foreman);
        shared.work.allow(next.size.max(SMALLEST));
    }
}
