//! What uploads have brought, and what lies in their buffers: for whoever measures.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::telemetry::{HostPages, PageCache, Segments};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::journal::Journal;
use longhaul_engine::sink::pages::{HostCounter, PageCounter};
use longhaul_engine::sink::pipeline::Pipeline;

/// All uploads of a server.
#[derive(Default)]
pub(crate) struct Receiving {
    received: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    active: Vec<Active>,
    /// Devices and inodes of the partial files that are held.
    claimed: Vec<(u64, u64)>,
    /// What uploads have written that are over.
    written: Bytes,
    host: HostCounter,
}

struct Active {
    number: u64,
    pipeline: Arc<Pipeline>,
    life: Arc<Life>,
    pages: Option<PageCounter>,
    /// As last counted.
    counted: PageCache,
}

/// Whether an upload's client is still there.
#[derive(Default)]
pub(super) struct Life {
    /// Raised where its connection has gone, the server ends, or its client has come back on another connection.
    pub(super) cancel: Cancel,
    /// When bytes came last; `None` while it is not the client that is waited for.
    heard: Mutex<Option<Instant>>,
}

/// After so long without a byte, a client that comes back is believed that the old connection is dead.
const SILENT: Duration = Duration::from_secs(3);

/// A partial file that nobody else here writes, until dropped.
pub(super) struct Claim {
    receiving: Arc<Receiving>,
    file: (u64, u64),
}

/// An upload's place among them, left when dropped.
pub(super) struct Place {
    receiving: Arc<Receiving>,
    number: u64,
}

/// The buffers behind the sockets, of all uploads under way.
#[derive(Default)]
pub(crate) struct Written {
    /// How many there are.
    pub(crate) uploads: usize,
    pub(crate) segments: Segments,
    /// Bytes handed to the kernel so far, those of uploads that are over included.
    pub(crate) written: Bytes,
}

impl Receiving {
    /// Accounts for bytes of a body.
    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes of bodies so far.
    pub(crate) fn total(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Claims a partial file; `None` where it is another's. Some file systems have no locks that would tell.
    pub(super) fn claim(self: &Arc<Self>, file: (u64, u64)) -> Option<Claim> {
        let mut state = self.lock();
        if state.claimed.contains(&file) {
            return None;
        }
        state.claimed.push(file);
        drop(state);
        Some(Claim { receiving: Arc::clone(self), file })
    }

    /// Enters an upload.
    pub(super) fn enter(self: &Arc<Self>, pipeline: &Arc<Pipeline>, life: &Arc<Life>) -> Place {
        let pages = PageCounter::of(pipeline.part().file());
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let (pipeline, life) = (Arc::clone(pipeline), Arc::clone(life));
        state.active.push(Active { number, pipeline, life, pages, counted: PageCache::default() });
        Place { receiving: Arc::clone(self), number }
    }

    /// Ends the upload to `target` that `is_same`, where nothing has come of it for a while; returns whether it is
    /// ending.
    pub(super) fn end_silent(&self, target: &Path, is_same: impl Fn(&Journal) -> bool) -> bool {
        let state = self.lock();
        let found = state.active.iter().find(|active| {
            active.pipeline.part().target() == target
                && active.pipeline.journal().as_ref().is_some_and(&is_same)
        });
        let ended = |life: &Life| life.cancel.is_cancelled() || life.is_silent(Instant::now());
        let ending = found.filter(|active| ended(&active.life));
        ending.inspect(|active| active.life.cancel.cancel()).is_some()
    }

    /// Looks at the buffers.
    pub(crate) fn look(&self) -> Written {
        let state = self.lock();
        let start = Written { uploads: state.active.len(), written: state.written, ..Written::default() };
        state.active.iter().fold(start, |sum, active| {
            let usage = active.pipeline.pool().usage();
            let segments = Segments {
                in_use: sum.segments.in_use + usage.in_use,
                count: sum.segments.count + usage.count,
                // Alike for all that have not grown: each has an equal share.
                size: usage.size,
            };
            Written { segments, written: sum.written + active.written(), ..sum }
        })
    }

    /// Counts the pages of files under way where that is due, and those of the host; `None` while there are none.
    pub(crate) fn pages(&self, now: Duration) -> (Option<PageCache>, Option<HostPages>) {
        let mut state = self.lock();
        if state.active.is_empty() {
            return (None, None);
        }
        let mut fresh = false;
        for active in &mut state.active {
            if let Some(counted) = active.pages.as_mut().and_then(|pages| pages.fresh(now)) {
                (active.counted, fresh) = (counted, true);
            }
        }
        let sum = state.active.iter().fold(PageCache::default(), |sum, Active { counted, .. }| PageCache {
            cached: sum.cached + counted.cached,
            dirty: sum.dirty + counted.dirty,
            writeback: sum.writeback + counted.writeback,
            evicted: sum.evicted + counted.evicted,
            recently_evicted: sum.recently_evicted + counted.recently_evicted,
        });
        (fresh.then_some(sum), state.host.fresh(now))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    /// Notes that the client was heard, or that something else is waited for.
    pub(super) fn note(&self, heard: Option<Instant>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    /// Returns whether it is the disk that is waited for.
    pub(super) fn is_the_disks(&self) -> bool {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn is_silent(&self, now: Instant) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_some_and(|heard| now.saturating_duration_since(heard) >= SILENT)
    }
}

impl Active {
    fn written(&self) -> Bytes {
        self.pipeline.written() - self.pipeline.resumed()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.receiving.lock().claimed.retain(|file| *file != self.file);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.receiving.lock();
        if let Some(at) = state.active.iter().position(|active| active.number == self.number) {
            let over = state.active.swap_remove(at);
            state.written += over.written();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_claimed_once_at_a_time() {
        let receiving = Arc::new(Receiving::default());
        let first = receiving.claim((1, 2));
        assert!(first.is_some() && receiving.claim((1, 2)).is_none() && receiving.claim((2, 2)).is_some());
        drop(first);
        assert!(receiving.claim((1, 2)).is_some());
    }
}
