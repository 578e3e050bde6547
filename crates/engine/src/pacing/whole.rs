//! What one connection's share of a path makes the path.

use longhaul_core::units::Rate;

/// The rate of a path that several connections share, from the share of one.
///
/// It is reckoned when that share is measured, not when it is told: those who had the rest may have gone by then.
#[derive(Debug, Default)]
pub(super) struct Whole {
    share: Option<Rate>,
    path: Rate,
}

impl Whole {
    /// Takes a share for that of each of so many connections, where it is another than before; returns the path's rate.
    pub(super) fn measure(&mut self, share: Rate, sharing: impl FnOnce() -> u32) -> Rate {
        if self.share.replace(share) != Some(share) {
            self.path = Rate::bits_per_sec(share.as_bits_per_sec().saturating_mul(sharing().max(1).into()));
        }
        self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: fn(u64) -> Rate = |mbit| Rate::bits_per_sec(mbit * 1_000_000);

    #[test]
    fn the_path_stays_what_it_was_when_its_share_was_measured() {
        let mut whole = Whole::default();
        assert_eq!(whole.measure(MBIT(100), || 4), MBIT(400));
        // The others have gone, or more have come: nothing was measured since.
        assert_eq!(whole.measure(MBIT(100), || 1), MBIT(400));
        assert_eq!(whole.measure(MBIT(100), || 9), MBIT(400));
        assert_eq!(whole.measure(MBIT(110), || 1), MBIT(110));
        assert_eq!(whole.measure(MBIT(90), || 0), MBIT(90));
        assert_eq!(whole.measure(MBIT(u64::MAX / 1_000_000), || 2), Rate::bits_per_sec(u64::MAX));
    }
}
