//! What the caller may do, and more of it where the kernel gives it to anyone.

use longhaul_sys::netns;

use crate::error::LabError;

/// Makes an unprivileged process root in a user namespace of its own, so that it may build a lab.
///
/// Does nothing for root. Call it before the process starts a thread.
///
/// # Errors
/// Fails where the kernel does not let this user make namespaces, or the process has threads.
pub fn gain_privilege() -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    netns::become_root_in_user_namespace()
        .map_err(|cause| LabError::Namespace { what: "a user namespace", cause })
}
