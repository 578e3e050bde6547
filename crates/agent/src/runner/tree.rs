//! Runs a transfer of a directory: a walk, and a job for each missing or changed file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::event::{Done, Event, JobId, JobObserver, JobTag, Observer};
use longhaul_core::failure::FailureKind;
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::job::JobOptions;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::tree::{WalkError, Walked};
use longhaul_engine::upload::{self, PutRequest};
use parking_lot::Mutex;
use url::Url;

use super::execute::RunFailure;
use super::observe::send_progress;
use crate::live::Live;
use crate::queue::Queue;

/// The number of large files transferred at once, as in `longhaul get -r`.
const MAX_LARGE: usize = 3;
/// The number of small files uploaded at once: `longhaul serve` accepts 16 uploads.
const MAX_SMALL: usize = 16;
/// The maximum number of walked entries ahead of the transfers.
const MAX_WALKED_AHEAD: usize = 1024;

/// The progress of all files of a tree.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The bytes of complete files.
    complete: u64,
    /// The bytes of complete files that this run has moved.
    moved: u64,
    /// For each running file: bytes present, bytes moved, streams.
    running: HashMap<JobId, (u64, u64, usize)>,
    /// The first failure of a file, and the number of failures.
    failed: Option<(RunFailure, u64)>,
}

impl Totals {
    fn sums(&self) -> (u64, u64, usize) {
        let add = |(bytes, moved, streams): (u64, u64, usize), running: &(u64, u64, usize)| {
            (bytes + running.0, moved + running.1, streams + running.2)
        };
        self.running.values().fold((self.complete, self.moved, 0), add)
    }

    fn fail(&mut self, failure: RunFailure) {
        match &mut self.failed {
            Some((_, count)) => *count += 1,
            None => self.failed = Some((failure, 1)),
        }
    }
}

/// Observes the files of a tree, and sums their bytes.
struct TreeObserver<'a, 'b>(&'b TreeRun<'a>);

impl Observer for TreeObserver<'_, '_> {
    fn on(&self, job: &JobTag, _at: Duration, event: &Event) {
        let (Event::Progress(progress), run) = (event, self.0) else { return };
        let mut totals = run.totals.lock();
        let before = totals.running.get(&job.id()).map_or(0, |running| running.1);
        let (present, received) = (progress.bytes.present.get(), progress.bytes.received.get());
        totals.running.insert(job.id(), (present, received, progress.streams));
        let (bytes, moved, streams) = totals.sums();
        drop(totals);
        let fresh = received.saturating_sub(before);
        run.queue.runs.moved.fetch_add(fresh, Ordering::Relaxed);
        run.live.note_total(bytes, moved, streams);
        send_progress(run.queue, run.live);
    }
}

/// The state shared by the files of a tree.
struct TreeRun<'a> {
    queue: &'a Queue,
    live: &'a Live,
    totals: Mutex<Totals>,
    count: AtomicU64,
    began: Instant,
}

impl<'a> TreeRun<'a> {
    fn new(queue: &'a Queue, live: &'a Live) -> Self {
        Self { queue, live, totals: Mutex::default(), count: AtomicU64::new(0), began: Instant::now() }
    }

