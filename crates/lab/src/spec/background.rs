//! The load of background traffic over time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::Rate;

use super::{ParsePathError, steps};

/// Background traffic over time, written "200Mbit", "20%" or "0@0s,20%@8s,50%@16s".
///
/// Steps are sorted by time; without steps there is no background traffic.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackgroundSteps(Vec<(Duration, BackgroundLoad)>);

/// The mean rate of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BackgroundLoad {
    Rate(Rate),
    /// Percent of the path's rate.
    Percent(f64),
}

impl BackgroundLoad {
    fn of(self, path: Rate) -> Rate {
        match self {
            Self::Rate(rate) => rate,
            Self::Percent(percent) => {
                Rate::bits_per_sec((path.as_bits_per_sec() as f64 * percent / 100.0).round() as u64)
            }
        }
    }

    fn parse(load: &str) -> Result<Self, String> {
        match load.strip_suffix('%').map(str::parse::<f64>) {
            None => load.parse::<Rate>().map(Self::Rate).map_err(|error| error.to_string()),
            Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Ok(Self::Percent(percent)),
            Some(_) => Err(format!("{load} is not between 0% and 100%")),
        }
    }
}

impl BackgroundSteps {
    /// Creates traffic of a constant mean rate from the path's first packet on.
    pub fn steady(rate: Rate) -> Self {
        Self(vec![(Duration::ZERO, BackgroundLoad::Rate(rate))])
    }

    /// Returns the start of each step since the path's first packet, and its mean rate on a path of
    /// rate `path`.
    pub fn on(&self, path: Rate) -> Vec<(Duration, Rate)> {
        self.0.iter().map(|(from, load)| (*from, load.of(path))).collect()
    }

    /// Returns whether there is never any traffic.
    pub fn is_none(&self) -> bool {
        let nothing = [BackgroundLoad::Percent(0.0), BackgroundLoad::Rate(Rate::default())];
        self.0.iter().all(|(_, load)| nothing.contains(load))
    }
}

impl FromStr for BackgroundSteps {
    type Err = ParsePathError;

    /// Parses steps separated by commas or blanks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = match steps::parse(text, BackgroundLoad::parse) {
            Ok(steps) if !steps.is_empty() => return Ok(Self(steps)),
            Ok(_) => "nothing stands there".to_owned(),
            Err(why) => why,
        };
        Err(ParsePathError(format!(
            "'{text}' is no background traffic: {why}; write a rate, a share of the path's, or either from a time on, as in \
             200Mbit, 20%, or 0@0s,20%@8s,50%@16s"
        )))
    }
}

impl fmt::Display for BackgroundSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        f.write_str(&steps::shown(&self.0, |load| match load {
            BackgroundLoad::Rate(rate) => rate.as_bits_per_sec().to_string(),
            BackgroundLoad::Percent(percent) => format!("{percent}%"),
        }))
    }
}
