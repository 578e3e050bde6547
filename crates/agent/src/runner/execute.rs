//! Executes a transfer with the engine.

use longhaul_core::event::{Done, JobObserver};
use longhaul_engine::failure::FailureKind;
use longhaul_engine::upload;

use super::observe::RunObserver;
use super::tree;
use crate::database::Row;
use crate::live::Live;
use crate::queue::Queue;
use crate::request::{EngineJob, RunContext};
use crate::transfer::TransferKind;

/// The failure of a run.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, error: impl std::fmt::Display) -> Self {
        Self { kind, message: error.to_string() }
    }
}

/// Runs a transfer.
pub(super) fn execute(
    queue: &Queue,
    live: &Live,
    row: &Row,
    observer: &RunObserver<'_>,
) -> Result<Done, Failure> {
    let usage = |error: crate::error::QueueError| Failure::new(FailureKind::Usage, error);
    let request = queue.request(live.id).map_err(usage)?;
    let context = RunContext {
        engine: &queue.engine,
        limit: live.limit.clone(),
        sample: live.sampling.clone(),
        offered_size: queue.offered_size(live.id),
        known_name: row
            .part
            .as_ref()
            .and_then(|part| Some(part.target.file_name()?.to_string_lossy().into_owned())),
    };
    let work = request.engine_job(context).map_err(usage)?;
    make_directory(&request)?;
    let (job, cancel) = (JobObserver::new(observer.tag(), observer), &live.cancel);
    match work {
        EngineJob::Get(get) => {
            let outcome = queue.engine.run(&get, job, cancel);
            outcome.map(|outcome| Done::from(&outcome)).map_err(|error| Failure::new(error.kind(), error))
        }
        EngineJob::Put(put) => {
            let outcome = upload::put(&put, job, cancel);
            outcome.map(|outcome| Done::from(&outcome)).map_err(|error| Failure::new(error.kind(), error))
        }
        EngineJob::GetTree { url, target, options } => tree::get(queue, live, &url, &target, *options),
        EngineJob::PutTree(put) => tree::put(queue, live, *put),
    }
}

/// Creates the directory of a file.
fn make_directory(request: &crate::request::TransferRequest) -> Result<(), Failure> {
    let Some(output) = request.output.as_deref().filter(|_| request.kind == TransferKind::Get) else {
        return Ok(());
    };
    let is_directory = output.as_os_str().as_encoded_bytes().ends_with(b"/") || request.name.is_some();
    let directory = if is_directory { Some(output) } else { output.parent() };
    directory.map_or(Ok(()), std::fs::create_dir_all).map_err(|error| {
        let message = format!("cannot make the directory of {}: {error}", output.display());
        Failure { kind: FailureKind::CannotCreate, message }
    })
}
