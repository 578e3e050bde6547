//! For which share of the time each limit held a transfer back.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::LimitedBy;

/// Shares of a whole, in millionths; serialised as an object of limit -> share from 0 to 1, without
/// those that are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares([u32; LimitedBy::ALL.len()]);

/// Shares are kept in millionths.
const WHOLE: f64 = 1e6;

impl Shares {
    /// Makes shares of the times that each limit lasted.
    pub fn of(times: impl IntoIterator<Item = (LimitedBy, Duration)>) -> Self {
        let mut sums = [0.0; LimitedBy::ALL.len()];
        for (limit, time) in times {
            sums[limit as usize] += time.as_secs_f64();
        }
        let whole: f64 = sums.iter().sum();
        Self(sums.map(|time| if whole > 0.0 { (time / whole * WHOLE).round() as u32 } else { 0 }))
    }

    /// Returns the share of a limit, from 0 to 1.
    pub fn get(&self, limit: LimitedBy) -> f64 {
        f64::from(self.0[limit as usize]) / WHOLE
    }

    /// Returns the limits that held the transfer back, the longest first.
    pub fn ranked(&self) -> Vec<(LimitedBy, f64)> {
        let mut ranked: Vec<_> = LimitedBy::ALL.into_iter().map(|limit| (limit, self.get(limit))).collect();
        ranked.retain(|(_, share)| *share > 0.0);
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.ranked().into_iter().map(|(limit, share)| (limit.name(), share)))
    }
}

impl<'de> Deserialize<'de> for Shares {
    /// Reads an object of limits; one that is not known is left out.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = std::collections::BTreeMap::<String, f64>::deserialize(deserializer)?;
        let mut shares = Self::default();
        for limit in LimitedBy::ALL {
            let share = named.get(limit.name()).copied().unwrap_or(0.0);
            shares.0[limit as usize] = (share.clamp(0.0, 1.0) * WHOLE).round() as u32;
        }
        Ok(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_whole_ranked_and_read_again() {
        let seconds = |n| Duration::from_secs(n);
        let shares = Shares::of([
            (LimitedBy::SlowStart, seconds(1)),
            (LimitedBy::Loss, seconds(2)),
            (LimitedBy::Loss, seconds(1)),
        ]);
        assert_eq!(shares.ranked(), [(LimitedBy::Loss, 0.75), (LimitedBy::SlowStart, 0.25)]);
        assert_eq!(serde_json::to_string(&shares).unwrap(), r#"{"loss":0.75,"slow-start":0.25}"#);
        assert_eq!(Shares::of([]).ranked(), []);
        // Unknown limits are left out.
        let read: Shares = serde_json::from_str(r#"{"loss":0.75,"eclipse":0.2,"path":7}"#).unwrap();
        assert_eq!(read.ranked(), [(LimitedBy::Path, 1.0), (LimitedBy::Loss, 0.75)]);
        assert!(serde_json::from_str::<Shares>(r#"{"loss":"much"}"#).is_err());
    }
}
