//! How large the application buffer must be: ICDC's ring, sized by what the disk was seen to do.
//!
//! While the writers stand still, data goes on arriving at the path's rate. What the buffer cannot take stays in
//! the socket, RWIN closes, and a long path needs round trips to come back. So the buffer should hold what arrives
//! during a stall, and one BDP more, which is in flight when the stall is noticed at the sender.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// What the buffers of a process may hold before anything was measured (UsadaFox, 64 MB).
pub const START: Bytes = Bytes::mib(64);
/// What no buffer needs to exceed (ICDC's ring, 4 GB).
pub const LARGEST: Bytes = Bytes::gib(4);
/// The share of available memory that all buffers together may grow by.
const SHARE: u64 = 8;

/// Returns how much more buffers may grow by that have grown by `drawn`, on a host with so much memory available.
pub fn growth_left(available: Bytes, drawn: Bytes) -> Bytes {
    // What they hold already is no longer among what is available.
    Bytes::new((available + drawn).get() / SHARE).saturating_sub(drawn)
}

/// Chooses the size of one transfer's application buffer; it only grows.
#[derive(Debug, Clone, Default)]
pub struct RingTuner {
    size: Bytes,
    /// The highest rate that was seen: after a stall the path must reach it again.
    best: Rate,
}

impl RingTuner {
    /// Observes that the buffer is full, when the writers have stood still for `stall` at most, and data came at
    /// `rate` with a round trip of `rtt`; returns the size to have.
    ///
    /// size = rate x (2 x stall + RTT): a stall that is under way is as likely as not to last as long again.
    pub fn observe(&mut self, stall: Duration, rate: Rate, rtt: Rtt) -> Bytes {
        self.best = self.best.max(rate);
        let covered = stall.saturating_mul(2).saturating_add(rtt.get());
        let needed = self.best.bdp(Rtt::new(covered));
        self.size = self.size.max(needed.min(LARGEST));
        self.size
    }
}

/// For how long the writers of a file stood still; `now` counts from any fixed moment.
#[derive(Debug, Clone, Default)]
pub struct Stalls {
    under_way: usize,
    /// When a write was last done, or the first of those under way begun.
    since: Duration,
    longest: Duration,
}

impl Stalls {
    /// Notes that a write begins.
    pub fn begin(&mut self, now: Duration) {
        if self.under_way == 0 {
            self.since = now;
        }
        self.under_way += 1;
    }

    /// Notes that one is done.
    pub fn done(&mut self, now: Duration) {
        self.longest = self.longest(now);
        self.under_way = self.under_way.saturating_sub(1);
        self.since = now;
    }

    /// Returns the longest time for which there was something to write and nothing was done, up to `now`.
    pub fn longest(&self, now: Duration) -> Duration {
        let present = if self.under_way > 0 { now.saturating_sub(self.since) } else { Duration::ZERO };
        self.longest.max(present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::bits_per_sec(10_000_000_000);
    const LONG: Rtt = Rtt::new(Duration::from_millis(200));
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_disk_that_keeps_up_needs_no_more_than_the_start() {
        let mut tuner = RingTuner::default();
        assert!(tuner.observe(MS(5), Rate::bits_per_sec(100_000_000), LONG) < START);
    }

    #[test]
    fn it_covers_twice_the_stall_and_a_bdp() {
        let mut tuner = RingTuner::default();
        // 1.25 GB/s for 2 x 300 ms + 200 ms.
        assert_eq!(tuner.observe(MS(300), RATE, LONG), Bytes::new(1_000_000_000));
        // Slower for once: it stays, for the path may come back.
        assert_eq!(tuner.observe(MS(300), Rate::default(), LONG), Bytes::new(1_000_000_000));
        assert_eq!(tuner.observe(MS(400), Rate::default(), LONG), Bytes::new(1_250_000_000));
    }

    #[test]
    fn memory_bounds_it() {
        assert_eq!(RingTuner::default().observe(Duration::MAX, RATE, LONG), LARGEST);
        let (mut available, mut drawn) = (Bytes::gib(64), Bytes::ZERO);
        // However many there are, together they have an eighth.
        for _ in 0..16 {
            let more = growth_left(available, drawn).min(LARGEST);
            (available, drawn) = (available - more, drawn + more);
        }
        assert_eq!(drawn, Bytes::gib(8));
        // Others have taken memory meanwhile.
        assert_eq!(growth_left(Bytes::gib(8), drawn), Bytes::ZERO);
    }

    #[test]
    fn a_stall_is_time_in_which_nothing_was_done_though_there_was_work() {
        let mut stalls = Stalls::default();
        stalls.begin(MS(100));
        stalls.begin(MS(110));
        assert_eq!(stalls.longest(MS(120)), MS(20));
        stalls.done(MS(130));
        stalls.done(MS(140));
        // Idle: nobody waits.
        assert_eq!(stalls.longest(MS(9_000)), MS(30));
        stalls.begin(MS(10_000));
        // Still under way.
        assert_eq!(stalls.longest(MS(10_500)), MS(500));
        stalls.done(MS(10_010));
        assert_eq!(stalls.longest(MS(20_000)), MS(30));
    }
}
