//! What a transfer has found a path to hold, and how the next begins with it.
//!
//! The next one begins at half of the rate, and goes on only when what it sent has arrived without a queue: what
//! a path held once it may hold no more (Careful Resume, RFC 9959).

use crate::tune::INITIAL_SEGMENTS;
use crate::units::{Bytes, Rate, Rtt};

/// The rate and the RTT of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The rate that one connection held, or all of one client together.
    pub rate: Rate,
    /// The least RTT.
    pub rtt: Rtt,
}

/// The share of a known rate to begin with, as RFC 9959, section 3.3 has it for the window.
const FIRST_SHARE: f64 = 0.5;
/// A path whose RTT has become shorter than this share is another,
const SHORTER: f64 = 0.5;
/// or so many times as long: ours is the least that was seen, so it is stricter than the RFC's tenfold.
const LONGER: f64 = 2.0;
/// More segments would be a second of 1 Gbit/s, and at the mercy of the receiver's window.
const MOST_SEGMENTS: u64 = 100_000;
/// What travels with each segment's bytes is not counted; a segment is no less than this.
const SMALLEST_SEGMENT: Bytes = Bytes::new(500);

impl Known {
    /// Returns whether a path of this RTT may be the same.
    pub fn may_hold_at(&self, rtt: Rtt) -> bool {
        let (known, rtt) = (self.rtt.get().as_secs_f64(), rtt.get().as_secs_f64());
        (SHORTER * known..=LONGER * known).contains(&rtt)
    }

    /// Returns how many segments of this size the first pace sends in a round trip; `None` where the kernel's ten are as good.
    pub fn initial_window(&self, segment: Bytes) -> Option<u32> {
        let window = first_pace(self.rate).bdp(self.rtt).get() / segment.max(SMALLEST_SEGMENT).get();
        let window = u32::try_from(window.min(MOST_SEGMENTS)).ok()?;
        (u64::from(window) > INITIAL_SEGMENTS).then_some(window)
    }
}

/// Returns the pace to begin with where so much was held.
pub fn first_pace(known: Rate) -> Rate {
    known.scaled(FIRST_SHARE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn known(mbit: u64, ms: u64) -> Known {
        Known { rate: Rate::bits_per_sec(mbit * 1_000_000), rtt: Rtt::new(Duration::from_millis(ms)) }
    }

    #[test]
    fn the_window_is_half_of_the_paths() {
        let segment = Bytes::new(1448);
        // 100 Mbit/s x 100 ms = 1.25 MB.
        assert_eq!(known(100, 100).initial_window(segment), Some(1_250_000 / 2 / 1448));
        assert_eq!(known(1, 100).initial_window(segment), None);
        assert_eq!(known(400_000, 300).initial_window(segment), Some(100_000));
        assert!(known(100, 100).initial_window(Bytes::ZERO).is_some());
    }

    #[test]
    fn another_rtt_is_another_path() {
        let holds = |ms| known(100, 100).may_hold_at(Rtt::new(Duration::from_millis(ms)));
        assert_eq!([0, 49, 51, 100, 199, 201].map(holds), [false, false, true, true, true, false]);
    }
}
