//! Executes a transfer with the engine.

use longhaul_core::event::{Done, JobObserver};
use longhaul_core::failure::FailureKind;
use longhaul_core::retry::Retry;
use longhaul_engine::job::TransferError;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::upload::{self, UploadError};

use super::observe::RunObserver;
use super::{plan_worker, tree};
use crate::database::{DatabaseError, StoreError, TransferRow};
use crate::error::QueueError;
use crate::live::Live;
use crate::queue::Queue;
use crate::request::{RunContext, TransferRequest};
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
    /// Whether a later run can help.
    pub(super) retry: Retry,
    /// Whether a file has the name, and the request permits no other and no replacement.
    pub(super) file_exists: bool,
    /// Whether another transfer writes the file.
    pub(super) is_busy: bool,
}

impl RunFailure {
    pub(super) fn new(kind: FailureKind, error: impl std::fmt::Display) -> Self {
        let message = without_options(&error.to_string()).to_owned();
        // This host's network may be down for now.
        let retry = if kind == FailureKind::NoHost { Retry::Backoff } else { kind.retry() };
        Self { kind, message, retry, file_exists: false, is_busy: false }
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

impl From<QueueError> for RunFailure {
    fn from(error: QueueError) -> Self {
        let kind = match &error {
            // The database of a farm has been lost since the lease: the transfer is queued again,
            // and counts no failure.
            QueueError::Database(DatabaseError::Use { source, .. }) => match source {
                StoreError::Farm(error) if error.kind() == FailureKind::Unavailable => {
                    FailureKind::Interrupted
                }
                StoreError::Farm(_) | StoreError::Sqlite(_) => FailureKind::Unavailable,
                StoreError::Unreadable(_) => FailureKind::Usage,
            },
            _ => FailureKind::Usage,
        };
        Self::new(kind, error)
    }
}

impl From<UploadError> for RunFailure {
    fn from(error: UploadError) -> Self {
        let is_permanent = error.is_permanent();
        let failure = Self::of_engine(error.kind(), error, SEND_ANEW);
        Self { retry: failure.retry.unless(is_permanent), ..failure }
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
                Self { file_exists: true, ..Self::new(kind, message) }
            }
            TransferError::Output(OutputError::Busy(path)) => {
                let message = format!("another transfer writes {}: retry after its end", path.display());
                Self { is_busy: true, ..Self::new(kind, message) }
            }
            TransferError::Output(OutputError::Writer { path, writer, source }) => {
                Self::new(kind, format!("the writer {writer} cannot write {}: {source}", path.display()))
            }
            error => Self::of_engine(kind, error, START_OVER),
        }
    }
}

/// Returns an error's text without advice that names options of the command line.
///
/// Such advice is the last clause of a text, after a semicolon, and no command in backquotes.
fn without_options(text: &str) -> &str {
    let is_option = |word: &str| {
        let name = word.trim_start_matches('(').strip_prefix('-');
        name.is_some_and(|name| name.starts_with(|first: char| first == '-' || first.is_ascii_alphabetic()))
    };
    match text.rsplit_once("; ") {
        Some((why, advice)) if !advice.contains('`') && advice.split(' ').any(is_option) => why,
        _ => text,
    }
}

/// Runs a transfer.
pub(super) fn execute(
    queue: &Queue,
    live: &Live,
    row: &TransferRow,
    observer: &RunObserver<'_>,
) -> Result<Done, RunFailure> {
    let request = queue.request(live.id)?;
    let context = RunContext {
        engine: &queue.engine,
        limit: live.limit.clone(),
        sample: live.sampling.clone(),
        offered_size: queue.offered_size(live.id),
        target: row.part.as_ref().map(|part| part.target.clone()),
    };
    let (job, cancel) = (JobObserver::new(observer.tag(), observer), &live.cancel);
    let path = request.endpoints.paths.first();
    match (&request.endpoints.plan, path, request.kind) {
        (Some(path), ..) => plan_worker::work(queue, live, path, request.options(&context, None)?),
        (None, Some(path), TransferKind::Tree) => tree::put(queue, live, request.put(path, &context)?),
        (None, Some(path), _) => Ok(upload::put(&request.put(path, &context)?, job, cancel)?),
        (None, None, TransferKind::Tree) => {
            let (urls, options) = request.sources(&context)?;
            tree::get(queue, live, &urls[0], &request.target.output.unwrap_or_default(), options)
        }
        (None, None, _) => {
            let get = request.get(&context)?;
            make_directory(&request)?;
            Ok(queue.engine.run(&get, job, cancel)?)
        }
    }
}

/// Creates the directory of a file.
fn make_directory(request: &TransferRequest) -> Result<(), RunFailure> {
    let Some(output) = request.target.output.as_deref() else { return Ok(()) };
    let is_directory = output.as_os_str().as_encoded_bytes().ends_with(b"/") || request.target.name.is_some();
    let directory = if is_directory { Some(output) } else { output.parent() };
    directory.map_or(Ok(()), std::fs::create_dir_all).map_err(|error| {
        let message = format!("cannot make the directory of {}: {error}", output.display());
        RunFailure::new(FailureKind::CannotCreate, message)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::database::FarmAddress;

    #[test]
    fn database_that_is_lost_fails_no_transfer() {
        let farm = FarmAddress::parse("postgres://ann@db/farm", Duration::from_secs(30)).unwrap();
        let failed = |source| DatabaseError::Use { operation: "read", source };
        let lost = failed(farm.silent(Duration::from_secs(1)).into());
        let full = failed(rusqlite::Error::InvalidQuery.into());
        for (error, kind) in [
            (QueueError::Database(lost), FailureKind::Interrupted),
            (QueueError::Database(full), FailureKind::Unavailable),
            (QueueError::NotFound(1), FailureKind::Usage),
            (QueueError::Invalid("of another key".to_owned()), FailureKind::Usage),
        ] {
            let failure = RunFailure::from(error);
            assert_eq!(failure.kind, kind, "{}", failure.message);
        }
    }

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

    #[test]
    fn advice_about_options_is_left_out_where_there_are_none() {
        for (why, advice) in [
            ("h answered 401: no; yes", "; give a login with --user, in ~/.netrc or in the URL"),
            ("f exists", "; replace it with -N"),
            ("it - f - exists", ""),
            ("no files", ""),
            ("it takes none; start `longhaul serve --writable`", ""),
        ] {
            assert_eq!(without_options(&format!("{why}{advice}")), why);
        }
    }
}
