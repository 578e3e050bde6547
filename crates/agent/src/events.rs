//! Events for clients: changes of transfers, serialised once for all receivers.

use std::sync::Arc;

use tokio::sync::broadcast;

/// The number of messages that a slow client may lag before it receives `resync` and must reload.
const MAX_LAG: usize = 1024;

/// A message to clients; the texts are JSON.
#[derive(Debug, Clone)]
pub(crate) enum AgentEvent {
    /// A transfer changed.
    Transfer(Arc<str>),
    /// A transfer moved bytes.
    Progress(Arc<str>),
    /// A transfer was removed from the list.
    Removed(Arc<str>),
    /// The totals.
    Stats(Arc<str>),
    /// Samples of a transfer.
    Samples { id: i64, data: Arc<str> },
    /// Other agents of the farm have changed transfers: the list must be read again.
    Resync,
    /// The agent stops.
    Stopping,
}

/// Sends messages to all subscribed clients.
#[derive(Debug)]
pub(crate) struct Events(broadcast::Sender<AgentEvent>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(MAX_LAG).0)
    }

    /// Returns whether a client is subscribed.
    pub(crate) fn has_receivers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Sends a message, which is created only if a client is subscribed.
    pub(crate) fn send(&self, event: impl FnOnce() -> AgentEvent) {
        if self.has_receivers() {
            // Fails only if the last client has just unsubscribed.
            let _ = self.0.send(event());
        }
    }

    /// Subscribes a client.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<AgentEvent> {
        self.0.subscribe()
    }
}
