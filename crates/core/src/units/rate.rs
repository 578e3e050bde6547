//! A rate in bits per second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::number::{ParseUnitError, parse, split};
use super::{Bytes, Rtt};

/// A rate in bits per second, written with SI prefixes ("10Gbit"), or in bytes ("1.25GB/s").
///
/// Serialised as an integer of bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    /// Creates a rate of `n` bits per second.
    pub const fn bits_per_sec(n: u64) -> Self {
        Self(n)
    }

    /// Creates a rate of `n` bytes per second.
    pub const fn bytes_per_sec(n: u64) -> Self {
        Self(n.saturating_mul(8))
    }

    /// Returns the mean rate of `bytes` in `time`; zero if `time` is zero.
    pub fn over(bytes: Bytes, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        if seconds > 0.0 { Self((bytes.get() as f64 * 8.0 / seconds) as u64) } else { Self(0) }
    }

    /// Returns the rate times a factor; zero for a negative factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }

    /// Returns bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0
    }

    /// Returns bytes per second, rounded down.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Returns the time that `bytes` take at this rate; `Duration::MAX` if the rate is zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes.get()) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that pass in `time`, rounded down; saturates.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = u128::from(self.0).saturating_mul(time.as_nanos()) / 8_000_000_000;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns the bandwidth-delay product, rate x RTT: the bytes in flight on a full path.
    pub fn bdp(self, rtt: Rtt) -> Bytes {
        self.bytes_in(rtt.get())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(f64, &str); 4] = [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
        let rate = self.0 as f64;
        match UNITS.iter().find(|(size, _)| rate >= *size) {
            Some((size, unit)) => {
                let value = rate / size;
                let digits = if value >= 100.0 {
                    0
                } else if value >= 10.0 {
                    1
                } else {
                    2
                };
                f.pad(&format!("{value:.digits$} {unit}"))
            }
            None => f.pad(&format!("{} bit/s", self.0)),
        }
    }
}

impl std::ops::Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Rate {
    /// Parses a rate with an explicit unit: curl, wget and aria2 use 10M for bytes, but network
    /// rates are in bits.
    ///
    /// # Errors
    /// A message with both spellings if the unit is missing or only a prefix, otherwise that of
    /// [`ParseUnitError`].
    pub fn with_unit(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let rate: Self = text.parse().map_err(|error: ParseUnitError| error.to_string())?;
        let Some((number, prefix)) = split(text).filter(|_| rate != Self(0)) else { return Ok(rate) };
        let (bits, bytes) = match prefix {
            "" => ("", ""),
            "k" | "K" => ("k", "Ki"),
            "m" | "M" => ("M", "Mi"),
            "g" | "G" => ("G", "Gi"),
            "t" | "T" => ("T", "Ti"),
            _ => return Ok(rate),
        };
        Err(format!("'{text}' may mean bits or bytes: write {number}{bits}bit or {number}{bytes}B"))
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// Parses "10Gbit", "10Gbit/s", "860Mbps", "1.25GB/s", "300MiB/s" or "300MiB" with a capital B;
    /// a plain number is bits per second.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let factor = |_, unit: &str| {
            let is_bytes = unit.ends_with('B');
            let unit = unit.to_ascii_lowercase();
            let of_bytes = unit.strip_suffix("b/s").or_else(|| unit.strip_suffix('b').filter(|_| is_bytes));
            if let Some(bytes) = of_bytes {
                let size: Bytes = format!("1{bytes}b").parse().ok()?;
                return Some(size.get() as f64 * 8.0);
            }
            let prefix = ["bit/s", "bits/s", "bits", "bit", "bps"]
                .iter()
                .find_map(|suffix| unit.strip_suffix(suffix))
                .unwrap_or(&unit);
            Some(match prefix {
                "" => 1.0,
                "k" => 1e3,
                "m" => 1e6,
                "g" => 1e9,
                "t" => 1e12,
                _ => return None,
            })
        };
        let example = "bits per second, as in 10Gbit or 860Mbit/s, or bytes, as in 1.25GB/s";
        parse(text, ("rate", example), factor).map(Self)
    }
}

#[cfg(test)]
impl Rate {
    /// Creates a rate of a number of Mbit/s, as tests state them.
    pub(crate) const fn mbit(rate: u64) -> Self {
        Self(rate * 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_are_parsed_and_other_texts_refused() {
        for (text, bits) in [
            ("10Gbit", 10_000_000_000),
            ("10Gbit/s", 10_000_000_000),
            ("6.5gbps", 6_500_000_000),
            ("860M", 860_000_000),
            ("1.25GB/s", 10_000_000_000),
            ("1MiB/s", 8 << 20),
            ("10 MB", 80_000_000),
            ("1MiB", 8 << 20),
            ("100B/s", 800),
            ("64000", 64_000),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bits)), "{text}");
        }
        for text in ["", "fast", "10Gib", "-5Mbit", "10 mb", "B", "/s", "99999999999Tbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn number_without_a_unit_is_refused_with_both_spellings() {
        for (text, bits, bytes) in [
            ("10M", "10Mbit", "10MiB"),
            ("1.5g", "1.5Gbit", "1.5GiB"),
            ("500K", "500kbit", "500KiB"),
            ("64000", "64000bit", "64000B"),
        ] {
            let error = Rate::with_unit(text).unwrap_err();
            assert!(error.contains(&format!("write {bits} or {bytes}")), "{error}");
            assert!(bits.parse::<Rate>().is_ok() && bytes.parse::<Rate>().is_ok());
        }
        assert_eq!(Rate::with_unit("10MiB"), Ok(Rate(80 << 20)));
        assert_eq!(Rate::with_unit("10Mbit"), Ok(Rate(10_000_000)));
        assert!(Rate::with_unit("fast").is_err() && Rate::with_unit("M").is_err());
    }

    #[test]
    fn times_bdps_and_means_agree() {
        let (rate, bytes, time) = (Rate::mbit(8), Bytes::new(500_000), Duration::from_millis(500));
        assert_eq!((rate.time_for(bytes), rate.bytes_in(time), Rate::over(bytes, time)), (time, bytes, rate));
        assert_eq!(Rate::over(Bytes::new(1), Duration::ZERO), Rate(0));
        assert_eq!(Rate(u64::MAX).bytes_in(Duration::MAX), Bytes::new(u64::MAX));
        let rtt = Rtt::new(Duration::from_millis(200));
        assert_eq!(Rate::mbit(6500).bdp(rtt), Bytes::new(162_500_000));
        assert_eq!(Rate(u64::MAX).bdp(Rtt::new(Duration::MAX)), Bytes::new(u64::MAX));
    }
}
