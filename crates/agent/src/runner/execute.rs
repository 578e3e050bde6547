//! Executes a transfer with the engine.

use longhaul_core::event::{Done, JobObserver};
use longhaul_engine::failure::{FailureKind, without_options};
use longhaul_engine::job::TransferError;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::upload::{self, UploadError};

use super::observe::RunObserver;
use super::tree;
use crate::database::Row;
use crate::live::Live;
use crate::queue::Queue;
use crate::request::{EngineJob, RunContext};
use crate::transfer::TransferKind;

/// The remedy where the server has another file than the partial one.
const START_OVER: &str = "to fetch the new file, remove this transfer with its partial file (longhaul queue remove --files), and add \
                          the link again";
/// The remedy where the server has a part of another file than the one to send.
const SEND_ANEW: &str = "to start over, send it with `longhaul put --no-resume`";

/// The failure of a run.
#[derive(Debug)]
pub(super) struct RunFailure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
    pub(super) cause: FailureCause,
}

/// The cause of a failure, where its kind does not say enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    OfKind,
    /// A later try cannot help, whatever the kind.
    Permanent,
    /// A file has the name, and the request permits no other and no replacement.
    FileExists,
}

impl RunFailure {
    pub(super) fn new(kind: FailureKind, error: impl std::fmt::Display) -> Self {
        let message = without_options(&error.to_string()).to_owned();
        Self { kind, message, cause: FailureCause::OfKind }
    }

    /// Creates a failure whose remedy `start_over` replaces that of an option.
    fn of_engine(kind: FailureKind, error: impl std::fmt::Display, start_over: &str) -> Self {
        let text = error.to_string();
        let mut failure = Self::new(kind, &text);
        if text.contains("--no-resume") {
            failure.message = format!("{}; {start_over}", failure.message);
        }
        failure
    }
}

impl From<UploadError> for RunFailure {
    fn from(error: UploadError) -> Self {
        let cause = if error.is_permanent() { FailureCause::Permanent } else { FailureCause::OfKind };
        Self { cause, ..Self::of_engine(error.kind(), error, SEND_ANEW) }
    }
}

impl From<TransferError> for RunFailure {
    fn from(error: TransferError) -> Self {
        let kind = error.kind();
        match error {
            TransferError::Output(OutputError::Exists(path)) => {
                let message = format!(
                    "a file {} exists: remove it and retry, or add the link again with --if-exists rename or replace",
                    path.display()
                );
                Self { cause: FailureCause::FileExists, ..Self::new(kind, message) }
            }
            TransferError::Output(OutputError::Busy(path)) => {
                Self::new(kind, format!("another transfer writes {}: retry after its end", path.display()))
            }
            TransferError::Output(OutputError::Writer { path, writer, source }) => {
                Self::new(kind, format!("the writer {writer} cannot write {}: {source}", path.display()))
            }
            error => Self::of_engine(kind, error, START_OVER),
        }
    }
}

/// Runs a transfer.
pub(super) fn execute(
    queue: &Queue,
    live: &Live,
    row: &Row,
    observer: &RunObserver<'_>,
) -> Result<Done, RunFailure> {
    let usage = |error: crate::error::QueueError| RunFailure::new(FailureKind::Usage, error);
    let request = queue.request(live.id).map_err(usage)?;
    let context = RunContext {
        engine: &queue.engine,
        limit: live.limit.clone(),
        sample: live.sampling.clone(),
        offered_size: queue.offered_size(live.id),
        target: row.part.as_ref().map(|part| part.target.clone()),
    };
    let work = request.engine_job(context).map_err(usage)?;
    make_directory(&request)?;
    let (job, cancel) = (JobObserver::new(observer.tag(), observer), &live.cancel);
    match work {
        EngineJob::Get(get) => {
            let outcome = queue.engine.run(&get, job, cancel);
            Ok(Done::from(&outcome?))
        }
        EngineJob::Put(put) => {
            let outcome = upload::put(&put, job, cancel);
            Ok(Done::from(&outcome?))
        }
        EngineJob::GetTree { url, target, options } => tree::get(queue, live, &url, &target, *options),
        EngineJob::PutTree(put) => tree::put(queue, live, *put),
    }
}

/// Creates the directory of a file.
fn make_directory(request: &crate::request::TransferRequest) -> Result<(), RunFailure> {
    let Some(output) = request.output.as_deref().filter(|_| request.kind == TransferKind::Get) else {
        return Ok(());
    };
    let is_directory = output.as_os_str().as_encoded_bytes().ends_with(b"/") || request.name.is_some();
    let directory = if is_directory { Some(output) } else { output.parent() };
    directory.map_or(Ok(()), std::fs::create_dir_all).map_err(|error| {
        let message = format!("cannot make the directory of {}: {error}", output.display());
        RunFailure::new(FailureKind::CannotCreate, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_advice_name_no_option_as_of_the_queue_that_it_lacks() {
        let why = "it has 5 bytes of 7; start over with --no-resume";
        let failure = RunFailure::of_engine(FailureKind::Protocol, why, SEND_ANEW);
        assert_eq!(failure.message, format!("it has 5 bytes of 7; {SEND_ANEW}"));
        let source = std::io::Error::other("a mapping needs a size; use --writer auto");
        let error = OutputError::Writer { path: "/f".into(), writer: "mmap", source };
        let failure = RunFailure::from(TransferError::Output(error));
        assert_eq!(failure.message, "the writer mmap cannot write /f: a mapping needs a size");
        let shown = ["does --pace off gain?", "see longhaul --help"].map(crate::live::of_command_line);
        assert_eq!(shown, ["on the command line: does --pace off gain?", "see longhaul --help"]);
    }
}
