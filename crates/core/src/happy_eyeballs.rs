//! Happy eyeballs (RFC 8305): which address to try when, so that a dead one costs no more than a moment.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an attempt runs alone before the next one joins it (RFC 8305, section 8).
pub const STAGGER: Duration = Duration::from_millis(250);

/// What to do next in a race of connection attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start an attempt at this address, then ask again.
    Start(SocketAddr),
    /// Wait for an attempt to end, until this time at most, then ask again.
    WaitUntil(Instant),
    /// No address is left to start: wait for the attempts under way.
    AllStarted,
}

/// A race of connection attempts; the caller does the connecting and keeps the clock.
#[derive(Debug, Clone)]
pub struct Race {
    waiting: VecDeque<SocketAddr>,
    next_start: Instant,
}

impl Race {
    /// Makes a race over `addresses`, alternating between the families and otherwise in the order given.
    pub fn new(addresses: &[SocketAddr], now: Instant) -> Self {
        Self { waiting: interleave(addresses).into(), next_start: now }
    }

    /// Returns what to do at `now`.
    pub fn step(&mut self, now: Instant) -> Step {
        if self.waiting.is_empty() {
            return Step::AllStarted;
        }
        if now < self.next_start {
            return Step::WaitUntil(self.next_start);
        }
        self.next_start = now + STAGGER;
        self.waiting.pop_front().map_or(Step::AllStarted, Step::Start)
    }

    /// Notes that an attempt failed: the next one need not wait.
    pub fn attempt_failed(&mut self, now: Instant) {
        self.next_start = now;
    }
}

/// Alternates between address families, the family of the first address first (RFC 8305, section 4).
fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (leading, other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().partition(|a| a.is_ipv4() == first.is_ipv4());
    let mut mixed = Vec::with_capacity(addresses.len());
    let (mut leading, mut other) = (leading.into_iter(), other.into_iter());
    loop {
        let pair = [leading.next(), other.next()];
        if pair == [None, None] {
            return mixed;
        }
        mixed.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|a| a.parse().unwrap()).collect()
    }

    /// Any instant will do: the race only adds to it and compares. Core may not read the clock itself.
    #[allow(clippy::disallowed_methods)]
    fn some_instant() -> Instant {
        Instant::now()
    }

    #[test]
    fn alternates_between_families() {
        let mixed = interleave(&addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]));
        assert_eq!(mixed, addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
        assert_eq!(interleave(&[]), []);
    }

    #[test]
    fn staggers_and_hurries_after_a_failure() {
        let list = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1"]);
        let start = some_instant();
        let mut race = Race::new(&list, start);
        assert_eq!(race.step(start), Step::Start(list[0]));
        assert_eq!(race.step(start), Step::WaitUntil(start + STAGGER));
        assert_eq!(race.step(start + STAGGER), Step::Start(list[1]));
        let later = start + STAGGER + Duration::from_millis(10);
        race.attempt_failed(later);
        assert_eq!(race.step(later), Step::Start(list[2]));
        assert_eq!(race.step(later), Step::AllStarted);
    }
}
