//! Events for clients: changes of transfers, serialised once for all listeners.

use std::sync::Arc;

use tokio::sync::broadcast;

/// How many messages a slow client may lag behind before it gets `resync`, and reads everything anew.
const BEHIND: usize = 1024;

/// A message to clients; the texts are JSON.
#[derive(Debug, Clone)]
pub(crate) enum AgentEvent {
    /// A transfer has changed.
    Transfer(Arc<str>),
    /// A transfer has moved bytes.
    Progress(Arc<str>),
    /// A transfer is no longer in the list.
    Removed(Arc<str>),
    /// The totals.
    Stats(Arc<str>),
    /// Samples of a transfer.
    Samples { id: i64, data: Arc<str> },
    /// The agent ends.
    Stopping,
}

/// Sends messages to all clients that listen.
#[derive(Debug)]
pub(crate) struct Events(broadcast::Sender<AgentEvent>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }

    /// Returns whether a client listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends a message, which is made only where a client listens.
    pub(crate) fn send(&self, event: impl FnOnce() -> AgentEvent) {
        if self.is_heard() {
            // Fails only where the last client has just left.
            let _ = self.0.send(event());
        }
    }

    /// Returns what a client listens by.
    pub(crate) fn listen(&self) -> broadcast::Receiver<AgentEvent> {
        self.0.subscribe()
    }
}
