//! Gains the privileges for network namespaces, by a user namespace where needed.

use longhaul_sys::netns;
use rustix::thread::CapabilitySet;

use crate::error::LabError;

/// Makes a process without the privilege root in a user namespace of its own, so that it may build a lab.
///
/// Does nothing for a process that has CAP_SYS_ADMIN and CAP_NET_ADMIN; root in a container often lacks
/// them. Call it before the process starts a thread.
///
/// # Errors
/// Fails where the kernel does not let this user make namespaces, or the process has threads.
pub fn gain_privilege() -> Result<(), LabError> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    netns::become_root_in_user_namespace().map_err(|cause| LabError::Privilege { missing, cause })
}

/// Names those that a lab needs and the calling thread lacks; all where it cannot be known.
fn missing_capabilities() -> String {
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed = [("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN), ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN)];
    let missing: Vec<_> =
        needed.into_iter().filter(|(_, set)| !has.contains(*set)).map(|(name, _)| name).collect();
    missing.join(" and ")
}
