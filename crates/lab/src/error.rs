//! Errors of the lab.
//!
//! Each message includes the cause, so no error has a `source`.

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use longhaul_core::failure::{Failure, FailureKind};
use thiserror::Error;

/// What to do where this user cannot create namespaces.
pub(crate) const USER_NAMESPACES: &str = "as a user who may make user namespaces (sysctl \
     kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0)";

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
    /// The server command did not listen on its port.
    #[error("nothing listens on port {port} of the server host: {why}")]
    NotListening {
        /// The TCP port.
        port: u16,
        /// What happened instead.
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
    /// Another operation failed; [`FailureKind::Denied`] if this machine does not permit labs.
    #[error(transparent)]
    Failed(Failure),
    /// The caller requested a stop.
    #[error("interrupted; the same command goes on from here")]
    Interrupted,
}

impl LabError {
    pub(crate) fn failed(kind: FailureKind, message: String) -> Self {
        Self::Failed(Failure::new(kind, message))
    }

    /// Returns the function that makes an error of an operation, which reads "cannot `what`".
    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::failed(FailureKind::Host, format!("cannot {what}: {cause}"))
    }

    /// Creates the error of a namespace that cannot be created.
    pub(crate) fn namespace(what: &str, cause: &io::Error) -> Self {
        let message = format!("cannot make {what}: {cause}. Run as root (sudo), or {USER_NAMESPACES}");
        Self::failed(FailureKind::Denied, message)
    }

    /// Creates the error of a job for the thread inside the namespaces, which has ended: a job
    /// panicked on it.
    pub(crate) fn worker_gone() -> Self {
        let message = "the lab's thread inside the namespaces has ended: an operation run there panicked";
        Self::failed(FailureKind::Host, message.to_owned())
    }

    /// Returns the function that makes the error of a file that cannot be read.
    pub(crate) fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::failed(FailureKind::NotFound, format!("cannot read {}: {cause}", path.display()))
    }

    /// Returns the function that makes the error of a file that cannot be written.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self::failed(FailureKind::Disk, format!("cannot write {}: {cause}", path.display()))
    }

    /// Returns the function that makes the error of a file or directory that cannot be created,
    /// whose path `option` sets.
    pub fn create(path: &Path, option: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| {
            let message =
                format!("cannot create {}: {cause}; choose another place with {option}", path.display());
            Self::failed(FailureKind::CannotCreate, message)
        }
    }

    /// Creates the error of an invalid scenario file; `why` has position and reason.
    pub(crate) fn scenario(path: &Path, why: &str) -> Self {
        Self::failed(FailureKind::Usage, format!("{}: {why}", path.display()))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Failed(failure) => failure.kind,
            Self::Spec { .. } => FailureKind::Usage,
            Self::Interrupted => FailureKind::Interrupted,
            Self::Setting { .. } | Self::Spawn { .. } | Self::NotListening { .. } | Self::Shell { .. } => {
                FailureKind::Host
            }
        }
    }
}
