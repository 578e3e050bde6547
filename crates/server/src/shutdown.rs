//! The phases of a server's life, and the handle that raises them.

use tokio::sync::watch;

/// Phases of a server's life, in order; a server never returns to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// Accepts connections.
    Running,
    /// Completes transfers in progress; accepts no other connection or request.
    Finishing,
    /// Cuts the remaining connections; makes received bytes durable.
    Ended,
    /// Waits for no disk any more.
    Aborted,
}

/// Stops a running server; clones stop the same server.
#[derive(Debug, Clone)]
pub struct Stopper {
    phase: watch::Sender<ServerPhase>,
}

impl Stopper {
    pub(crate) fn new() -> Self {
        Self { phase: watch::Sender::new(ServerPhase::Running) }
    }

    pub(crate) fn phase(&self) -> watch::Receiver<ServerPhase> {
        self.phase.subscribe()
    }

    /// Stops accepting, closes idle connections, and lets replies in progress finish within [`crate::Timeouts::grace`].
    pub fn finish(&self) {
        self.raise(ServerPhase::Finishing);
    }

    /// Cuts every connection at once; waits half a second for the disks of uploads.
    pub fn end(&self) {
        self.raise(ServerPhase::Aborted);
    }

    pub(crate) fn raise(&self, to: ServerPhase) {
        self.phase.send_if_modified(|phase| std::mem::replace(phase, to.max(*phase)) < to);
    }
}
