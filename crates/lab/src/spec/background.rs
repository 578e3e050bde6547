//! The load of background traffic over time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::{Rate, Rtt};
use thiserror::Error;

/// Background traffic over time, written "200Mbit", "20%" or "0@0s,20%@8s,50%@16s".
///
/// Steps are sorted by time; without steps there is no background traffic.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackgroundSteps(Vec<BackgroundStep>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct BackgroundStep {
    from: Duration,
    load: BackgroundLoad,
}

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
}

impl BackgroundSteps {
    /// Creates traffic of a constant mean rate from the path's first packet on.
    pub fn steady(rate: Rate) -> Self {
        Self(vec![BackgroundStep { from: Duration::ZERO, load: BackgroundLoad::Rate(rate) }])
    }

    /// Returns the start of each step since the path's first packet, and its mean rate on a path of rate `path`.
    pub fn on(&self, path: Rate) -> Vec<(Duration, Rate)> {
        self.0.iter().map(|step| (step.from, step.load.of(path))).collect()
    }

    /// Returns whether there is never any traffic.
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|step| {
            matches!(step.load, BackgroundLoad::Percent(0.0))
                || step.load == BackgroundLoad::Rate(Rate::default())
        })
    }
}

/// The text specifies no background traffic.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{text}' is no background traffic: {why}; write a rate, a share of the path's, or either from a time on, as in \
     200Mbit, 20%, or 0@0s,20%@8s,50%@16s"
)]
pub struct ParseBackgroundError {
    text: String,
    why: String,
}

impl FromStr for BackgroundSteps {
    type Err = ParseBackgroundError;

    /// Parses steps separated by commas or blanks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| ParseBackgroundError { text: text.to_owned(), why };
        let mut steps: Vec<BackgroundStep> = Vec::new();
        for step in text.split([',', ' ']).filter(|step| !step.is_empty()) {
            let step = read_step(step).map_err(failed)?;
            if let Some(before) = steps.last().filter(|before| before.from >= step.from) {
                return Err(failed(format!("{:?} does not come after {:?}", step.from, before.from)));
            }
            steps.push(step);
        }
        if steps.is_empty() { Err(failed("nothing stands there".to_owned())) } else { Ok(Self(steps)) }
    }
}

fn read_step(text: &str) -> Result<BackgroundStep, String> {
    let (load, from) = text.split_once('@').unwrap_or((text, "0s"));
    let from = from.parse::<Rtt>().map_err(|error| error.to_string())?.get();
    let load = match load.strip_suffix('%') {
        None => BackgroundLoad::Rate(load.parse::<Rate>().map_err(|error| error.to_string())?),
        Some(percent) => match percent.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => BackgroundLoad::Percent(percent),
            _ => return Err(format!("{load} is not between 0% and 100%")),
        },
    };
    Ok(BackgroundStep { from, load })
}

impl fmt::Display for BackgroundSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        for (index, BackgroundStep { from, load }) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            match load {
                BackgroundLoad::Rate(rate) => write!(f, "{}", rate.as_bits_per_sec())?,
                BackgroundLoad::Percent(percent) => write!(f, "{percent}%")?,
            }
            write!(f, "@{}s", from.as_secs_f64())?;
        }
        Ok(())
    }
}
