//! The limit of open connections: at the limit, a new connection evicts the longest idle one.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

/// How long an evicted connection has to close before the next idle one is evicted too.
const EVICTION_TIMEOUT: Duration = Duration::from_millis(50);

/// Slots for connections, and a queue of the idle ones.
///
/// A connection is idle while it waits for a request or for a TLS handshake. Connections with a reply
/// in progress are never evicted.
pub(crate) struct ConnectionLimit {
    limit: usize,
    slots: Arc<Semaphore>,
    idle: Mutex<IdleQueue>,
}

/// Idle connections by the order in which they became idle.
#[derive(Default)]
struct IdleQueue {
    next: u64,
    evictions: BTreeMap<u64, oneshot::Sender<()>>,
}

/// An idle connection's entry in the queue, removed on drop.
struct IdleEntry<'a> {
    limit: &'a ConnectionLimit,
    number: u64,
}

impl ConnectionLimit {
    /// Allows `limit` connections at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, slots: Arc::new(Semaphore::new(limit)), idle: Mutex::default() }
    }

    /// Takes a slot; evicts idle connections, the longest idle first, until one is free.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let mut slot = pin!(Arc::clone(&self.slots).acquire_owned());
        loop {
            if self.slots.available_permits() == 0 {
                self.evict_longest_idle();
            }
            if let Ok(slot) = timeout(EVICTION_TIMEOUT, &mut slot).await {
                // The semaphore is never closed.
                return slot.ok();
            }
        }
    }

    /// Waits until every connection has closed.
    pub(crate) async fn drained(&self) {
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.slots.acquire_many(all).await;
    }

    /// Runs `peer` while its connection counts as idle; `None` where the connection is evicted first.
    pub(crate) async fn while_idle<T>(&self, peer: impl Future<Output = T>) -> Option<T> {
        let (sender, evicted) = oneshot::channel();
        let entry = self.enqueue(sender);
        let mut peer = pin!(peer);
        let output = tokio::select! {
            biased;
            output = &mut peer => Some(output),
            // Only `entry` drops the sender, so an error cannot occur here.
            _ = evicted => None,
        };
        drop(entry);
        output
    }

    fn evict_longest_idle(&self) {
        if let Some((_, sender)) = self.lock().evictions.pop_first() {
            // A connection that just became busy ignores this; the next call evicts another.
            let _ = sender.send(());
        }
    }

    fn enqueue(&self, sender: oneshot::Sender<()>) -> IdleEntry<'_> {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.evictions.insert(number, sender);
        IdleEntry { limit: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, IdleQueue> {
        // Nothing panics while the lock is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdleEntry<'_> {
    fn drop(&mut self) {
        self.limit.lock().evictions.remove(&self.number);
    }
}
