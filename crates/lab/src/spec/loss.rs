//! A share of lost packets, in netem's notation.

use std::fmt;
use std::str::FromStr;

use super::ParsePathError;

/// Maximum share without a unit.
const MAX_BARE: f64 = 0.01;

/// A share of packets, written "0.1%" as in tc-netem(8), or as a fraction up to 0.01.
///
/// A larger number without unit is rejected as ambiguous: netem reads 5 as 5 %, and 0.05 may mean 5
/// % or 0.05 %.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PacketShare(f64);

impl PacketShare {
    /// Returns the share, 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for PacketShare {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| ParsePathError(format!("'{text}' is no share of packets: {why}"));
        let word = text.trim();
        let (number, percent) =
            word.strip_suffix('%').map_or((word, false), |number| (number.trim_end(), true));
        let value: f64 = number.parse().map_err(|_| failed("write one like 0.1%".to_owned()))?;
        match (value, percent) {
            (0.0..=100.0, true) => Ok(Self(value / 100.0)),
            (0.0..=MAX_BARE, false) => Ok(Self(value)),
            (MAX_BARE..=1.0, false) => {
                let share = PacketShare(value);
                Err(failed(format!(
                    "without a unit it may be either: write {share} for this share, or {word}%"
                )))
            }
            (1.0..=100.0, false) => Err(failed(format!("write {word}%"))),
            _ => Err(failed("it is not between 0% and 100%".to_owned())),
        }
    }
}

/// In percent, without digits from binary rounding.
impl fmt::Display for PacketShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:.9}", self.0 * 100.0);
        write!(f, "{}%", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}
