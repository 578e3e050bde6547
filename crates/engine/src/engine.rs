//! Runs jobs and holds their shared state: HTTP clients with idle connections, FTP sessions, and
//! the memory budget.

use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use longhaul_core::files_at_once::{AdmittedJob, JobAdmission};
use longhaul_core::units::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::cancel::Cancel;
use crate::sink::memory_budget::{AppBuffer, MemoryBudget};
use crate::sink::segment_pool::SegmentPool;
use crate::source::gridftp::FtpSessions;
use crate::source::http::Clients;
use crate::threads::named;

/// Runs jobs, also concurrently, which share its connections and its memory.
pub struct Engine {
    pub(crate) clients: Clients,
    pub(crate) sessions: Arc<FtpSessions>,
    budget: MemoryBudget,
}

impl Engine {
    /// Creates an engine without connections, whose jobs share one application buffer.
    pub fn new(app_buffer: AppBuffer) -> Self {
        let budget = MemoryBudget::new(app_buffer);
        Self { clients: Clients::default(), sessions: Arc::default(), budget }
    }

    /// Returns the FTP sessions of this engine, for uploads that run beside its jobs.
    pub fn ftp_sessions(&self) -> Arc<FtpSessions> {
        Arc::clone(&self.sessions)
    }

    /// Creates a job's application buffer from the process's memory budget.
    pub(crate) fn pool(&self, segment: Option<Bytes>, streams: usize) -> SegmentPool {
        SegmentPool::new(&self.budget, segment, streams)
    }

    /// Returns the initial size of the application buffer of all jobs.
    pub(crate) fn app_buffer_at_start(&self) -> Bytes {
        self.budget.at_start()
    }

    /// Runs `task` for each of `jobs` in order, as many concurrently as `admission` allows for
    /// files of the size `size_of`, `None` if unknown. `jobs` may return `None` for now: its `next`
    /// is called again when a job has ended.
    ///
    /// `task` runs its job by [`run`](Self::run) and returns the size of the file, or `None` if the
    /// job failed. No further task starts once `cancel` is set. Returns whether every task was
    /// started.
    pub fn run_each<J, I>(
        &self,
        jobs: I,
        size_of: impl Fn(&J) -> Option<Bytes> + Sync,
        admission: JobAdmission,
        cancel: &Cancel,
        task: impl Fn(J) -> Option<Bytes> + Sync,
    ) -> bool
    where
        J: Send,
        I: IntoIterator<Item = J>,
        I::IntoIter: Send,
    {
        let state = QueueState {
            jobs: jobs.into_iter(),
            next: None,
            is_empty: false,
            admission,
            waiting: 0,
            threads: true,
        };
        let queue = JobQueue {
            start: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            size_of,
            task,
        };
        // This thread is the first worker: if no thread can be started, jobs run one after the
        // other.
        thread::scope(|threads| queue.work(threads, cancel));
        queue.state.lock().peek().is_none()
    }
}

/// The queued jobs, and the threads that run them.
struct JobQueue<I: Iterator, S, F> {
    start: Instant,
    state: Mutex<QueueState<I>>,
    changed: Condvar,
    size_of: S,
    task: F,
}

struct QueueState<I: Iterator> {
    jobs: I,
    /// The next job, taken from `jobs`.
    next: Option<I::Item>,
    /// Whether `jobs` has returned `None` since the last job ended.
    is_empty: bool,
    admission: JobAdmission,
    /// The number of workers that wait for admission.
    waiting: usize,
    /// Whether further threads can be started.
    threads: bool,
}

impl<I: Iterator> QueueState<I> {
    /// Returns the next job.
    fn peek(&mut self) -> Option<&I::Item> {
        if self.next.is_none() && !self.is_empty {
            self.next = self.jobs.next();
            self.is_empty = self.next.is_none();
        }
        self.next.as_ref()
    }
}

impl<J, I, S, F> JobQueue<I, S, F>
where
    J: Send,
    I: Iterator<Item = J> + Send,
    S: Fn(&J) -> Option<Bytes> + Sync,
    F: Fn(J) -> Option<Bytes> + Sync,
{
    /// Runs jobs until none is left; starts another worker while a further job may run at once.
    fn work<'scope>(&'scope self, threads: &'scope Scope<'scope, '_>, cancel: &'scope Cancel) {
        while let Some((admitted, job)) = self.next(threads, cancel) {
            let size = (self.task)(job);
            let mut state = self.state.lock();
            state.admission.end(admitted, size);
            state.is_empty = false;
            drop(state);
            self.changed.notify_one();
        }
        // No job is left for the other workers either.
        self.changed.notify_all();
    }

    /// Waits for admission and takes the next job; `None` if none is left or the command is
    /// cancelled.
    fn next<'scope>(
        &'scope self,
        threads: &'scope Scope<'scope, '_>,
        cancel: &'scope Cancel,
    ) -> Option<(AdmittedJob, J)> {
        let mut state = self.state.lock();
        let admitted = loop {
            let size = (self.size_of)(state.peek().filter(|_| !cancel.is_cancelled())?);
            if let Some(admitted) = state.admission.start(size, self.start.elapsed()) {
                break admitted;
            }
            state.waiting += 1;
            self.changed.wait_for(&mut state, ADMISSION_TICK);
            state.waiting -= 1;
        };
        let job = state.next.take();
        if state.threads && state.waiting == 0 && state.peek().is_some() {
            let worker = move || self.work(threads, cancel);
            if let Err(error) = named("job").spawn_scoped(threads, worker) {
                tracing::warn!("fewer files are fetched at once: cannot start a thread: {error}");
                state.threads = false;
            }
        }
        job.map(|job| (admitted, job))
    }
}

/// The interval at which a waiting worker checks for a changed limit and for cancellation.
const ADMISSION_TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sink::memory_budget::AppBuffer;

    #[test]
    fn jobs_that_have_none_for_now_are_asked_again_while_one_runs() {
        let (running, done, mut left) = (AtomicUsize::new(0), AtomicUsize::new(0), 9);
        let jobs = std::iter::from_fn(|| {
            let has_one = left > 0 && running.load(Ordering::SeqCst) < 2;
            has_one.then(|| {
                running.fetch_add(1, Ordering::SeqCst);
                left -= 1;
                left
            })
        });
        let task = |number: usize| {
            // The first one ends last.
            let began = Instant::now();
            while number == 8 && done.load(Ordering::SeqCst) < 8 && began.elapsed() < Duration::from_secs(60)
            {
                std::thread::yield_now();
            }
            running.fetch_sub(1, Ordering::SeqCst);
            let before = done.fetch_add(1, Ordering::SeqCst);
            assert!(number != 8 || before == 8, "{before} have ended beside the first");
            Some(Bytes::new(1))
        };
        let engine = Engine::new(AppBuffer::Auto);
        assert!(engine.run_each(jobs, |_| Some(Bytes::new(1)), JobAdmission::new(3), &Cancel::new(), task));
        assert_eq!(done.into_inner(), 9);
    }
}
