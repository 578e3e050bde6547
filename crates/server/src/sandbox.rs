//! Gives up what a server that listens does not need: capabilities, and all files but those it
//! serves or reads again.
//!
//! A bug in the parsing of names or requests then opens nothing else, and starts no program.
//! Landlock, the filter of system calls and capabilities belong to threads: what is given up is
//! given up by the calling thread and by those that it starts.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use longhaul_engine::input_file;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The rules that this module knows; older kernels enforce fewer of them.
const KNOWN: ABI = ABI::V7;

/// What the server reads besides files: its own descriptors, the mount table, TCP's settings,
/// counters of memory and of interfaces.
const SYSTEM: [&str; 4] = ["/proc", "/sys/class/net", "/sys/fs/cgroup", "/dev/urandom"];

/// Capabilities for files of other users.
const FOR_FILES: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// Keeps programs that the calling thread and those that it starts may run from getting further
/// privileges: no_new_privs, and an empty bounding set. Their own capabilities are untouched.
///
/// # Errors
/// What the kernel says. Without CAP_SETPCAP the bounding set stays, and has no effect.
pub fn forbid_new_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    let each = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    // The kernel knows no capability from the first error on.
    let bounding = each.map_while(|one| Some((one, capability_is_in_bounding_set(one).ok()?)));
    for (one, _) in bounding.filter(|(_, is_in)| *is_in) {
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            Err(Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Gives up all capabilities of the calling thread, and of those that it starts.
///
/// # Errors
/// What the kernel says.
pub fn drop_capabilities() -> io::Result<()> {
    keep_capabilities(CapabilitySet::empty())
}

/// Runs `start` in a thread that has only capabilities for files of other users; the threads that
/// it starts have no others either.
pub fn with_file_capabilities<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if let Err(error) = keep_capabilities(FOR_FILES) {
            tracing::warn!(%error, "a thread keeps capabilities that it does not need");
        }
        start()
    };
    let outcome = std::thread::scope(|threads| threads.spawn(run).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn keep_capabilities(needed: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    let sets = CapabilitySets {
        effective: held.effective & needed,
        permitted: held.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// What a server needs once it listens.
#[derive(Debug, Clone)]
pub struct Confinement {
    root: PathBuf,
    is_writable: bool,
    /// Files that are read again when they change.
    renewed: Vec<PathBuf>,
    changes_network: bool,
}

/// What a confined thread could give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confined {
    /// Files elsewhere cannot be opened, and no TCP socket can be bound or connected.
    ToServedFiles,
    /// The kernel enforces only some of the rules: those for files, and not all that later kernels
    /// have.
    Partially,
    /// The kernel has no Landlock: only capabilities are given up.
    CapabilitiesOnly,
}

impl Confinement {
    pub(crate) fn new(root: &Path, is_writable: bool, renewed: Vec<PathBuf>, changes_network: bool) -> Self {
        Self { root: root.to_owned(), is_writable, renewed, changes_network }
    }

    /// Confines the calling thread, and those that it starts from now on; warns of files that these
    /// cannot read again.
    ///
    /// # Errors
    /// What the kernel says, but for a missing Landlock.
    pub fn apply(&self) -> io::Result<Confined> {
        self.keep_needed_capabilities()?;
        let status = self.restrict_files().map_err(io::Error::other)?;
        self.warn_of_unreadable();
        forbid_system_calls()?;
        Ok(match status.ruleset {
            RulesetStatus::NotEnforced => Confined::CapabilitiesOnly,
            RulesetStatus::PartiallyEnforced => Confined::Partially,
            RulesetStatus::FullyEnforced => Confined::ToServedFiles,
        })
    }

    /// Keeps only capabilities for files of other users, and for routes and congestion controls
    /// where they are changed.
    fn keep_needed_capabilities(&self) -> io::Result<()> {
        let mut needed = CapabilitySet::DAC_READ_SEARCH;
        if self.is_writable {
            needed |= FOR_FILES;
        }
        if self.changes_network {
            needed |= CapabilitySet::NET_ADMIN;
        }
        keep_capabilities(needed)
    }

    /// Warns of files whose change would have no effect: the process may have another user than
    /// when it read them.
    fn warn_of_unreadable(&self) {
        for file in &self.renewed {
            if let Err(error) = input_file::open(file) {
                let path = file.display();
                tracing::warn!(
                    %path,
                    %error,
                    "this file cannot be read again: a change has no effect until a restart; let the server's user read it"
                );
            }
        }
    }

    fn restrict_files(&self) -> Result<RestrictionStatus, RulesetError> {
        let (read, all) = (AccessFs::from_read(KNOWN) & !AccessFs::Execute, AccessFs::from_all(KNOWN));
        let served = if self.is_writable { all & !AccessFs::Execute } else { read };
        let renewed = self.renewed.iter().flat_map(|file| places(file));
        Ruleset::default()
            .handle_access(all)?
            // The sockets are bound already, and the server connects to none.
            .handle_access(AccessNet::from_all(KNOWN))?
            .scope(Scope::from_all(KNOWN))?
            .create()?
            .add_rules(path_beneath_rules([&self.root], served))?
            .add_rules(path_beneath_rules(renewed, AccessFs::ReadFile))?
            .add_rules(path_beneath_rules(SYSTEM, read))?
            .restrict_self()
    }
}

/// Lists system calls by the C library's names of their numbers.
macro_rules! system_calls {
    ($($name:ident)+) => { [$(libc::$name),+] };
}

/// System calls that no thread of the server makes, and that an attacker's code in its process
/// could use: they start programs, look into other processes, change namespaces, mounts, users,
/// keys, clocks and the kernel, and call it without a filter's sight (io_uring).
///
/// Those that are allowed are not listed: the C library and the runtime use others from version to
/// version.
const FORBIDDEN: &[libc::c_long] = &system_calls![
    SYS_execve SYS_execveat
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp
    SYS_unshare SYS_setns SYS_chroot SYS_pivot_root SYS_mknodat SYS_open_by_handle_at
    SYS_mount SYS_umount2 SYS_move_mount SYS_open_tree SYS_mount_setattr SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
    SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid
    SYS_keyctl SYS_add_key SYS_request_key
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot
    SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_personality
    SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime SYS_sethostname SYS_setdomainname
];

/// Makes [`FORBIDDEN`] fail with EPERM in the calling thread, and in those that it starts.
fn forbid_system_calls() -> io::Result<()> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let rules = FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let denied = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Returns the directories in which a file is replaced: its own, and that of the file which it
/// links to.
fn places(file: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(file).ok();
    let linked = file.canonicalize().ok();
    let above = [absolute, linked].into_iter().flatten();
    above
        .filter_map(|path| path.parent().filter(|above| above.parent().is_some()).map(Path::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind;

    use landlock::{CompatLevel, Compatible};

    use super::*;

    /// Runs `test` in a thread that is confined; `None` where the kernel has no Landlock.
    fn confined<T: Send>(confinement: &Confinement, test: impl FnOnce() -> T + Send) -> Option<T> {
        let run = || (confinement.apply().unwrap() != Confined::CapabilitiesOnly).then(test);
        let outcome = std::thread::scope(|threads| threads.spawn(run).join().unwrap());
        if outcome.is_none() {
            println!("skipped: this kernel has no Landlock");
        }
        outcome
    }

    #[test]
    fn only_served_and_renewed_files_can_be_opened() {
        let [served, beside, elsewhere] = [0; 3].map(|_| tempfile::tempdir().unwrap());
        for dir in [&served, &beside, &elsewhere] {
            fs::write(dir.path().join("f"), "content").unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.path().join("f"), served.path().join("out")).unwrap();
        let renewed = vec![beside.path().join("f")];
        let confinement = Confinement::new(served.path(), false, renewed, false);
        // Rules for TCP sockets need ABI 4 (Linux 6.7).
        let network = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let has_network_rules = network.handle_access(AccessNet::from_all(KNOWN)).is_ok();
        let test = || {
            assert_eq!(fs::read(served.path().join("f")).unwrap(), b"content");
            // A renewal replaces the file.
            assert_eq!(fs::read(beside.path().join("f")).unwrap(), b"content");
            assert!(File::open("/proc/self/mountinfo").is_ok());
            for (opened, what) in [
                (File::open(elsewhere.path().join("f")), "elsewhere"),
                (File::open(served.path().join("out")), "through a symbolic link"),
                (File::open("/etc/passwd"), "a file of the host"),
                (File::create(served.path().join("new")), "it is only read"),
                (File::create(beside.path().join("f")), "it is only read"),
                (File::open(beside.path()), "only its files are read"),
                (std::thread::spawn(|| File::open("/etc/passwd")).join().unwrap(), "in a further thread"),
            ] {
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::PermissionDenied, "{what}");
            }
            let user = rustix::thread::set_thread_uid(rustix::process::getuid());
            assert_eq!(user, Err(Errno::PERM), "a system call that is not needed");
            if has_network_rules {
                let connected = std::net::TcpStream::connect("127.0.0.1:9");
                assert_eq!(connected.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
        };
        let _ = confined(&confinement, test);
    }
}
