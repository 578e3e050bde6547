//! Gains the privileges for network namespaces, in a user namespace if needed.

use longhaul_core::failure::FailureKind;
use longhaul_sys::netns;
use rustix::thread::CapabilitySet;

use crate::error::{LabError, USER_NAMESPACES};

/// Moves an unprivileged process into a new user namespace as root, so that it can build a lab.
///
/// Does nothing if the process has CAP_SYS_ADMIN and CAP_NET_ADMIN; root in a container often lacks
/// them. Must be called before the process starts a thread.
///
/// # Errors
/// Fails if the kernel forbids namespaces to this user, or the process has threads.
pub fn gain_privilege() -> Result<(), LabError> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    netns::become_root_in_user_namespace().map_err(|cause| {
        let message = format!(
            "{missing} is missing here, and a user namespace that would give it cannot be made: {cause}. Run with \
             {missing} (as root; a container needs --cap-add), or {USER_NAMESPACES}"
        );
        LabError::failed(FailureKind::Denied, message)
    })
}

/// Returns the names of the required capabilities that the calling thread lacks; all if unknown.
fn missing_capabilities() -> String {
    let has = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed = [("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN), ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN)];
    let missing: Vec<_> =
        needed.into_iter().filter(|(_, set)| !has.contains(*set)).map(|(name, _)| name).collect();
    missing.join(" and ")
}
