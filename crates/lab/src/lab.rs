//! A lab: an emulated path and the hosts at its ends.

use std::sync::Arc;

use crate::cross_traffic::CrossTraffic;
use crate::error::LabError;
use crate::host::{Host, HostSide, HostsInner, ObservationOptions};
use crate::link::{DirectionEvidence, PathStats};
use crate::spec::PathSpec;

/// A running emulated path between a client host and a server host.
///
/// Nothing of it is visible outside this process. It is removed, with all commands on its hosts,
/// when the lab and its [`Host`]s and [`Process`](crate::Process)es are dropped, or when this
/// process ends in any way. It leaves no state on disk to clean up.
#[derive(Debug)]
pub struct Lab {
    /// Declared before the path: cross traffic must end first.
    cross: Option<CrossTraffic>,
    inner: Arc<HostsInner>,
}

impl Lab {
    /// Builds and starts a path.
    ///
    /// # Errors
    /// Fails if `spec` is invalid, if namespaces or TUN devices are not permitted, or if the kernel
    /// lacks the requested congestion control.
    pub fn new(spec: PathSpec) -> Result<Self, LabError> {
        Self::observed(spec, &ObservationOptions::default())
    }

    /// Builds and starts a path with the observations of `watch`; they require TUN devices instead
    /// of a plain veth pair.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if a capture file cannot be created.
    pub fn observed(spec: PathSpec, watch: &ObservationOptions) -> Result<Self, LabError> {
        let flows = spec.traffic.cross_flows;
        let mut lab = Self { cross: None, inner: Arc::new(HostsInner::start(spec, watch)?) };
        if flows.count > 0 {
            lab.cross = Some(CrossTraffic::start(flows, &lab.client(), &lab.server())?);
        }
        Ok(lab)
    }

    /// Returns the client.
    pub fn client(&self) -> Host {
        Host { lab: Arc::clone(&self.inner), side: HostSide::Client }
    }

    /// Returns the server.
    pub fn server(&self) -> Host {
        Host { lab: Arc::clone(&self.inner), side: HostSide::Server }
    }

    /// Returns flows and queues of both directions, client to server first, if they are observed;
    /// flushes the captures.
    ///
    /// # Errors
    /// Fails if a capture could not be written.
    pub fn evidence(&self) -> Result<Vec<DirectionEvidence>, LabError> {
        self.inner.evidence().map_err(LabError::host("write a capture"))
    }

    /// Returns the path's specification.
    pub fn spec(&self) -> &PathSpec {
        &self.inner.spec
    }

    /// Returns the path's statistics.
    ///
    /// On a plain veth pair, packets are counted as the kernel passes them, super-packets included.
    ///
    /// # Errors
    /// Fails if a host's device was removed.
    pub fn stats(&self) -> Result<PathStats, LabError> {
        let cross_flows = self.cross.as_ref().map(CrossTraffic::stats).unwrap_or_default();
        Ok(PathStats { cross_flows, ..self.inner.stats()? })
    }
}
