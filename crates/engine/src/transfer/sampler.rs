//! Takes samples of everything that can be measured, on a thread of its own, for whoever observes.

use std::time::Duration;

use crossbeam_channel::Receiver;
use longhaul_core::telemetry::Sample;

use super::shared::Shared;
use crate::sink::pages::{HostCounter, PageCounter};
use crate::telemetry;
use crate::threads::lock;

/// Takes a sample every `interval` until the other end of `alive` is gone, and a last one then.
///
/// It goes on while the file is made durable: only then does the page cache empty itself.
pub(super) fn run(
    shared: &Shared<'_>,
    mut pages: Option<PageCounter>,
    interval: Duration,
    alive: &Receiver<()>,
) {
    let mut host = HostCounter::default();
    let take = |_last| {
        let now = shared.start.elapsed();
        // Before everything else, for counting may take a while, and a sample shall be of one moment.
        let page_cache = pages.as_mut().and_then(|pages| pages.fresh(now));
        if page_cache.is_some() {
            *lock(&shared.pages) = page_cache;
        }
        let host_pages = host.fresh(now);
        let began = shared.start.elapsed();
        let (streams, sockets) = shared.sockets.read();
        Some(Sample {
            began,
            moved: shared.received_so_far(),
            sockets,
            streams,
            segments: Some(shared.pipeline.pool().usage()),
            written: Some(shared.pipeline.written() - shared.pipeline.resumed()),
            page_cache,
            host_pages,
        })
    };
    telemetry::sample(interval, alive, take, |event| shared.emit(event));
}
