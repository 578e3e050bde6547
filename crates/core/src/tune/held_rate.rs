//! A path's rate from an earlier transfer, and the initial window that a server may set by it.
//!
//! The window is half of the BDP, because the path's capacity may have changed (Careful Resume, RFC
//! 9959).

use crate::tune::INITIAL_SEGMENTS;
use crate::units::{Bytes, Rate, Rtt};

/// The rate and minimum RTT of a path, from an earlier transfer or another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRate {
    /// The rate sustained by one connection, or by all connections of one client together.
    pub rate: Rate,
    /// The minimum RTT.
    pub rtt: Rtt,
}

/// The share of the earlier BDP that is sent at once (RFC 9959, section 3.3).
const INITIAL_SHARE: f64 = 0.5;
/// The largest ratio of the RTTs, in either direction, at which two measurements count as one path.
/// Stricter than the RFC's tenfold, because the earlier RTT is a minimum.
const MAX_RTT_RATIO: f64 = 2.0;
/// The largest initial window in segments: about one second at 1 Gbit/s, more than receivers
/// usually advertise.
const MAX_INITIAL_WINDOW: u64 = 100_000;

impl HeldRate {
    /// Returns whether a path with this RTT may be the path of the earlier transfer.
    pub fn may_hold_at(&self, rtt: Rtt) -> bool {
        let (known, rtt) = (self.rtt.get().as_secs_f64(), rtt.get().as_secs_f64());
        (known / MAX_RTT_RATIO..=known * MAX_RTT_RATIO).contains(&rtt)
    }

    /// Returns the initial window in segments of this size; `None` if the kernel's default of ten
    /// suffices.
    pub fn initial_window(&self, segment: Bytes) -> Option<u32> {
        let window = self.rate.scaled(INITIAL_SHARE).bdp(self.rtt).get() / segment.get().max(1);
        let window = u32::try_from(window.min(MAX_INITIAL_WINDOW)).ok()?;
        (u64::from(window) > INITIAL_SEGMENTS).then_some(window)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn known(mbit: u64, ms: u64) -> HeldRate {
        HeldRate { rate: Rate::mbit(mbit), rtt: Rtt::new(Duration::from_millis(ms)) }
    }

    #[test]
    fn initial_window_is_half_of_the_bdp_of_the_same_path() {
        let segment = Bytes::new(1448);
        // 100 Mbit/s x 100 ms = 1.25 MB.
        assert_eq!(known(100, 100).initial_window(segment), Some(1_250_000 / 2 / 1448));
        assert_eq!(known(1, 100).initial_window(segment), None);
        assert_eq!(known(400_000, 300).initial_window(segment), Some(100_000));
        assert!(known(100, 100).initial_window(Bytes::ZERO).is_some());
        // An RTT outside half to twice is another path.
        let holds = |ms| known(100, 100).may_hold_at(Rtt::new(Duration::from_millis(ms)));
        assert_eq!([0, 49, 51, 100, 199, 201].map(holds), [false, false, true, true, true, false]);
    }
}
