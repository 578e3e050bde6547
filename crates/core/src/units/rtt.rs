//! A round-trip time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::number::{ParseUnitError, parse};
use super::seconds;

/// A round-trip time, written "200ms", "0.2s" or "50us"; serialised as seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rtt(#[serde(with = "seconds")] Duration);

impl Rtt {
    /// Creates a round-trip time.
    pub const fn new(time: Duration) -> Self {
        Self(time)
    }

    /// Returns the time.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Rtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_secs_f64() * 1e3;
        let digits = if ms >= 10.0 { 0 } else { 2 };
        f.pad(&format!("{ms:.digits$} ms"))
    }
}

impl FromStr for Rtt {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = |number, unit: &str| {
            Some(match unit {
                "s" => 1e9,
                "ms" => 1e6,
                "us" | "µs" => 1e3,
                "" if number == 0.0 => 1.0,
                _ => return None,
            })
        };
        let nanos = parse(text, ("time", "a unit, as in 200ms, 0.2s or 50us"), nanos)?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_only_with_a_unit() {
        assert_eq!("200ms".parse(), Ok(Rtt(Duration::from_millis(200))));
        assert_eq!("0.2s".parse(), Ok(Rtt(Duration::from_millis(200))));
        assert_eq!("50us".parse(), Ok(Rtt(Duration::from_micros(50))));
        assert_eq!(Rtt(Duration::from_millis(200)).to_string(), "200 ms");
        for text in ["200", "ms", "1h", "-1ms"] {
            assert!(text.parse::<Rtt>().is_err(), "{text}");
        }
    }
}
