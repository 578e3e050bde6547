//! Errors of the lab.
//!
//! Each message includes the cause, so no error has a `source`.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use longhaul_core::failure::FailureKind;
use thiserror::Error;

/// An operation of the lab failed; the message names the operation and the remedy.
#[derive(Debug, Error)]
pub enum LabError {
    /// The path's specification is invalid.
    #[error("{what}: {why}")]
    Spec {
        /// The invalid field.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The process lacks capabilities, and cannot create a user namespace to gain them.
    #[error(
        "{missing} is missing here, and a user namespace that would give it cannot be made: {cause}. Run with \
         {missing} (as root; a container needs --cap-add), or as a user who may make user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)"
    )]
    Privilege {
        /// The missing capabilities.
        missing: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The process may not create namespaces.
    #[error(
        "cannot make {what}: {cause}. Run as root (sudo), or as a user who may make user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)"
    )]
    Namespace {
        /// The type of namespace.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel or the enclosing container forbids TUN devices.
    #[error(
        "cannot make a TUN device from /dev/net/tun: {cause}. TUN is not permitted here: load the module \
         (modprobe tun), run as root or let this user open the device (chmod 0666 /dev/net/tun), or \
         start the container with --device /dev/net/tun --cap-add NET_ADMIN"
    )]
    Tun {
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A kernel setting of an emulated host could not be changed.
    #[error("cannot set {name} to '{value}' on the {host} host: {cause}{advice}")]
    Setting {
        /// The setting's sysctl name.
        name: &'static str,
        /// The requested value.
        value: String,
        /// The emulated host.
        host: &'static str,
        /// The kernel's answer.
        cause: io::Error,
        /// The remedy; empty, or starting with ". ".
        advice: String,
    },
    /// A thread, ring, pipe, device or process of the lab could not be created, configured, read or signalled.
    #[error("cannot {what}: {cause}")]
    Host {
        /// The operation and its object.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A command could not be started on a host.
    #[error("cannot start '{program}' on the {host} host: {cause}")]
    Spawn {
        /// The program.
        program: String,
        /// The emulated host.
        host: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The worker thread inside the namespaces has ended: a closure panicked on it.
    #[error("the lab's thread inside the namespaces has ended: an operation run there panicked")]
    WorkerGone,
    /// The server command did not listen on its port.
    #[error("nothing listens on port {port} of the server host: {why}")]
    NotListening {
        /// The TCP port.
        port: u16,
        /// What happened instead.
        why: String,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A file or directory of results could not be created.
    #[error("cannot create {path}: {cause}; choose another place with {option}")]
    Create {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
        /// The command-line option that sets the path.
        option: &'static str,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {cause}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A scenario file is invalid.
    #[error("{path}: {why}")]
    Scenario {
        /// The file.
        path: PathBuf,
        /// Position and reason.
        why: String,
    },
    /// A scenario's set-up or clean-up command failed.
    #[error("the {what} command failed: {status}; {said}")]
    Shell {
        /// Which command.
        what: &'static str,
        /// The command's exit status.
        status: ExitStatus,
        /// The file with its output, and the last line.
        said: String,
    },
    /// Programs that a scenario names as its needs are missing.
    #[error("the scenario needs {programs}, missing on this machine: apt-get install {packages}")]
    Programs {
        /// The programs, with commas.
        programs: String,
        /// Their packages.
        packages: String,
    },
    /// Earlier results cannot be resumed.
    #[error("cannot go on from {path}: {why}. --fresh throws them away, --out chooses another place")]
    Results {
        /// The file.
        path: PathBuf,
        /// The damage.
        why: String,
    },
    /// The results belong to another scenario.
    #[error(
        "{path} holds results of another scenario, or of this one before it was changed. --fresh throws them \
         away, --out chooses another place"
    )]
    OtherScenario {
        /// The file.
        path: PathBuf,
    },
    /// Another experiment writes its results to the directory.
    #[error(
        "another `longhaul lab run` writes to {path}: wait for its end, or choose another place with --out"
    )]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The caller requested a stop.
    #[error("interrupted; the same command goes on from here")]
    Interrupted,
}

impl LabError {
    /// Returns the function that makes an error of an operation, which reads "cannot `what`".
    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::Host { what, cause }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Spec { .. } | Self::Scenario { .. } | Self::OtherScenario { .. } => FailureKind::Usage,
            Self::Privilege { .. } | Self::Namespace { .. } | Self::Tun { .. } => FailureKind::Denied,
            Self::Read { .. } => FailureKind::NotFound,
            Self::Create { .. } | Self::Busy { .. } => FailureKind::CannotCreate,
            Self::Write { .. } => FailureKind::Disk,
            Self::Results { .. } => FailureKind::Data,
            Self::Interrupted => FailureKind::Interrupted,
            Self::Setting { .. }
            | Self::Host { .. }
            | Self::Spawn { .. }
            | Self::NotListening { .. }
            | Self::Shell { .. }
            | Self::Programs { .. }
            | Self::WorkerGone => FailureKind::Host,
        }
    }
}
