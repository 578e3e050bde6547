//! Takes samples of everything that can be measured, on a thread of its own, for whoever observes.

use std::fs::File;
use std::time::Duration;

use crossbeam_channel::Receiver;
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;

use super::pages::PageCounter;
use super::shared::Shared;
use crate::telemetry;

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
    let mut pages = PageCounter::new(file);
    let take = || Some(take(shared, resumed, &mut pages));
    telemetry::sample(interval, alive, take, |event| shared.emit(event));
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
