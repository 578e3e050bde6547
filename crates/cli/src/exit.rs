//! Exit codes, after sysexits(3).

use std::error::Error;
use std::fmt::Display;

use longhaul_agent::client::ClientError;
use longhaul_agent::error::AgentError;
use longhaul_core::failure::{self, FailureKind};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_farm::error::FarmError;
use longhaul_lab::LabError;

use crate::config_file::ConfigError;
use crate::say;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Code(u8);

/// A check has found a problem.
pub(crate) const FOUND: Code = Code(1);
/// Units of a plan have failed.
pub(crate) const UNITS_FAILED: Code = Code(1);
/// The command line is invalid.
pub(crate) const USAGE: Code = of(FailureKind::Usage);
/// The data is invalid.
pub(crate) const DATA: Code = of(FailureKind::Data);
/// An input file does not exist.
pub(crate) const NO_INPUT: Code = of(FailureKind::NotFound);
/// The server is unreachable or cannot serve.
pub(crate) const UNAVAILABLE: Code = of(FailureKind::Unavailable);
/// An internal error of the program.
pub(crate) const SOFTWARE: Code = of(FailureKind::Internal);
/// The host lacks memory or threads.
pub(crate) const OS: Code = of(FailureKind::Host);
/// The output cannot be created.
pub(crate) const CANNOT_CREATE: Code = of(FailureKind::CannotCreate);
/// An error while reading or writing.
pub(crate) const IO: Code = of(FailureKind::Disk);
/// The command's time limit is reached; running it again resumes.
pub(crate) const TEMPORARY: Code = of(FailureKind::Temporary);
/// Access is denied.
pub(crate) const NO_PERMISSION: Code = of(FailureKind::Denied);
/// The configuration requests something unavailable.
pub(crate) const CONFIG: Code = of(FailureKind::Config);
/// Interrupted by Ctrl-C.
pub(crate) const INTERRUPTED: Code = of(FailureKind::Interrupted);

/// Returns the exit code of a kind of failure: that of sysexits(3); 130 for an interruption, as shells report it.
pub(crate) const fn of(kind: FailureKind) -> Code {
    Code(match kind {
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
    })
}

impl Code {
    /// Creates a code from a number of sysexits(3).
    pub(crate) const fn of_number(number: u8) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

/// The message and the code of a failed command.
pub(crate) type Failure = (String, Code);

/// Prints an error; returns its code.
pub(crate) fn said(error: impl Display, code: Code) -> Code {
    say::error(error);
    code
}

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

/// Returns the code of a stopped command: `TEMPORARY` instead of an interruption if the time limit of `cancel` was reached.
pub(crate) fn of_stop(code: Code, cancel: &Cancel) -> Code {
    if code == INTERRUPTED && cancel.is_expired() { TEMPORARY } else { code }
}

/// Prints the error of a command that has not begun, or that was stopped before; returns its code.
pub(crate) fn not_set_up(error: &anyhow::Error, cancel: &Cancel) -> Code {
    said(say::chain(error), of_stop(of_setup(error), cancel))
}

/// Returns the code of invalid options: that of the file they name, if the file is the cause.
fn of_setup(error: &anyhow::Error) -> Code {
    if error.chain().any(|cause| cause.is::<OutputError>()) {
        return CANNOT_CREATE;
    }
    let is_of_file = |cause: &(dyn Error + 'static)| cause.is::<std::io::Error>() || cause.is::<FarmError>();
    if error.chain().any(is_of_file) { of_chain(error) } else { USAGE }
}

/// Operands or options are incompatible or meaningless.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl Error for UsageError {}

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the kind of an error that has one.
fn kind_of(error: &(dyn Error + 'static)) -> Option<FailureKind> {
    (error.downcast_ref().map(LabError::kind))
        .or_else(|| error.downcast_ref().map(|failure: &failure::Failure| failure.kind))
        .or_else(|| error.downcast_ref().map(ClientError::kind))
        .or_else(|| error.downcast_ref().map(AgentError::kind))
        .or_else(|| error.downcast_ref().map(FarmError::kind))
}

/// Returns the code of another command's error: by its root cause, otherwise an I/O error.
pub(crate) fn of_chain(error: &anyhow::Error) -> Code {
    if error.chain().any(|cause| cause.is::<ConfigError>()) {
        return CONFIG;
    }
    if error.chain().any(|cause| cause.is::<UsageError>()) {
        return USAGE;
    }
    if let Some(kind) = error.chain().find_map(kind_of) {
        return of(kind);
    }
    let io_error = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    // Created by this program, not by the kernel: the content of a named file is unusable.
    if io_error.is_some_and(|error| {
        error.kind() == std::io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
    }) {
        return USAGE;
    }
    match io_error.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::NotFound) => NO_INPUT,
        Some(std::io::ErrorKind::PermissionDenied) => NO_PERMISSION,
        Some(std::io::ErrorKind::Interrupted) => INTERRUPTED,
        Some(_) => IO,
        None => SOFTWARE,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::failure::Failure;
    use longhaul_engine::job::TransferError;
    use longhaul_engine::sink::output_error::OutputError;

    use super::*;

    #[test]
    fn panic_of_a_writer_and_what_the_agent_lacks_are_told_apart() {
        let error = TransferError::from(OutputError::from(Failure::panicked("a writer")));
        let full = ClientError::Refused { status: 507, error: Default::default() };
        let silent = ClientError::Silent { pid: 1, waited: std::time::Duration::ZERO };
        let kinds = [error.kind(), full.kind(), silent.kind()];
        assert_eq!(kinds.map(of).map(Code::number), [70, 74, 75]);
    }
}
