//! What is asked of pacing: `--pace auto|off|RATE`, and the `Longhaul-Pace` header.

use std::fmt;
use std::str::FromStr;

use crate::units::Rate;

/// The header that asks a server for a pace, and tells a client which one is in force (docs/uploads.md).
pub const PACE_HEADER: &str = "Longhaul-Pace";

/// How evenly, and at which rate, a sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// At the rate that the path holds, found and followed by [`crate::tune::pace::Pacer`].
    #[default]
    Auto,
    /// As the congestion control likes.
    Off,
    /// At most at this rate, evenly.
    Rate(Rate),
}

impl Pace {
    /// Returns what stands in [`PACE_HEADER`]: a rate is a number of bits per second.
    pub fn header(self) -> String {
        match self {
            Self::Rate(rate) => rate.as_bits_per_sec().to_string(),
            other => other.to_string(),
        }
    }

    /// Returns the stricter of what both sides want: a server's own limit holds whatever a client asks for.
    pub fn within(self, limit: Self) -> Self {
        match (self, limit) {
            (Self::Rate(asked), Self::Rate(limit)) => Self::Rate(asked.min(limit)),
            (_, limit @ Self::Rate(_)) => limit,
            (asked, _) => asked,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

/// Why a text is no pace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePaceError {
    /// Nothing would be sent.
    #[error("a pace of nothing sends nothing: write auto, off, or a rate")]
    Nothing,
    /// It is no rate either.
    #[error("'{0}' is no pace: write auto, off, or a rate as in 860Mbit")]
    Unknown(String),
}

impl FromStr for Pace {
    type Err = ParsePaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            rate => match rate.parse::<Rate>() {
                Ok(rate) if rate.as_bytes_per_sec() > 0 => Ok(Self::Rate(rate)),
                Ok(_) => Err(ParsePaceError::Nothing),
                Err(_) => Err(ParsePaceError::Unknown(rate.to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["auto", "off", "860Mbit"] {
            let pace: Pace = text.parse().unwrap();
            assert_eq!(pace.to_string().replace(' ', "").parse(), Ok(pace), "{text}");
        }
        assert_eq!("0".parse::<Pace>(), Err(ParsePaceError::Nothing));
        for text in ["", "on", "-1Mbit", "fast"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_servers_limit_holds() {
        let rate = |mbit: u64| Pace::Rate(Rate::bits_per_sec(mbit * 1_000_000));
        assert_eq!(Pace::Off.within(rate(5)), rate(5));
        assert_eq!(rate(9).within(rate(5)), rate(5));
        assert_eq!(rate(3).within(rate(5)), rate(3));
        assert_eq!(rate(3).within(Pace::Auto), rate(3));
        assert_eq!(Pace::Off.within(Pace::Auto), Pace::Off);
        assert_eq!(Pace::Auto.within(Pace::Off), Pace::Auto);
    }
}
