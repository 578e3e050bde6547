//! The option `--pace auto|off|RATE`, and the `Longhaul-Pace` header field.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::tune::pace::HeldRate;
use crate::units::{Rate, Rtt};

/// The header field in which a client requests a pace, and a server reports the pace in force
/// (docs/uploads.md).
pub const PACE_HEADER: &str = "Longhaul-Pace";

/// The pacing of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// The capacity of the path, measured by [`crate::tune::pace::Pacer`].
    #[default]
    Auto,
    /// None beyond that of the congestion control.
    Off,
    /// At most this rate.
    Rate(Rate),
}

impl Pace {
    /// Parses the value of the option; a rate needs an explicit unit, see [`Rate::with_unit`].
    ///
    /// # Errors
    /// A message with both spellings if a rate has no unit, otherwise that of [`ParsePaceError`].
    pub fn with_unit(text: &str) -> Result<Self, String> {
        let pace = text.parse::<Self>().map_err(|error| error.to_string())?;
        if let Self::Rate(_) = pace {
            Rate::with_unit(text)?;
        }
        Ok(pace)
    }

    /// Returns the rate, if it is fixed.
    pub fn rate(self) -> Option<Rate> {
        if let Self::Rate(rate) = self { Some(rate) } else { None }
    }

    /// Returns the option's value, without rounding.
    pub fn option(self) -> String {
        match self {
            Self::Rate(rate) => format!("{}bit", rate.as_bits_per_sec()),
            other => other.to_string(),
        }
    }

    /// Returns the value of [`PACE_HEADER`]; a rate is a number of bits per second.
    pub fn header(self) -> String {
        match self {
            Self::Rate(rate) => rate.as_bits_per_sec().to_string(),
            other => other.to_string(),
        }
    }

    /// Returns the requested pace, reduced to the server's `limit` if that is a rate.
    pub fn within(self, limit: Self) -> Self {
        match (self, limit) {
            (Self::Rate(requested), Self::Rate(limit)) => Self::Rate(requested.min(limit)),
            (_, limit @ Self::Rate(_)) => limit,
            (requested, _) => requested,
        }
    }
}

/// A client's [`PACE_HEADER`]: the requested pace, and the rate that the path carried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceRequest {
    /// The requested pace.
    pub pace: Pace,
    /// The rate that the path carried when last used.
    pub known: Option<HeldRate>,
}

impl PaceRequest {
    /// Returns the field's value, such as `auto;held=930000000;rtt=0.2`: bits per second, and
    /// seconds.
    pub fn header(&self) -> String {
        let pace = self.pace.header();
        match self.known {
            None => pace,
            Some(HeldRate { rate, rtt }) => {
                format!("{pace};held={};rtt={}", rate.as_bits_per_sec(), rtt.get().as_secs_f64())
            }
        }
    }

    /// Parses the field's value; ignores an invalid `held` or `rtt`.
    ///
    /// # Errors
    /// If the pace itself is invalid.
    pub fn parse(text: &str) -> Result<Self, ParsePaceError> {
        let (pace, memory) = text.split_once(';').unwrap_or((text, ""));
        let value = |name: &str| {
            memory.split(';').filter_map(|part| part.split_once('=')).find(|(key, _)| key.trim() == name)
        };
        let rate = value("held").and_then(|(_, rate)| rate.trim().parse().ok());
        let rtt = value("rtt").and_then(|(_, rtt)| rtt.trim().parse().ok());
        let rtt = rtt.and_then(|rtt| Duration::try_from_secs_f64(rtt).ok());
        let known =
            rate.zip(rtt).map(|(rate, rtt)| HeldRate { rate: Rate::bits_per_sec(rate), rtt: Rtt::new(rtt) });
        Ok(Self { pace: pace.parse()?, known })
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

/// The reason why a text is not a pace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePaceError {
    /// The rate is zero.
    #[error("a pace of zero sends nothing: write auto, off, or a rate")]
    Nothing,
    /// Neither `auto`, `off`, nor a rate.
    #[error("'{0}' is not a pace: write auto, off, or a rate as in 860Mbit")]
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
    fn written_paces_are_parsed_as_equal_and_need_a_unit() {
        for text in ["auto", "off", "860Mbit"] {
            let pace: Pace = text.parse().unwrap();
            assert_eq!(pace.to_string().replace(' ', "").parse(), Ok(pace), "{text}");
        }
        assert_eq!("0".parse::<Pace>(), Err(ParsePaceError::Nothing));
        for text in ["", "on", "-1Mbit", "fast"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
        let error = Pace::with_unit("10M").unwrap_err();
        assert!(error.contains("10Mbit") && error.contains("10MiB"), "{error}");
        assert!(Pace::with_unit("0").unwrap_err().contains("auto, off"));
        for text in ["auto", "off", "10Mbit", "1.25MB/s", "12345678bit"] {
            let pace: Pace = text.parse().unwrap();
            assert_eq!([text, &pace.option()].map(Pace::with_unit), [Ok(pace), Ok(pace)]);
        }
    }

    #[test]
    fn request_carries_the_known_rate_and_rtt() {
        let known = HeldRate { rate: Rate::mbit(930), rtt: Rtt::new(Duration::from_millis(200)) };
        let request = PaceRequest { pace: Pace::Auto, known: Some(known) };
        assert_eq!(request.header(), "auto;held=930000000;rtt=0.2");
        assert_eq!(PaceRequest::parse(&request.header()), Ok(request));
        assert_eq!(PaceRequest::parse(" auto ; rtt=0.2 ; held=930000000;more"), Ok(request));
        let plain = PaceRequest { pace: Pace::Off, known: None };
        assert_eq!(PaceRequest::parse(&plain.header()), Ok(plain));
        // What is invalid is ignored.
        for memory in "|held=1|rtt=1|held=;rtt=|held=-1;rtt=1|held=1;rtt=-1|held=1;rtt=NaN|\
            held=1;rtt=1e300|held=99999999999999999999;rtt=1|=;==;;;|held=1e9;rtt=0.1"
            .split('|')
        {
            let request = PaceRequest::parse(&format!("auto;{memory}"));
            assert_eq!(request, Ok(PaceRequest { pace: Pace::Auto, known: None }), "{memory}");
        }
        assert!(PaceRequest::parse("held=1;rtt=1").is_err());
    }

    #[test]
    fn servers_rate_limits_every_requested_pace() {
        let rate = |mbit| Pace::Rate(Rate::mbit(mbit));
        for (requested, of_server, used) in [
            (Pace::Off, rate(5), rate(5)),
            (rate(9), rate(5), rate(5)),
            (rate(3), rate(5), rate(3)),
            (rate(3), Pace::Auto, rate(3)),
            (Pace::Off, Pace::Auto, Pace::Off),
            (Pace::Auto, Pace::Off, Pace::Auto),
        ] {
            assert_eq!(requested.within(of_server), used, "{requested} within {of_server}");
        }
    }
}
