//! Runs a worker of a plan until no unit is left for it.

use std::path::Path;
use std::time::Instant;

use longhaul_core::advice::Finding;
use longhaul_core::event::{Done, JobObserver, JobTag};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::pace::PACE_HEADER;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::job::JobOptions;
use longhaul_farm::error::FarmError;
use longhaul_farm::plan::Plan;
use longhaul_farm::shared_dir::SharedDirStore;
use longhaul_farm::work_run::{FileDisplay, PARALLEL, WorkEnd, WorkRun};
use longhaul_farm::worker::Worker;
use url::Url;

use super::execute::RunFailure;
use super::files::{FileBytes, FilesProgress};
use super::observe::send_progress;
use crate::live::Live;
use crate::queue::Queue;

impl FileDisplay for FilesProgress<'_> {
    fn show(&self, job: &JobTag, transfer: &mut dyn FnMut(JobObserver<'_>) -> Result<Done, Failure>) {
        let result = transfer(JobObserver::new(job, self));
        self.end(job.id(), |last| {
            let all = result.map_or(0, |file| (file.bytes - file.resumed).get());
            let moved = all.max(last.moved);
            FileBytes { present: moved, moved }
        });
    }

    fn unit_done(&self) {
        self.live.note_unit();
        send_progress(self.queue, self.live);
    }
}

impl From<FarmError> for RunFailure {
    fn from(error: FarmError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Executes units of the plan at `path`.
pub(super) fn work(
    queue: &Queue,
    live: &Live,
    path: &Path,
    mut options: JobOptions,
) -> Result<Done, RunFailure> {
    let began = Instant::now();
    let plan = Plan::open(path)?;
    let header = plan.header();
    options.logins_for = Url::parse(&header.source).ok();
    let transfer = &mut options.transfer;
    // Samples of many concurrent files are not recorded.
    transfer.sample = None;
    if header.target.server().is_some() {
        // It asks a server to pace what it sends.
        transfer.client.requests.headers.retain(|field| !field.is(PACE_HEADER));
    }
    let store = SharedDirStore::join(&plan)?;
    let worker = Worker::new(&plan, &store, &live.cancel)?.with_limit(options.transfer.limit.clone());
    let counts = header.counts;
    live.note_plan((counts.files_of_unknown_size == 0).then(|| counts.bytes.get()), counts.units);
    let display = FilesProgress::new(queue, live, false);
    let end = WorkRun::new(&queue.engine, &worker, &display, options, &live.cancel).run(PARALLEL)?;
    let failed = |kind, why: String| Err(RunFailure::new(kind, why));
    match end {
        WorkEnd::Done => {
            let (bytes, time) = (Bytes::new(display.bytes().moved), began.elapsed());
            let advice = header.left_out_note().into_iter().collect();
            let goodput = Rate::over(bytes, time);
            let finding = Finding { advice, ..Finding::default() };
            Ok(Done { path: path.to_owned(), bytes, time, goodput, finding, ..Done::default() })
        }
        WorkEnd::Stopped => failed(FailureKind::Interrupted, end.to_string()),
        // Units of theirs that fail are left for a later run.
        WorkEnd::UnitsLeft => {
            let why = format!("{end}; longhaul plan status {} names them", path.display());
            failed(FailureKind::Temporary, why)
        }
        WorkEnd::HostFailed | WorkEnd::UnitsFailed(_) => {
            let (path, id) = (path.display(), live.id);
            let remedy = format!("to try again: longhaul plan retry {path}, then longhaul queue retry {id}");
            failed(FailureKind::Data, format!("{end}; longhaul plan status {path} says why; {remedy}"))
        }
    }
}
