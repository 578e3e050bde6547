//! Errors of the lab.
//!
//! The causes are part of the messages, so they are not given again as an error's `source`.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use thiserror::Error;

/// Why the lab could not do what was asked; names the operation and what to do about it.
#[derive(Debug, Error)]
pub enum LabError {
    /// A path that cannot be.
    #[error("{what}: {why}")]
    Spec {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The caller lacks privilege, and may not make a user namespace in which it has it.
    #[error(
        "{missing} is missing here, and a user namespace that would give it cannot be made: {cause}. Run with \
         {missing} (as root; a container needs --cap-add), or as a user who may make user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)"
    )]
    Privilege {
        /// The capabilities.
        missing: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The caller may not make namespaces.
    #[error(
        "cannot make {what}: {cause}. Run as root (sudo), or as a user who may make user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)"
    )]
    Namespace {
        /// Which namespace.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The kernel, or the container around us, does not let us make TUN devices.
    #[error(
        "cannot make a TUN device from /dev/net/tun: {cause}. TUN is not permitted here: load the module \
         (modprobe tun), run as root or let this user open the device (chmod 0666 /dev/net/tun), or \
         start the container with --device /dev/net/tun --cap-add NET_ADMIN"
    )]
    Tun {
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A network device could not be set up.
    #[error("cannot {what} on the lab's device {device}: {cause}")]
    Device {
        /// Which operation.
        what: &'static str,
        /// The device.
        device: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A setting of the emulated hosts could not be made.
    #[error("cannot set {name} to '{value}' on the {host} host: {cause}{advice}")]
    Setting {
        /// The setting, as sysctl names it.
        name: &'static str,
        /// The value asked for.
        value: String,
        /// Which host.
        host: &'static str,
        /// The kernel's answer.
        cause: io::Error,
        /// What to do; empty, or starting with ". ".
        advice: String,
    },
    /// A thread, a ring or a pipe could not be made.
    #[error("cannot {what}: {cause}")]
    Start {
        /// Which operation.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A command could not be started on a host.
    #[error("cannot start '{program}' on the {host} host: {cause}")]
    Spawn {
        /// The program.
        program: String,
        /// Which host.
        host: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A command could not be waited for or signalled.
    #[error("cannot {what} process {pid}: {cause}")]
    Process {
        /// Which operation.
        what: &'static str,
        /// Its process id, as seen from outside.
        pid: i32,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The thread that acts inside the namespaces has ended; a closure run there panicked.
    #[error("the lab's thread inside the namespaces has ended: an operation run there panicked")]
    WorkerGone,
    /// The server command did not open its port.
    #[error("nothing listens on port {port} of the server host: {why}")]
    NotListening {
        /// The TCP port.
        port: u16,
        /// What was seen instead.
        why: String,
    },
    /// A host's counters could not be read.
    #[error("cannot {what} {path}: {cause}")]
    Counters {
        /// Which operation.
        what: &'static str,
        /// The kernel's file.
        path: &'static str,
        /// The kernel's answer.
        cause: io::Error,
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
        /// The option that names another.
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
    /// A scenario is not as a scenario must be.
    #[error("{path}: {why}")]
    Scenario {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// A scenario's command on the machine, before or after an execution or all of them, failed.
    #[error("the {what} command failed: {status}; {said}")]
    Shell {
        /// Which of them.
        what: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// Where its output is, and the last line of that.
        said: String,
    },
    /// Earlier results cannot be taken up.
    #[error("cannot go on from {path}: {why}. --fresh throws them away, --out chooses another place")]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Earlier results are of something else.
    #[error(
        "{path} holds results of another scenario, or of this one before it was changed. --fresh throws them \
         away, --out chooses another place"
    )]
    OtherScenario {
        /// The file.
        path: PathBuf,
    },
    /// Another experiment writes its results there.
    #[error(
        "another `longhaul lab run` writes to {path}: wait for its end, or choose another place with --out"
    )]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The caller has asked to stop.
    #[error("interrupted; the same command goes on from here")]
    Interrupted,
}

/// The kind of a failure, by which a caller chooses its reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabErrorKind {
    /// What was asked for cannot be: a path or a scenario.
    Usage,
    /// A file to read is missing or cannot be read.
    NoInput,
    /// This machine, or its administrator, does not permit a lab.
    NotPermitted,
    /// Results cannot be created.
    CannotCreate,
    /// Results cannot be written to their end.
    Output,
    /// Earlier results are damaged or too new.
    Data,
    /// This machine lacks something, its kernel refused, or a command on it failed.
    Host,
    /// The caller has asked to stop.
    Interrupted,
}

impl LabError {
    /// Returns what the failure is about.
    pub fn kind(&self) -> LabErrorKind {
        match self {
            Self::Spec { .. } | Self::Scenario { .. } | Self::OtherScenario { .. } => LabErrorKind::Usage,
            Self::Privilege { .. } | Self::Namespace { .. } | Self::Tun { .. } => LabErrorKind::NotPermitted,
            Self::Read { .. } => LabErrorKind::NoInput,
            Self::Create { .. } | Self::Busy { .. } => LabErrorKind::CannotCreate,
            Self::Write { .. } => LabErrorKind::Output,
            Self::Results { .. } => LabErrorKind::Data,
            Self::Interrupted => LabErrorKind::Interrupted,
            Self::Device { .. }
            | Self::Setting { .. }
            | Self::Start { .. }
            | Self::Spawn { .. }
            | Self::Process { .. }
            | Self::NotListening { .. }
            | Self::Counters { .. }
            | Self::Shell { .. }
            | Self::WorkerGone => LabErrorKind::Host,
        }
    }
}
