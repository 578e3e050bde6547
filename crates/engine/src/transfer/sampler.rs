//! Takes samples of everything that can be measured, on a thread of its own, for whoever observes.

use std::fs::File;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::event::Event;
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;
use longhaul_sys::host;

use super::pages::PageCounter;
use super::shared::Shared;

/// Takes a sample every `interval` until the other end of `alive` is gone, and a last one then.
///
/// It goes on while the file is made durable: only then does the page cache empty itself.
pub(super) fn run(
    shared: &Shared<'_>,
    file: &File,
    resumed: Bytes,
    interval: Duration,
    alive: &Receiver<()>,
) {
    let cpu = host::thread_cpu_time();
    let mut pages = PageCounter::new(file);
    let (mut due, mut samples) = (Instant::now(), 0);
    loop {
        shared.emit(&Event::Sample(take(shared, resumed, &mut pages)));
        samples += 1;
        // From the time that it was due, so that the interval does not drift; what was missed is not made up for.
        due = (due + interval).max(Instant::now());
        if alive.recv_deadline(due) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    shared.emit(&Event::Sample(take(shared, resumed, &mut pages)));
    shared.emit(&Event::Sampled { samples: samples + 1, cpu: host::thread_cpu_time() - cpu });
}

fn take(shared: &Shared<'_>, resumed: Bytes, pages: &mut PageCounter<'_>) -> Sample {
    let (streams, sockets) = shared.read_sockets();
    Sample {
        moved: shared.received_so_far(),
        sockets,
        streams,
        segments: Some(shared.pool.usage()),
        written: Some(shared.checkpoint.written() - resumed),
        page_cache: pages.fresh(shared.start.elapsed()),
    }
}
