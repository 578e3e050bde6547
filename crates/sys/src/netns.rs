//! Namespaces of the calling thread: network, mount and user.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::mount::MountPropagationFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Moves the calling thread into a new network namespace and returns a handle to it.
///
/// The namespace has no name: the kernel removes it, and its devices, with its last thread and handle.
///
/// # Errors
/// Fails without CAP_SYS_ADMIN (EPERM), and where the kernel allows no more namespaces (ENOSPC).
pub fn enter_new_network() -> io::Result<OwnedFd> {
    // SAFETY: NEWNET changes which devices the thread sees, nothing that memory safety rests on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into the network namespace that `handle` names.
///
/// # Errors
/// Fails without CAP_SYS_ADMIN, and where `handle` is not a network namespace.
pub fn enter_network(handle: impl AsFd) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Moves the calling thread into a new mount namespace whose mounts do not reach the old one.
///
/// The thread gets its own working directory and umask as well.
///
/// # Errors
/// Fails without CAP_SYS_ADMIN.
pub fn enter_new_mounts() -> io::Result<()> {
    // SAFETY: NEWNS (which implies FS) gives the thread its own mounts and working directory; no
    // memory safety rests on either.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", private)?)
}

/// Moves the process into a new user namespace in which it is root, mapped to its present user.
///
/// # Errors
/// Fails once the process has a second thread (EINVAL), and where the kernel does not let this user
/// make namespaces (EPERM, ENOSPC).
pub fn become_root_in_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: NEWUSER changes credentials only, and the kernel refuses it to a process with threads.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
