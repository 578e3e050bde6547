//! A lab: the emulated path and the two hosts at its ends.

use std::sync::Arc;

use crate::cross_traffic::CrossTraffic;
use crate::error::LabError;
use crate::host::{Host, HostSide, HostsInner, Watch};
use crate::link::{DirectionEvidence, PathStats};
use crate::spec::PathSpec;

/// An emulated path between two hosts, the client and the server, running.
///
/// Nothing of it has a name outside this process. It goes, with every command on its hosts, when the lab and
/// its [`Host`]s and [`Process`](crate::Process)es are dropped or this process ends, however it ends;
/// there is no state on disk, so a later start has nothing to clean up.
#[derive(Debug)]
pub struct Lab {
    /// Before the path, which it must not outlive.
    cross: Option<CrossTraffic>,
    inner: Arc<HostsInner>,
}

impl Lab {
    /// Builds the path and starts it.
    ///
    /// # Errors
    /// Fails where `spec` is not a path, where namespaces or TUN devices are not permitted, and where
    /// the kernel lacks the congestion control asked for.
    pub fn new(spec: PathSpec) -> Result<Self, LabError> {
        Self::watched(spec, &Watch::default())
    }

    /// Builds the path and starts it, watched as `watch` says: hosts that a plain veth pair would join have a TUN device then.
    ///
    /// # Errors
    /// As [`new`](Self::new), and where a capture cannot be created.
    pub fn watched(spec: PathSpec, watch: &Watch) -> Result<Self, LabError> {
        let flows = spec.cross_flows;
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

    /// Returns the flows and queues of both directions, client to server first, where they are watched; writes captures to
    /// their files.
    ///
    /// # Errors
    /// Fails where a capture could not be written.
    pub fn evidence(&self) -> Result<Vec<DirectionEvidence>, LabError> {
        self.inner.evidence().map_err(|cause| LabError::Start { what: "write a capture", cause })
    }

    /// Returns what the path was asked to be.
    pub fn spec(&self) -> &PathSpec {
        &self.inner.spec
    }

    /// Returns what the path has done so far.
    ///
    /// Between hosts joined by a plain veth pair, packets are the kernel's, super-packets among them.
    ///
    /// # Errors
    /// Fails where a host's device was removed.
    pub fn stats(&self) -> Result<PathStats, LabError> {
        let cross_flows = self.cross.as_ref().map(CrossTraffic::stats).unwrap_or_default();
        Ok(PathStats { cross_flows, ..self.inner.stats()? })
    }
}
