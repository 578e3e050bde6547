//! Connections that wait for their peer to ask for something: they go first where room is needed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Those that wait, the longest first.
#[derive(Default)]
pub(crate) struct Waiting {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    next: u64,
    places: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place in the queue, left when dropped.
struct Place<'a> {
    waiting: &'a Waiting,
    number: u64,
}

impl Waiting {
    /// Waits for `peer`; `None` where the connection must make room for another before it comes.
    pub(crate) async fn wait<T>(&self, peer: impl Future<Output = T>) -> Option<T> {
        let (sender, told) = oneshot::channel();
        let place = self.enter(sender);
        let mut peer = pin!(peer);
        let came = tokio::select! {
            biased;
            came = &mut peer => Some(came),
            // The sender goes with the place only, and so never unheard.
            _ = told => None,
        };
        drop(place);
        came
    }

    /// Tells the one that has waited longest to make room, if any waits.
    pub(crate) fn make_room(&self) {
        if let Some((_, sender)) = self.lock().places.pop_first() {
            // Whoever has just stopped waiting will be told the next time.
            let _ = sender.send(());
        }
    }

    fn enter(&self, sender: oneshot::Sender<()>) -> Place<'_> {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.places.insert(number, sender);
        Place { waiting: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.lock().places.remove(&self.number);
    }
}
