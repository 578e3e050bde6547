//! Exit codes, after sysexits(3).

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use longhaul_agent::client::ClientError;
use longhaul_agent::error::AgentError;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::probe::ProbeError;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_farm::error::FarmError;
use longhaul_lab::LabError;

use crate::say;

/// A check has found a problem.
pub(crate) const FOUND: u8 = 1;
/// Units of a plan have failed.
pub(crate) const UNITS_FAILED: u8 = 1;
/// A command of the user cannot be executed; as shells report it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// A command of the user is not found; as shells report it.
pub(crate) const NO_COMMAND: u8 = 127;

/// Returns the exit code of a process that a signal has ended, as shells report it.
pub(crate) fn of_signal(signal: impl TryInto<u8>) -> u8 {
    signal.try_into().map_or(of(FailureKind::Interrupted), |signal| signal.saturating_add(128))
}

/// Returns the exit code of a kind of failure: that of sysexits(3); for an interruption, that of
/// SIGINT.
pub(crate) const fn of(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Usage => 64,
        FailureKind::Data => 65,
        FailureKind::NotFound => 66,
        FailureKind::NoHost => 68,
        FailureKind::Unavailable => 69,
        FailureKind::Internal => 70,
        FailureKind::Host => 71,
        FailureKind::CannotCreate => 73,
        FailureKind::Disk => 74,
        FailureKind::Temporary => 75,
        FailureKind::Protocol => 76,
        FailureKind::Denied => 77,
        FailureKind::Config => 78,
        FailureKind::Interrupted => 130,
    }
}

/// Returns the exit code of a command that may have failed; its errors have been printed.
pub(crate) fn of_end(end: Result<(), FailureKind>) -> ExitCode {
    end.map_or_else(|kind| of(kind).into(), |()| ExitCode::SUCCESS)
}

/// Prints an error; returns its exit code.
pub(crate) fn said(error: impl Display, kind: FailureKind) -> ExitCode {
    say::error(error);
    of(kind).into()
}

/// Returns the kind of the failure of a stopped command: temporary instead of an interruption if
/// the time limit of `cancel` was reached.
pub(crate) fn of_stop(kind: FailureKind, cancel: &Cancel) -> FailureKind {
    if kind == FailureKind::Interrupted && cancel.is_expired() { FailureKind::Temporary } else { kind }
}

/// Makes the failure of a command that has not begun, or that was stopped before.
pub(crate) fn not_set_up(error: &anyhow::Error, cancel: &Cancel) -> Failure {
    Failure::new(of_stop(of_setup(error), cancel), say::chain(error))
}

/// Returns the kind of invalid options: that of the file they name, if the file is the cause.
fn of_setup(error: &anyhow::Error) -> FailureKind {
    if error.chain().any(|cause| cause.is::<OutputError>()) {
        return FailureKind::CannotCreate;
    }
    let is_of_file = |cause: &(dyn Error + 'static)| cause.is::<io::Error>() || cause.is::<FarmError>();
    if error.chain().any(is_of_file) { of_chain(error) } else { FailureKind::Usage }
}

/// Returns the kind of an error that has one.
fn kind_of(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    (error.downcast_ref().map(|failure: &Failure| failure.kind))
        .or_else(|| error.downcast_ref().map(LabError::kind))
        .or_else(|| error.downcast_ref().map(ClientError::kind))
        .or_else(|| error.downcast_ref().map(AgentError::kind))
        .or_else(|| error.downcast_ref().map(FarmError::kind))
        .or_else(|| error.downcast_ref().map(ProbeError::kind))
}

/// Returns the kind of another command's error: by its root cause, otherwise that of an I/O error.
pub(crate) fn of_chain(error: &anyhow::Error) -> FailureKind {
    if let Some(kind) = error.chain().find_map(kind_of) {
        return kind;
    }
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    // Created by this program, not by the kernel: the content of a named file is unusable.
    if io_error.is_some_and(|error| error.kind() == ErrorKind::InvalidInput && error.raw_os_error().is_none())
    {
        return FailureKind::Usage;
    }
    match io_error.map(io::Error::kind) {
        Some(ErrorKind::NotFound) => FailureKind::NotFound,
        Some(ErrorKind::PermissionDenied) => FailureKind::Denied,
        Some(ErrorKind::Interrupted) => FailureKind::Interrupted,
        Some(_) => FailureKind::Disk,
        None => FailureKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_engine::job::TransferError;

    use super::*;

    #[test]
    fn panic_of_a_writer_and_what_the_agent_lacks_are_told_apart() {
        let error = TransferError::from(OutputError::from(Failure::panicked("a writer")));
        let full = ClientError::Refused { status: 507, error: Default::default() };
        let silent = ClientError::Silent { pid: 1, waited: std::time::Duration::ZERO };
        let kinds = [error.kind(), full.kind(), silent.kind()];
        assert_eq!(kinds.map(of), [70, 74, 75]);
    }
}
