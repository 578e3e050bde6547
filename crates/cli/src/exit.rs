//! Exit codes, after sysexits(3).

use longhaul_agent::client::ClientError;
use longhaul_agent::error::{AgentError, DatabaseError};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::failure::FailureKind;
use longhaul_engine::job::TransferError;
use longhaul_engine::probe::ProbeError;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::tree::{TreeError, WalkError};
use longhaul_engine::upload::UploadError;
use longhaul_lab::{LabError, LabErrorKind};
use longhaul_scope::draw::{DrawError, DrawErrorKind};
use longhaul_scope::record::{RecordError, RecordErrorKind};

use crate::config_file::ConfigError;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Code(u8);

/// A check has found a problem.
pub(crate) const FOUND: Code = Code(1);
/// The command line is invalid.
pub(crate) const USAGE: Code = Code(64);
/// The data is invalid.
pub(crate) const DATA: Code = Code(65);
/// An input file does not exist.
pub(crate) const NO_INPUT: Code = Code(66);
/// The server is unreachable or cannot serve.
pub(crate) const UNAVAILABLE: Code = Code(69);
/// An internal error of the program.
pub(crate) const SOFTWARE: Code = Code(70);
/// The host lacks memory or threads.
pub(crate) const OS: Code = Code(71);
/// The output cannot be created.
pub(crate) const CANNOT_CREATE: Code = Code(73);
/// An error while reading or writing.
pub(crate) const IO: Code = Code(74);
/// The other side broke the protocol.
const PROTOCOL: Code = Code(76);
/// Access is denied.
pub(crate) const NO_PERMISSION: Code = Code(77);
/// The command's time limit is reached; running it again resumes.
pub(crate) const TEMPORARY: Code = Code(75);
/// The configuration requests something unavailable.
pub(crate) const CONFIG: Code = Code(78);
/// Interrupted by Ctrl-C, as shells report it.
pub(crate) const INTERRUPTED: Code = Code(130);

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

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        code.0.into()
    }
}

/// Returns the code of a failed transfer.
pub(crate) fn of_transfer(error: &TransferError) -> Code {
    of_kind(error.kind())
}

/// Returns the code of a failed upload.
pub(crate) fn of_upload(error: &UploadError) -> Code {
    of_kind(error.kind())
}

/// Returns the code of a failed probe.
pub(crate) fn of_probe(error: &ProbeError) -> Code {
    of_kind(error.kind())
}

/// Returns the code of a skipped entry of a tree.
pub(crate) fn of_walk(error: &WalkError) -> Code {
    of_kind(error.kind())
}

/// Returns the code of a tree that cannot be started.
pub(crate) fn of_tree(error: &TreeError) -> Code {
    of_kind(error.kind())
}

/// Returns the code of a stopped command: `TEMPORARY` instead of an interruption if the time limit of `cancel` was reached.
pub(crate) fn of_stop(code: Code, cancel: &Cancel) -> Code {
    if code == INTERRUPTED && cancel.is_expired() { TEMPORARY } else { code }
}

fn of_kind(kind: FailureKind) -> Code {
    Code(kind.exit_code())
}

/// Returns the code of an agent that cannot run.
pub(crate) fn of_agent(error: &AgentError) -> Code {
    match error {
        AgentError::Running { .. } => TEMPORARY,
        AgentError::NoHome
        | AgentError::NotLoopback(_)
        | AgentError::Database(DatabaseError::Newer { .. }) => CONFIG,
        AgentError::File { .. } => CANNOT_CREATE,
        AgentError::Listen { .. } => UNAVAILABLE,
        AgentError::Database(_) => IO,
        AgentError::Thread(_) => OS,
    }
}

/// Returns the code of a request that the agent has not carried out.
fn of_client(error: &ClientError) -> Code {
    match error {
        ClientError::NotRunning { .. } => UNAVAILABLE,
        ClientError::Connection(_) | ClientError::Stopped | ClientError::Silent { .. } => TEMPORARY,
        ClientError::Refused { status, .. } => match status {
            400 | 415 | 422 => USAGE,
            401 | 403 | 421 => NO_PERMISSION,
            404 => NO_INPUT,
            409 => DATA,
            _ => IO,
        },
        ClientError::Answer(_) => PROTOCOL,
    }
}

/// Returns the code of a lab error.
fn of_lab(error: &LabError) -> Code {
    match error.kind() {
        LabErrorKind::Usage => USAGE,
        LabErrorKind::NoInput => NO_INPUT,
        LabErrorKind::NotPermitted => NO_PERMISSION,
        LabErrorKind::CannotCreate => CANNOT_CREATE,
        LabErrorKind::Output => IO,
        LabErrorKind::Data => DATA,
        LabErrorKind::Host => OS,
        LabErrorKind::Interrupted => INTERRUPTED,
    }
}

/// Returns the code of a record error.
pub(crate) fn of_record(error: &RecordError) -> Code {
    match error.kind() {
        RecordErrorKind::CannotCreate => CANNOT_CREATE,
        RecordErrorKind::Write => IO,
        RecordErrorKind::NoInput => NO_INPUT,
        RecordErrorKind::Data => DATA,
        RecordErrorKind::Host => OS,
    }
}

/// Returns the code of a drawing error.
pub(crate) fn of_drawing(error: &DrawError) -> Code {
    match error.kind() {
        DrawErrorKind::Usage => USAGE,
        DrawErrorKind::CannotCreate => CANNOT_CREATE,
    }
}

/// Returns the code of invalid options: that of the file they name, if the file is the cause.
pub(crate) fn of_setup(error: &anyhow::Error) -> Code {
    if error.chain().any(|cause| cause.is::<OutputError>()) {
        return CANNOT_CREATE;
    }
    if error.chain().any(|cause| cause.is::<std::io::Error>()) { of_chain(error) } else { USAGE }
}

/// Operands or options are incompatible or meaningless.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::error::Error for UsageError {}

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the code of another command's error: by its root cause, otherwise an I/O error.
pub(crate) fn of_chain(error: &anyhow::Error) -> Code {
    if error.chain().any(|cause| cause.is::<ConfigError>()) {
        return CONFIG;
    }
    if error.chain().any(|cause| cause.is::<UsageError>()) {
        return USAGE;
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<LabError>()) {
        return of_lab(error);
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<RecordError>()) {
        return of_record(error);
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<DrawError>()) {
        return of_drawing(error);
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>()) {
        return of_client(error);
    }
    if let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<AgentError>()) {
        return of_agent(error);
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
    use longhaul_engine::sink::pipeline::PipelineError;

    use super::*;

    #[test]
    fn panic_of_a_writer_and_what_the_agent_lacks_are_told_apart() {
        let error = TransferError::from(PipelineError::Panicked("a writer"));
        let none = String::new;
        let full = ClientError::Refused { status: 507, code: none(), message: none(), advice: none() };
        let silent = ClientError::Silent { pid: 1, waited: std::time::Duration::ZERO };
        let codes = [of_transfer(&error), of_client(&full), of_client(&silent)];
        assert_eq!(codes.map(Code::number), [70, 74, 75]);
    }
}
