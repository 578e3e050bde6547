//! Runs a transfer of a directory: a walk, and a job for each missing or changed file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use longhaul_core::event::{Done, JobId, JobObserver, JobTag};
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
use super::files::{FileBytes, FilesProgress};
use crate::live::Live;
use crate::queue::Queue;

/// The number of large files transferred at once, as in `longhaul get -r`.
const MAX_LARGE: usize = 3;
/// The number of small files uploaded at once: `longhaul serve` accepts 16 uploads.
const MAX_SMALL: usize = 16;
/// The maximum number of walked entries ahead of the transfers.
const MAX_WALKED_AHEAD: usize = 1024;

/// The state shared by the files of a tree.
struct TreeRun<'a> {
    files: FilesProgress<'a>,
    /// The first failure of a file, and the number of failures.
    failed: Mutex<Option<(RunFailure, u64)>>,
    count: AtomicU64,
    began: Instant,
}

impl<'a> TreeRun<'a> {
    fn new(queue: &'a Queue, live: &'a Live) -> Self {
        let files = FilesProgress::new(queue, live, true);
        Self { files, failed: Mutex::default(), count: AtomicU64::new(0), began: Instant::now() }
    }

    fn fail(&self, failure: RunFailure) {
        match &mut *self.failed.lock() {
            Some((_, count)) => *count += 1,
            none => *none = Some((failure, 1)),
        }
    }

    /// Transfers the files of a walk.
    fn run<F: Send>(
        &self,
        walk: impl Iterator<Item = Walked<F>> + Send,
        size_of: impl Fn(&F) -> Option<Bytes> + Sync,
        admission: JobAdmission,
        task: impl Fn(&Self, JobId, F) -> Result<Bytes, RunFailure> + Sync,
    ) {
        let FilesProgress { queue, live, .. } = &self.files;
        let cancel = &live.cancel;
        thread::scope(|threads| {
            let (found, files) = sync_channel(MAX_WALKED_AHEAD);
            let walker =
                move || walk.map(|walked| found.send(walked)).take_while(Result::is_ok).for_each(drop);
            if let Err(error) = thread::Builder::new().name("walk".into()).spawn_scoped(threads, walker) {
                let message = format!("cannot start a thread: {error}");
                return self.fail(RunFailure::new(FailureKind::Host, message));
            }
            let size_of = |walked: &Walked<F>| walked.file().and_then(&size_of);
            queue.engine.run_each(files, size_of, admission, cancel, |walked| {
                let file = match walked {
                    Walked::File(file) => file,
                    Walked::Skipped { what, why } => {
                        tracing::warn!("leaving out {what}: {why}");
                        return None;
                    }
                    Walked::Failed(WalkError { failure, .. }) => {
                        self.fail(RunFailure::new(failure.kind, failure));
                        return None;
                    }
                };
                let job = JobId::new(self.count.fetch_add(1, Ordering::Relaxed) + 1);
                let result = task(self, job, file);
                let size = result.map_err(|failure| self.fail(failure)).ok();
                self.files.end(job, |last| {
                    let ended = |size: Bytes| FileBytes { present: size.get(), moved: last.moved };
                    size.map(ended).unwrap_or_default()
                });
                size
            });
        });
    }

    fn end(self, path: &Path) -> Result<Done, RunFailure> {
        if self.files.live.cancel.is_cancelled() {
            return Err(RunFailure::new(FailureKind::Interrupted, "interrupted"));
        }
        match self.failed.into_inner() {
            None => {
                let FileBytes { present, moved } = self.files.bytes();
                let (time, bytes) = (self.began.elapsed(), Bytes::new(present));
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
            let (file, observer) = (tree.job(&file, options.clone()), JobObserver::new(&tag, &run.files));
            Ok(queue.engine.run(&file, observer, &live.cancel)?.bytes)
        },
    );
    run.end(target)
}

/// Uploads a directory.
pub(super) fn put(queue: &Queue, live: &Live, mut request: PutRequest) -> Result<Done, RunFailure> {
    request.transfer.sample = None;
    let walk = queue.engine.upload_walk(&request.path, &request.url, &request.transfer, &live.cancel);
    let (walk, target) = walk.map_err(|error| RunFailure::new(error.kind, error))?;
    let run = TreeRun::new(queue, live);
    let admission = JobAdmission::new(MAX_LARGE).with_small(MAX_SMALL);
    run.run(
        walk,
        |file| Some(file.size),
        admission,
        |run, job, file| {
            if target.is_unchanged(&file, &live.cancel) {
                return Ok(file.size);
            }
            let tag = JobTag::new(job, &SafeUrl::of(&file.url).to_string());
            let mut put = request.clone();
            put.transfer.client.requests.headers.extend(file.time_header());
            (put.path, put.url) = (file.path, file.url);
            Ok(upload::put(&put, JobObserver::new(&tag, &run.files), &live.cancel)?.bytes)
        },
    );
    run.end(&request.path)
}
