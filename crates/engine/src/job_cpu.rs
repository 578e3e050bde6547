//! The CPU time of one job's threads: with several jobs in a process, the process's says nothing of one.

use std::sync::Mutex;
use std::time::Duration;

use longhaul_sys::host::ThreadClock;

use crate::threads::lock;

/// Sums the CPU time of threads that run now and of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct JobCpu(Mutex<Threads>);

#[derive(Debug, Default)]
struct Threads {
    running: Vec<ThreadClock>,
    ended: Duration,
}

/// Counts the calling thread until it is dropped.
struct Counted<'a> {
    cpu: &'a JobCpu,
    clock: ThreadClock,
}

impl JobCpu {
    /// Counts the calling thread while it runs `task`.
    pub(crate) fn count<T>(&self, task: impl FnOnce() -> T) -> T {
        let clock = ThreadClock::current();
        lock(&self.0).running.push(clock);
        let _counted = Counted { cpu: self, clock };
        task()
    }

    /// Returns the CPU time so far.
    pub(crate) fn total(&self) -> Duration {
        let threads = lock(&self.0);
        threads.running.iter().filter_map(|clock| clock.cpu_time()).sum::<Duration>() + threads.ended
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Under the lock, so that no clock is read of a thread that has ended.
        let mut threads = lock(&self.cpu.0);
        threads.ended += self.clock.cpu_time().unwrap_or_default();
        threads.running.retain(|clock| *clock != self.clock);
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;

    fn spin(time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            black_box(0);
        }
    }

    #[test]
    fn only_the_threads_of_a_job_are_counted() {
        let (busy, other) = (JobCpu::default(), JobCpu::default());
        std::thread::scope(|threads| {
            threads.spawn(|| busy.count(|| spin(Duration::from_millis(100))));
            threads.spawn(|| other.count(|| std::thread::sleep(Duration::from_millis(20))));
        });
        // Other processes may take the core for a part of the time.
        assert!(busy.total() > Duration::from_millis(5), "{:?}", busy.total());
        assert!(other.total() < busy.total(), "{:?} {:?}", other.total(), busy.total());
    }
}
