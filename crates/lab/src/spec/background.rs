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

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<(f64, u64)> {
        let steps: BackgroundSteps = text.parse().unwrap();
        assert_eq!(steps.to_string().parse(), Ok(steps.clone()), "{steps}");
        let on = steps.on(Rate::bits_per_sec(1_000_000_000));
        on.into_iter().map(|(from, rate)| (from.as_secs_f64(), rate.as_bits_per_sec())).collect()
    }

    #[test]
    fn reads_rates_shares_and_steps() {
        assert_eq!(steps("200Mbit"), [(0.0, 200_000_000)]);
        assert_eq!(steps("12.5%"), [(0.0, 125_000_000)]);
        let changing = [(0.0, 0), (8.0, 200_000_000), (16.5, 500_000_000)];
        assert_eq!(steps("0@0s,20%@8s,500M@16500ms"), changing);
        assert_eq!(steps("0  20%@8s, 50%@16.5s"), changing);
        assert!("0,0%@3s".parse::<BackgroundSteps>().unwrap().is_none());
        assert!(BackgroundSteps::default().is_none());
        assert!(!"0,1%@3s".parse::<BackgroundSteps>().unwrap().is_none());
    }

    #[test]
    fn errors_name_the_problem() {
        for (text, expected) in [
            ("", "nothing stands there"),
            (",", "nothing stands there"),
            ("much", "'much' is not a rate"),
            ("20%@8", "'8' is not a time"),
            ("20%@", "is not a time"),
            ("101%", "101% is not between 0% and 100%"),
            ("NaN%", "NaN% is not between"),
            ("-1%", "-1% is not between"),
            ("0@8s,20%@8s", "8s does not come after 8s"),
            ("20%,0", "does not come after"),
        ] {
            let error = text.parse::<BackgroundSteps>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains("200Mbit, 20%, or 0@0s,20%@8s,50%@16s"), "{error}");
        }
    }
}
