//! Happy Eyeballs (RFC 8305): the order and the times of connection attempts, so that an
//! unreachable address costs 250 ms.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The Connection Attempt Delay (RFC 8305, section 8).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The next step of a race of connection attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaceStep {
    /// Start an attempt at this address, then call [`ConnectionRace::step`] again.
    Start(SocketAddr),
    /// Wait for an attempt to end, until this time at most, then call [`ConnectionRace::step`]
    /// again.
    WaitUntil(Instant),
    /// Every address has been tried: wait for the attempts in progress.
    AllStarted,
}

/// A race of connection attempts. The caller connects and passes the time.
#[derive(Debug, Clone)]
pub struct ConnectionRace {
    waiting: VecDeque<SocketAddr>,
    next_start: Instant,
}

impl ConnectionRace {
    /// Creates a race over `addresses`: in their order, alternating between the address families.
    pub fn new(addresses: &[SocketAddr], now: Instant) -> Self {
        Self { waiting: interleave(addresses).into(), next_start: now }
    }

    /// Returns the next step at `now`.
    pub fn step(&mut self, now: Instant) -> RaceStep {
        if self.waiting.is_empty() {
            return RaceStep::AllStarted;
        }
        if now < self.next_start {
            return RaceStep::WaitUntil(self.next_start);
        }
        self.next_start = now + ATTEMPT_DELAY;
        self.waiting.pop_front().map_or(RaceStep::AllStarted, RaceStep::Start)
    }

    /// Records a failed attempt; the next attempt starts at once.
    pub fn attempt_failed(&mut self, now: Instant) {
        self.next_start = now;
    }
}

/// Alternates between address families, the family of the first address first (RFC 8305, section
/// 4).
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

    #[test]
    fn attempts_alternate_between_families_at_intervals_or_at_once_after_a_failure() {
        let list = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1"]);
        // This crate must not read the clock; any instant will do.
        #[allow(clippy::disallowed_methods)]
        let start = Instant::now();
        let mut race = ConnectionRace::new(&list, start);
        assert_eq!(race.step(start), RaceStep::Start(list[0]));
        assert_eq!(race.step(start), RaceStep::WaitUntil(start + ATTEMPT_DELAY));
        assert_eq!(race.step(start + ATTEMPT_DELAY), RaceStep::Start(list[1]));
        let later = start + ATTEMPT_DELAY + Duration::from_millis(10);
        race.attempt_failed(later);
        assert_eq!(race.step(later), RaceStep::Start(list[2]));
        assert_eq!(race.step(later), RaceStep::AllStarted);
        let mixed = interleave(&addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]));
        assert_eq!(mixed, addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
        assert_eq!(interleave(&[]), []);
    }
}
