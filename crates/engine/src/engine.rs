//! What the jobs of a process share: HTTP clients with their idle connections, and the memory budget.
//!
//! ```no_run
//! use longhaul_core::event::{JobId, JobObserver, JobTag};
//! use longhaul_engine::cancel::Cancel;
//! use longhaul_engine::engine::Engine;
//! use longhaul_engine::sink::memory_budget::AppBuffer;
//! # fn example(job: longhaul_engine::job::Job) -> Result<(), longhaul_engine::job::TransferError> {
//! let engine = Engine::new(AppBuffer::Auto);
//! let tag = JobTag { id: JobId(1), url: job.urls[0].to_string() };
//! let outcome = engine.run(&job, JobObserver::new(&tag, &()), &Cancel::new())?;
//! println!("{} at {}", outcome.path.display(), outcome.goodput);
//! # Ok(())
//! # }
//! ```

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::admission::JobAdmission;
use longhaul_core::event::JobObserver;
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;
use crate::job::{self, Job, Outcome, TransferError};
use crate::sink::memory_budget::{AppBuffer, MemoryBudget};
use crate::sink::segment_pool::SegmentPool;
use crate::source::http::Clients;
use crate::threads::{lock, named};

/// Runs jobs; several may run at once.
pub struct Engine {
    shared: Shared,
}

/// What the jobs of an engine share.
pub(crate) struct Shared {
    pub(crate) clients: Clients,
    budget: MemoryBudget,
    app_buffer: AppBuffer,
}

impl Engine {
    /// Makes an engine without connections, whose jobs share one application buffer.
    pub fn new(app_buffer: AppBuffer) -> Self {
        let (clients, budget) = (Clients::default(), MemoryBudget::new(app_buffer));
        Self { shared: Shared { clients, budget, app_buffer } }
    }

    /// Fetches a file; returns once it is complete, verified and under its final name.
    ///
    /// # Errors
    /// [`TransferError`]. What was fetched is kept for the next run wherever the server lets that be safe; nothing ever
    /// stands half-written under the final name.
    pub fn run(
        &self,
        job: &Job,
        observer: JobObserver<'_>,
        cancel: &Cancel,
    ) -> Result<Outcome, TransferError> {
        job::run(&self.shared, job, observer, cancel)
    }

    /// Runs a task for each of `jobs` in their order, `parallel` at once, and more while their files are small.
    ///
    /// `task` runs its job, as by [`run`](Self::run), and returns the size of the file, or `None` where it failed. No further
    /// task starts once `cancel` is set. Returns whether every task was started.
    pub fn run_each<J: Send>(
        &self,
        jobs: impl IntoIterator<Item = J>,
        parallel: usize,
        cancel: &Cancel,
        task: impl Fn(J) -> Option<Bytes> + Sync,
    ) -> bool {
        let (start, admission, ended) =
            (Instant::now(), Mutex::new(JobAdmission::new(parallel)), Condvar::new());
        thread::scope(|threads| {
            let mut all_started = true;
            for job in jobs {
                let mut state = lock(&admission);
                let started = loop {
                    if cancel.is_cancelled() {
                        return false;
                    }
                    let now = start.elapsed();
                    if state.start(now) {
                        break now;
                    }
                    let waited = ended.wait_timeout(state, ADMISSION_TICK);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                };
                drop(state);
                let (admission, ended, task) = (&admission, &ended, &task);
                let run = move || {
                    let size = task(job);
                    lock(admission).end(started, size);
                    ended.notify_one();
                };
                // The job is lost with its closure.
                if let Err(error) = named("job").spawn_scoped(threads, run) {
                    tracing::error!("cannot start a thread for a file: {error}; run again for it");
                    lock(admission).end(started, None);
                    all_started = false;
                }
            }
            all_started
        })
    }
}

/// How often a waiting job looks whether the limit has changed or the command was cancelled.
const ADMISSION_TICK: Duration = Duration::from_millis(100);

impl Shared {
    /// Makes the application buffer of a job, a part of the process's.
    pub(crate) fn pool(&self, segment: Option<Bytes>, streams: usize) -> SegmentPool {
        SegmentPool::new(&self.budget, segment, streams)
    }

    /// Returns the size of the application buffer of all jobs before anything was measured.
    pub(crate) fn app_buffer_at_start(&self) -> Bytes {
        self.app_buffer.at_start()
    }
}