    /// Transfers the files of a walk.
    fn run<F: Send>(
        &self,
        walk: impl Iterator<Item = Walked<F>> + Send,
        size_of: impl Fn(&F) -> Option<Bytes> + Sync,
        admission: JobAdmission,
        task: impl Fn(&Self, JobId, F) -> Result<Bytes, RunFailure> + Sync,
    ) {
        let cancel = &self.live.cancel;
        thread::scope(|threads| {
            let (found, files) = sync_channel(MAX_WALKED_AHEAD);
            let walker =
                move || walk.map(|walked| found.send(walked)).take_while(Result::is_ok).for_each(drop);
            if let Err(error) = thread::Builder::new().name("walk".into()).spawn_scoped(threads, walker) {
                self.totals
                    .lock()
                    .fail(RunFailure::new(FailureKind::Host, format!("cannot start a thread: {error}")));
                return;
            }
            let size_of = |walked: &Walked<F>| walked.file().and_then(&size_of);
            self.queue.engine.run_each(files, size_of, admission, cancel, |walked| {
                let file = match walked {
                    Walked::File(file) => file,
                    Walked::Skipped { what, why } => {
                        tracing::warn!("leaving out {what}: {why}");
                        return None;
                    }
                    Walked::Failed(WalkError { failure, .. }) => {
                        self.totals.lock().fail(RunFailure::new(failure.kind, failure));
                        return None;
                    }
                };
                let job = JobId::new(self.count.fetch_add(1, Ordering::Relaxed) + 1);
                let result = task(self, job, file);
                let mut totals = self.totals.lock();
                let moved = totals.running.remove(&job).map_or(0, |running| running.1);
                match result {
                    Ok(size) => {
                        totals.complete += size.get();
                        totals.moved += moved;
                        Some(size)
                    }
                    Err(failure) => {
                        totals.fail(failure);
                        None
                    }
                }
            });
        });
    }

    fn end(self, path: &Path) -> Result<Done, RunFailure> {
        let totals = self.totals.into_inner();
        if self.live.cancel.is_cancelled() {
            return Err(RunFailure::new(FailureKind::Interrupted, "interrupted"));
        }
        let (bytes, moved, _) = totals.sums();
        match totals.failed {
            None => {
                let (time, bytes) = (self.began.elapsed(), Bytes::new(bytes));
                let goodput = Rate::over(Bytes::new(moved), time);
                Ok(Done { path: path.to_owned(), bytes, time, goodput, ..Done::default() })
            }
            Some((failure, 1)) => Err(failure),
            Some((failure, count)) => {
                let message = format!("{} of its files failed, the first: {}", count, failure.message);
                Err(RunFailure { message, ..failure })
            }
        }
    }
}

/// Downloads a directory.
pub(super) fn get(
    queue: &Queue,
    live: &Live,
    url: &Url,
    target: &Path,
    mut options: JobOptions,
) -> Result<Done, RunFailure> {
    let tree = queue.engine.remote_tree(url, target, &options.transfer);
    let tree = tree.map_err(|error| RunFailure::new(error.kind, error))?;
    // Samples of many concurrent files are not recorded.
    options.transfer.sample = None;
    let run = TreeRun::new(queue, live);
    run.run(
        tree.walk(&live.cancel),
        |file| file.size,
        JobAdmission::new(MAX_LARGE),
        |run, job, file| {
            if let Some((_, size)) = tree.unchanged(&file, &live.cancel) {
                return Ok(size);
            }
            let tag = JobTag::new(job, &SafeUrl::of(&file.url).to_string());
            let observer = TreeObserver(run);
            let outcome = queue.engine.run(
                &tree.job(&file, options.clone()),
                JobObserver::new(&tag, &observer),
                &live.cancel,
            );
            Ok(outcome?.bytes)
        },
    );
    run.end(target)
}

/// Uploads a directory.
pub(super) fn put(queue: &Queue, live: &Live, mut request: PutRequest) -> Result<Done, RunFailure> {
    request.transfer.sample = None;
    let tree = queue.engine.upload_tree(&request.path, &request.url, &request.transfer);
    let tree = tree.map_err(|error| RunFailure::new(error.kind, error))?;
    let run = TreeRun::new(queue, live);
    let admission = JobAdmission::new(MAX_LARGE).with_small(MAX_SMALL);
    run.run(
        tree.walk(&live.cancel),
        |file| Some(file.size),
        admission,
        |run, job, file| {
            if tree.is_unchanged(&file, &live.cancel) {
                return Ok(file.size);
            }
            let tag = JobTag::new(job, &SafeUrl::of(&file.url).to_string());
            let mut put = request.clone();
            put.transfer.client.requests.headers.extend(file.time_header());
            (put.path, put.url) = (file.path, file.url);
            let observer = TreeObserver(run);
            let outcome = upload::put(&put, JobObserver::new(&tag, &observer), &live.cancel);
            Ok(outcome?.bytes)
        },
    );
    run.end(&request.path)
}
