//! How replies are paced: the server's own `--pace`, and what clients ask for within it.

use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use longhaul_engine::pacing::{Paced, Pacing};

/// A shorter reply is over before a pace is found.
const WORTH_IT: Bytes = Bytes::mib(1);

/// What is in force for every connection of a server.
#[derive(Debug, Clone)]
pub(crate) struct PacePolicy {
    pace: Pace,
    congestion: Option<Arc<str>>,
    pacing: Arc<Pacing>,
}

/// How one connection is paced.
#[derive(Debug, Default)]
pub(crate) struct PacedConnection {
    in_force: Option<Pace>,
    paced: Option<Paced>,
}

impl PacePolicy {
    /// Paces replies as `pace` says, under `congestion` where given.
    pub(crate) fn new(pace: Pace, congestion: Option<&str>) -> Self {
        Self { pace, congestion: congestion.map(Arc::from), pacing: Arc::default() }
    }

    /// Returns the pace of a reply of this length to a client that asks for `asked`; `None` for a short one.
    pub(crate) fn of_reply(&self, length: Bytes, asked: Option<Pace>) -> Option<Pace> {
        (length >= WORTH_IT).then(|| asked.unwrap_or(self.pace).within(self.pace))
    }
}

impl PacedConnection {
    /// Paces what is sent from now on.
    pub(crate) fn begin(&mut self, policy: &PacePolicy, socket: impl AsFd, pace: Pace) {
        if self.in_force.replace(pace) == Some(pace) {
            if let Some(paced) = &self.paced {
                paced.resume();
            }
            return;
        }
        self.paced = None;
        match policy.pacing.take(socket, pace, policy.congestion.as_deref()) {
            Ok(paced) => self.paced = paced,
            Err(error) => tracing::warn!(%pace, "a reply is not paced: {error}"),
        }
    }

    /// Nothing is sent for now.
    pub(crate) fn end(&self) {
        if let Some(paced) = &self.paced {
            paced.rest();
        }
    }
}
