//! Namespaces of the calling thread: network, mount and user.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::mount::MountPropagationFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Moves the calling thread into a new network namespace, and returns its handle.
///
/// The namespace has no name: the kernel removes it and its devices with its last thread and
/// handle.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOSPC at the limit of namespaces.
pub fn enter_new_network() -> io::Result<OwnedFd> {
    // SAFETY: NEWNET changes which devices the thread sees, nothing that memory safety rests on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into the network namespace of `handle`.
///
/// # Errors
/// The kernel's error without CAP_SYS_ADMIN, and if `handle` is not a network namespace.
pub fn enter_network(handle: impl AsFd) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Moves the calling thread into a new mount namespace whose mounts do not propagate to the old
/// one.
///
/// The thread also gets a separate working directory and umask.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn enter_new_mounts() -> io::Result<()> {
    // SAFETY: NEWNS (which implies FS) gives the thread its own mounts and working directory; no
    // memory safety rests on either.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", private)?)
}

/// Moves the process into a new user namespace in which it is root.
///
/// If the process may map further ids (root, or a user with ranges in `/etc/subuid` and
/// `/etc/subgid` and `newuidmap` installed), programs in the namespace can change to other users;
/// otherwise it has only one user.
///
/// # Errors
/// EINVAL if the process has a second thread; EPERM or ENOSPC if the kernel does not let this user
/// create namespaces.
pub fn become_root_in_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mapper = IdMapper::start(uid, gid);
    // SAFETY: NEWUSER changes credentials only, and the kernel refuses it to a process with
    // threads.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    if mapper.is_ok_and(IdMapper::map) {
        return Ok(());
    }
    // The shell may have failed after writing a map, which cannot be written twice; `setgroups`
    // cannot be written once groups are mapped.
    if is_unmapped("/proc/self/uid_map")? {
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    }
    if is_unmapped("/proc/self/gid_map")? {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    Ok(())
}

fn is_unmapped(map: &str) -> io::Result<bool> {
    Ok(fs::read_to_string(map)?.trim().is_empty())
}

/// A shell outside the new user namespace: only a process there may map ids other than its own.
struct IdMapper {
    shell: Child,
}

impl IdMapper {
    /// Starts the shell, which waits for the end of its standard input.
    fn start(uid: u32, gid: u32) -> io::Result<Self> {
        const ROOT: &str = "read -r _; p=/proc/$1; cat $p/setgroups >/dev/null && \
            awk '{n=$1+$3; if (n>m) m=n} END {printf \"0 0 %d\", m}' /proc/self/gid_map >$p/gid_map && \
            awk '{n=$1+$3; if (n>m) m=n} END {printf \"0 0 %d\", m}' /proc/self/uid_map >$p/uid_map";
        const USER: &str = "read -r _; name=$(id -un); \
            range() { awk -F: -v n=\"$name\" -v i=\"$2\" '$1==n || $1==i {print $2, $3; exit}' \"$1\"; }; \
            u=$(range /etc/subuid \"$2\"); g=$(range /etc/subgid \"$2\"); [ -n \"$u\" ] && [ -n \"$g\" ] && \
            newuidmap $1 0 $2 1 1 $u && newgidmap $1 0 $3 1 1 $g";
        let script = if uid == 0 { ROOT } else { USER };
        let own = std::process::id().to_string();
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", &own, &uid.to_string(), &gid.to_string()]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { shell: shell.spawn()? })
    }

    /// Makes the shell map the ids of the process's current namespace; returns whether it
    /// succeeded.
    fn map(mut self) -> bool {
        drop(self.shell.stdin.take());
        self.shell.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for IdMapper {
    /// Ends a shell that has nothing to map.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// Runs `job` on a thread in a new network namespace, or says why there is none.
    pub(crate) fn in_new_network(job: impl FnOnce() + Send + 'static) {
        let work = move || match super::enter_new_network() {
            Ok(_) => job(),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
                println!("skipped: {why}");
            }
        };
        std::thread::spawn(work).join().unwrap();
    }
}
