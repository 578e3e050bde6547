//! Sizes the application buffer (ICDC's ring) by the stalls of the disk.
//!
//! During a stall of the writers, data arrives at the path's rate. When the buffer is full, data
//! remains in the socket, the receive window closes, and a long path needs several RTTs to recover.
//! The buffer therefore holds the data that arrives during a stall, plus one BDP, which is in
//! flight when the window closes.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// The total size of all buffers of a process before a stall was measured (UsadaFox, 64 MB).
pub const INITIAL_SIZE: Bytes = Bytes::mib(64);
/// The largest size (ICDC's ring, 4 GB).
pub const MAX_SIZE: Bytes = Bytes::gib(4);
/// The shortest time without a completed write that counts as a stall: the initial size covers
/// shorter ones at 10 Gbit/s. A disk that is constantly a little too slow needs no larger buffer.
const MIN_STALL: Duration = Duration::from_millis(50);
/// The total growth of all buffers is limited to one part in this many of the available memory.
const MEMORY_SHARE: u64 = 8;

/// Returns the further growth permitted to buffers that have grown by `drawn`, with `available`
/// memory on the host.
pub fn growth_left(available: Bytes, drawn: Bytes) -> Bytes {
    // `drawn` is already missing from `available`.
    Bytes::new((available + drawn).get() / MEMORY_SHARE).saturating_sub(drawn)
}

/// Chooses the size of one transfer's application buffer, which never shrinks.
#[derive(Debug, Clone, Default)]
pub struct AppBufferTuner {
    size: Bytes,
    /// The highest rate so far, which the path must reach again after a stall.
    best: Rate,
}

impl AppBufferTuner {
    /// Observes a full buffer: the longest stall of the writers so far, the rate of arrival and the
    /// RTT; returns the new size.
    ///
    /// size = rate x (2 x stall + RTT): a stall in progress is expected to double its length.
    pub fn observe(&mut self, stall: Duration, rate: Rate, rtt: Rtt) -> Bytes {
        self.best = self.best.max(rate);
        if stall < MIN_STALL {
            return self.size;
        }
        let covered = stall.saturating_mul(2).saturating_add(rtt.get());
        let needed = self.best.bdp(Rtt::new(covered));
        self.size = self.size.max(needed.min(MAX_SIZE));
        self.size
    }
}

/// Measures the stalls of a file's writers; `now` is the time since a fixed moment.
#[derive(Debug, Clone, Default)]
pub struct WriterStalls {
    in_progress: usize,
    /// The time of the last completed write, or of the start of the first write in progress.
    since: Duration,
    longest: Duration,
}

impl WriterStalls {
    /// Records the start of a write.
    pub fn begin(&mut self, now: Duration) {
        if self.in_progress == 0 {
            self.since = now;
        }
        self.in_progress += 1;
    }

    /// Records the completion of a write.
    pub fn done(&mut self, now: Duration) {
        self.longest = self.longest(now);
        self.in_progress = self.in_progress.saturating_sub(1);
        self.since = now;
    }

    /// Returns the longest time, up to `now`, in which writes were in progress and none was
    /// completed.
    pub fn longest(&self, now: Duration) -> Duration {
        let present = if self.in_progress > 0 { now.saturating_sub(self.since) } else { Duration::ZERO };
        self.longest.max(present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::mbit(10_000);
    const LONG: Rtt = Rtt::new(Duration::from_millis(200));
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn buffer_covers_twice_the_stall_and_a_bdp_beyond_its_initial_size() {
        let mut tuner = AppBufferTuner::default();
        // 1.25 GB/s for 2 x 300 ms + 200 ms.
        assert_eq!(tuner.observe(MS(300), RATE, LONG), Bytes::new(1_000_000_000));
        // A lower rate does not shrink the buffer, because the path may recover.
        assert_eq!(tuner.observe(MS(300), Rate::default(), LONG), Bytes::new(1_000_000_000));
        assert_eq!(tuner.observe(MS(400), Rate::default(), LONG), Bytes::new(1_250_000_000));
        // While the disk keeps up, its initial size is enough.
        let mut tuner = AppBufferTuner::default();
        assert!(tuner.observe(MS(60), Rate::mbit(100), LONG) < INITIAL_SIZE);
        assert!(tuner.observe(MS(49), RATE, LONG) < INITIAL_SIZE, "its share of 64 MiB covers that");
        assert!(tuner.observe(MS(60), RATE, LONG) > INITIAL_SIZE);
    }

    #[test]
    fn buffers_grow_by_at_most_an_eighth_of_memory() {
        assert_eq!(AppBufferTuner::default().observe(Duration::MAX, RATE, LONG), MAX_SIZE);
        let (mut available, mut drawn) = (Bytes::gib(64), Bytes::ZERO);
        // Any number of buffers share an eighth of the memory.
        for _ in 0..16 {
            let more = growth_left(available, drawn).min(MAX_SIZE);
            (available, drawn) = (available - more, drawn + more);
        }
        assert_eq!(drawn, Bytes::gib(8));
        // Other processes have allocated memory since.
        assert_eq!(growth_left(Bytes::gib(8), drawn), Bytes::ZERO);
    }

    #[test]
    fn stall_is_time_without_completed_writes_while_writes_are_in_progress() {
        let mut stalls = WriterStalls::default();
        stalls.begin(MS(100));
        stalls.begin(MS(110));
        assert_eq!(stalls.longest(MS(120)), MS(20));
        stalls.done(MS(130));
        stalls.done(MS(140));
        // Idle: no write is in progress.
        assert_eq!(stalls.longest(MS(9_000)), MS(30));
        stalls.begin(MS(10_000));
        // The write is still in progress.
        assert_eq!(stalls.longest(MS(10_500)), MS(500));
        stalls.done(MS(10_010));
        assert_eq!(stalls.longest(MS(20_000)), MS(30));
    }
}
