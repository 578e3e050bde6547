//! Events for clients: changes of transfers, serialised once for all receivers.

use std::sync::Arc;

use tokio::sync::broadcast;

/// The number of messages that a slow client may lag before it receives `resync` and must reload.
const MAX_LAG: usize = 1024;

/// A message to clients: `transfer`, `progress`, `removed`, `stats`, `samples`, or `resync` after
/// changes without messages of their own, so that the list must be read again.
#[derive(Debug, Clone)]
pub(crate) struct AgentEvent {
    pub(crate) name: &'static str,
    /// The transfer of samples, which only its watchers receive.
    pub(crate) of: Option<i64>,
    /// JSON.
    pub(crate) data: Arc<str>,
}

/// The name of the message that a transfer has changed.
pub(crate) const TRANSFER: &str = "transfer";
/// The name of the last message, which clients do not receive: the agent stops.
pub(crate) const STOPPING: &str = "stopping";

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

    /// Sends a message, whose JSON is created only if a client is subscribed.
    pub(crate) fn send(&self, name: &'static str, data: impl FnOnce() -> String) {
        self.send_of(name, None, data);
    }

    /// Sends a message as [`send`](Self::send) does, to the watchers of a transfer if one is given.
    pub(crate) fn send_of(&self, name: &'static str, of: Option<i64>, data: impl FnOnce() -> String) {
        if self.has_receivers() {
            // Fails only if the last client has just unsubscribed.
            let _ = self.0.send(AgentEvent { name, of, data: data().into() });
        }
    }

    /// Requests clients to read the list again, after changes for which no messages of single
    /// transfers were sent.
    pub(crate) fn resync(&self) {
        self.send("resync", || "{}".to_owned());
    }

    /// Subscribes a client.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<AgentEvent> {
        self.0.subscribe()
    }
}
