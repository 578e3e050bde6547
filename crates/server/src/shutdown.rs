//! Stops a server: the phases of its life, the handle that raises them, and the wait for transfers
//! in progress.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::context::ServerContext;

/// How long [`Stopper::end`] lets connections close and uploads sync what they have received.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);

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

    /// Stops accepting, closes idle connections, and lets replies in progress finish within
    /// [`crate::Timeouts::grace`].
    pub fn finish(&self) {
        self.raise(ServerPhase::Finishing);
    }

    /// Cuts every connection at once; waits half a second for the disks of uploads.
    pub fn end(&self) {
        self.raise(ServerPhase::Aborted);
    }

    fn raise(&self, to: ServerPhase) {
        self.phase.send_if_modified(|phase| std::mem::replace(phase, to.max(*phase)) < to);
    }
}

/// Waits until `stopper` stops the server. Lets replies in progress finish, then cuts the remaining
/// connections and makes received bytes durable.
pub(crate) async fn shut_down(
    stopper: &Stopper,
    files: &ServerContext,
    metrics: &ServerContext,
    mut accepting: JoinSet<()>,
) {
    let mut phase = stopper.phase();
    // `stopper` lives until this returns, so waiting for its phase cannot fail.
    let _ = phase.wait_for(|phase| *phase != ServerPhase::Running).await;
    let drained = async || {
        files.connection_slots.drained().await;
        metrics.connection_slots.drained().await;
    };
    tokio::select! {
        () = drained() => {}
        () = tokio::time::sleep(files.timeouts.grace) => {}
        _ = phase.wait_for(|phase| *phase >= ServerPhase::Ended) => {}
    }
    stopper.raise(ServerPhase::Ended);
    // Closes the sockets, whose ports are free even where the process cannot end: the kernel does
    // not end a thread that waits for some file systems.
    accepting.shutdown().await;
    let ended = async {
        // Every task drops its connection before the runtime shuts down.
        drained().await;
        // Received bytes are made durable, so that uploads can be resumed.
        if let Some(uploads) = &files.services.uploads {
            uploads.drained().await;
        }
    };
    let aborted = async {
        let _ = phase.wait_for(|phase| *phase == ServerPhase::Aborted).await;
        tokio::time::sleep(ABORT_TIMEOUT).await;
    };
    tokio::select! {
        () = ended => {}
        () = aborted => tracing::warn!("transfers that wait for a disk are cut off"),
    }
}
