//! The CPU time of one job's threads; the process's CPU time covers all jobs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use longhaul_sys::host::ThreadClock;
use parking_lot::Mutex;

/// Sums the CPU time of a job's running and ended threads.
#[derive(Debug, Default)]
pub(crate) struct JobCpu(Mutex<Threads>);

#[derive(Debug, Default)]
struct Threads {
    running: Vec<CountedThread>,
    ended: Duration,
}

/// A running thread of the job.
#[derive(Debug)]
struct CountedThread {
    clock: ThreadClock,
    /// The thread's /proc/thread-self/schedstat; `None` if the kernel does not provide it.
    schedstat: Option<File>,
    /// The times at the last reading.
    last: CoreTimes,
}

/// The times of a thread on and off the cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CoreTimes {
    /// The time on a core.
    pub(crate) ran: Duration,
    /// The time runnable, waiting for a core.
    pub(crate) starved: Duration,
}

impl CoreTimes {
    /// Returns the sum of both times, by which threads are compared.
    pub(crate) fn sum(self) -> Duration {
        self.ran + self.starved
    }
}

/// Counts the calling thread until it is dropped.
struct Counted<'a> {
    cpu: &'a JobCpu,
    clock: ThreadClock,
}

impl CountedThread {
    fn current(clock: ThreadClock) -> Self {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let mut thread = Self { clock, schedstat, last: CoreTimes::default() };
        thread.read();
        thread
    }

    /// Returns the thread's times since the last call.
    fn read(&mut self) -> CoreTimes {
        let mut text = [0; 64];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let now = read.and_then(|len| core_times(&text[..len]));
        let by_clock = || self.clock.cpu_time().map(|ran| CoreTimes { ran, ..CoreTimes::default() });
        let now = now.or_else(by_clock).unwrap_or(self.last);
        let before = std::mem::replace(&mut self.last, now);
        CoreTimes {
            ran: now.ran.saturating_sub(before.ran),
            starved: now.starved.saturating_sub(before.starved),
        }
    }
}

/// Reads a thread's schedstat: nanoseconds on a core, nanoseconds of waiting for one, and a count
/// (Linux, Documentation/scheduler/sched-stats.rst).
fn core_times(schedstat: &[u8]) -> Option<CoreTimes> {
    let mut numbers = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
    let (ran, starved) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(CoreTimes { ran: Duration::from_nanos(ran), starved: Duration::from_nanos(starved) })
}

impl JobCpu {
    /// Counts the calling thread while it runs `task`.
    pub(crate) fn count<T>(&self, task: impl FnOnce() -> T) -> T {
        let clock = ThreadClock::current();
        self.0.lock().running.push(CountedThread::current(clock));
        let _counted = Counted { cpu: self, clock };
        task()
    }

    /// Returns the job's CPU time so far.
    pub(crate) fn total(&self) -> Duration {
        let threads = self.0.lock();
        threads.running.iter().filter_map(|thread| thread.clock.cpu_time()).sum::<Duration>() + threads.ended
    }

    /// Returns the times of the busiest thread since the last call; supports one caller.
    pub(crate) fn take_busiest(&self) -> CoreTimes {
        let mut threads = self.0.lock();
        threads
            .running
            .iter_mut()
            .map(CountedThread::read)
            .max_by_key(|times| times.sum())
            .unwrap_or_default()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // The lock ensures that the clock of an ended thread is not read.
        let mut threads = self.cpu.0.lock();
        threads.ended += self.clock.cpu_time().unwrap_or_default();
        threads.running.retain(|thread| thread.clock != self.clock);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use longhaul_sys::host::thread_cpu_time;

    use super::*;

    #[test]
    fn only_the_busiest_of_the_jobs_own_threads_counts() {
        const WORK: Duration = Duration::from_millis(60);
        let (cpu, other, barrier) = (JobCpu::default(), JobCpu::default(), Barrier::new(3));
        let work = || {
            let before = thread_cpu_time();
            while thread_cpu_time() - before < WORK {}
            barrier.wait();
            barrier.wait();
        };
        std::thread::scope(|threads| {
            (0..2).for_each(|_| drop(threads.spawn(|| cpu.count(work))));
            barrier.wait();
            let busiest = cpu.take_busiest().ran;
            assert!((WORK..WORK * 2).contains(&busiest), "{busiest:?}");
            assert!(cpu.take_busiest().ran < WORK / 2, "the threads wait");
            barrier.wait();
        });
        other.count(|| ());
        assert!(cpu.total() >= WORK * 2 && other.total() < WORK, "{:?} {:?}", cpu.total(), other.total());
    }

    #[test]
    fn schedstat_is_time_on_a_core_and_waiting_for_one() {
        let (ran, starved) = (Duration::from_micros(2), Duration::from_micros(3));
        assert_eq!(core_times(b"2000 3000 7\n"), Some(CoreTimes { ran, starved }));
        for bad in [&b""[..], b"2000", b"2000 x", b"\xff 1 2"] {
            assert_eq!(core_times(bad), None);
        }
    }
}
