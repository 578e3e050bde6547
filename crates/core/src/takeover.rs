//! What an idle stream takes over from one that is slow, when nothing else is left to do.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// What a stream has asked for and not received, and how it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How much is outstanding.
    pub left: Bytes,
    /// How fast it came of late.
    pub rate: Rate,
    /// Of the stream's connection.
    pub rtt: Rtt,
    /// For how long nothing has come.
    pub silent: Duration,
    /// How often one was taken for stalled in this transfer.
    pub stalls: u32,
}

/// So long is never a stall, nor worth a second request.
const SHORTEST: Duration = Duration::from_secs(1);
/// A stream that is silent for so many round trips has stalled: that is past a retransmission timeout and its double.
const SILENT_RTTS: u32 = 8;
/// It is given more time each time, up to a minute and more: `--stall-timeout` is for what lasts longer.
const MOST_DOUBLINGS: u32 = 6;
/// The idle stream must be done in this share of the time: a connection is lost by it.
const WORTH: f64 = 0.5;
/// The least that is taken.
const LEAST: Bytes = Bytes::kib(256);

impl Load {
    /// Returns whether nothing has come for longer than losses explain; for twice as long as the time before, for a server that
    /// is merely slow to begin shall be waited for in the end.
    pub fn is_stalled(&self) -> bool {
        let patience = SHORTEST.max(self.rtt.get().saturating_mul(SILENT_RTTS));
        self.silent >= patience.saturating_mul(1 << self.stalls.min(MOST_DOUBLINGS))
    }

    /// Returns how much of the end an idle stream of `rate` should take; `None` where it had better not.
    ///
    /// All of what has stalled. Else so much that both are done at once, where that ends much earlier.
    pub fn worth_taking(&self, rate: Rate) -> Option<Bytes> {
        if self.left == Bytes::ZERO {
            return None;
        }
        if self.is_stalled() {
            return Some(self.left);
        }
        if self.rate == Rate::default() {
            // Not measured yet.
            return None;
        }
        let alone = self.rate.time_for(self.left);
        let both = Rate::bits_per_sec(self.rate.as_bits_per_sec().saturating_add(rate.as_bits_per_sec()));
        // The request takes a round trip, and is sent where a window may have to open anew.
        let together = both.time_for(self.left).saturating_add(self.rtt.get().saturating_mul(2));
        if alone < SHORTEST || together > alone.mul_f64(WORTH) {
            return None;
        }
        let share = rate.as_bits_per_sec() as f64 / (both.as_bits_per_sec() as f64).max(1.0);
        let part = Bytes::new((self.left.get() as f64 * share) as u64);
        (part >= LEAST).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(left: Bytes, mbit: u64, silent: u64) -> Load {
        Load {
            left,
            rate: Rate::bits_per_sec(mbit * 1_000_000),
            rtt: Rtt::new(Duration::from_millis(200)),
            silent: Duration::from_millis(silent),
            stalls: 0,
        }
    }

    const FAST: Rate = Rate::bits_per_sec(900_000_000);

    #[test]
    fn all_of_what_has_stalled() {
        assert_eq!(load(Bytes::mib(9), 100, 1599).worth_taking(Rate::default()), None);
        assert_eq!(load(Bytes::mib(9), 100, 1600).worth_taking(Rate::default()), Some(Bytes::mib(9)));
        // That has never brought anything: the same, and not before.
        assert_eq!(load(Bytes::new(1), 0, 60_000).worth_taking(FAST), Some(Bytes::new(1)));
        assert_eq!(load(Bytes::gib(1), 0, 900).worth_taking(FAST), None);
    }

    #[test]
    fn a_share_of_what_is_much_slower() {
        assert_eq!(load(Bytes::new(100_000_000), 100, 0).worth_taking(FAST), Some(Bytes::new(90_000_000)));
        // Done before the second request is answered.
        assert_eq!(load(Bytes::mib(10), 100, 0).worth_taking(FAST), None);
        // As fast itself, and the connection is lost by it.
        assert_eq!(load(Bytes::mib(900), 900, 0).worth_taking(FAST), None);
    }

    proptest! {
        /// Whatever is seen, never more than there is, and never nothing.
        #[test]
        fn within_the_load(left: u64, rate: u64, own: u64, ms in 0u64..100_000) {
            let seen = Load { left: Bytes::new(left), rate: Rate::bits_per_sec(rate), ..load(Bytes::ZERO, 0, ms) };
            if let Some(part) = seen.worth_taking(Rate::bits_per_sec(own)) {
                prop_assert!(part > Bytes::ZERO && part <= seen.left);
            }
        }
    }
}
