//! Variable rates: steps in time, or a mahimahi trace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};
use thiserror::Error;

use crate::model::Line;

/// Maximum bytes of a trace file: about an hour at 1 Gbit/s.
const LARGEST_TRACE: u64 = 1 << 30;
/// Bytes per delivery opportunity of a trace.
const OPPORTUNITY: Bytes = Bytes::new(1500);

/// Schedule of the bottleneck's rate; constant by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RateSchedule {
    /// Constant.
    #[default]
    None,
    /// Each rate from its time on, since the first packet, written "100Mbit@0s,20Mbit@8s".
    Steps(Vec<(Duration, Rate)>),
    /// A mahimahi trace, mm-link(1): each line is the time in milliseconds of an opportunity to send 1500 bytes.
    Trace {
        /// The trace file.
        file: PathBuf,
        /// Times of the opportunities.
        millis: Arc<[u32]>,
    },
}

/// The text or file is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}' is no schedule of rates: {why}")]
pub struct ParseScheduleError {
    text: String,
    why: String,
}

impl RateSchedule {
    /// Reads a trace file.
    ///
    /// # Errors
    /// Fails if the file is unreadable or no trace; names the line.
    pub fn load_trace(file: &Path) -> Result<Self, ParseScheduleError> {
        let failed = |why: String| ParseScheduleError { text: file.display().to_string(), why };
        let metadata = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() || metadata.len() > LARGEST_TRACE {
            return Err(failed("it is no file, or larger than 1 GiB".to_owned()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        Ok(Self::Trace { file: file.to_owned(), millis: read_trace(&text).map_err(failed)? })
    }

    /// Returns the nominal rate, used for the queue's default size: the highest step, or the mean of a trace.
    pub fn nominal(&self) -> Option<Rate> {
        match self {
            Self::None => None,
            Self::Steps(steps) => steps.iter().map(|(_, rate)| *rate).max(),
            Self::Trace { millis, .. } => {
                let period = Duration::from_millis(u64::from(*millis.last()?));
                Some(Rate::over(OPPORTUNITY * millis.len() as u64, period))
            }
        }
    }

    /// Creates the line; `rate` applies to a constant schedule.
    pub(super) fn line(&self, rate: Rate) -> Line {
        match self {
            Self::None => Line::fixed(rate),
            Self::Steps(steps) => Line::steps(steps.clone()),
            Self::Trace { millis, .. } => Line::trace(Arc::clone(millis)),
        }
    }
}

fn read_trace(text: &str) -> Result<Arc<[u32]>, String> {
    let mut millis: Vec<u32> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: &str| {
            format!("line {}: '{}' {why}", number + 1, line.trim().chars().take(40).collect::<String>())
        };
        let time = line.trim().parse::<u32>().map_err(|_| wrong("is not a time in whole milliseconds"))?;
        if millis.last().is_some_and(|last| *last > time) {
            return Err(wrong("comes before the line above it"));
        }
        millis.push(time);
    }
    match millis.last() {
        None => {
            Err("it has no lines; each is a time in milliseconds at which 1500 bytes may leave".to_owned())
        }
        Some(0) => Err("all its times are 0: the last is the period, after which it starts over".to_owned()),
        Some(_) => Ok(Arc::from(millis)),
    }
}

impl FromStr for RateSchedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| ParseScheduleError { text: text.to_owned(), why };
        if text.trim() == "none" {
            return Ok(Self::None);
        }
        let mut steps: Vec<(Duration, Rate)> = Vec::new();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (rate, from) = word.split_once('@').unwrap_or((word, "0s"));
            let from = from.parse::<Rtt>().map_err(|error| failed(error.to_string()))?.get();
            let rate = if rate == "0" {
                Rate::default()
            } else {
                rate.parse().map_err(|error| failed(format!("{error}")))?
            };
            if let Some((before, _)) = steps.last().filter(|(before, _)| *before >= from) {
                return Err(failed(format!("{from:?} does not come after {before:?}")));
            }
            steps.push((from, rate));
        }
        match steps.last() {
            None => Err(failed("write rates and times, as in 100Mbit@0s,20Mbit@8s".to_owned())),
            Some((_, rate)) if *rate == Rate::default() => {
                Err(failed("the last rate is 0: nothing would arrive any more".to_owned()))
            }
            Some(_) => Ok(Self::Steps(steps)),
        }
    }
}

impl fmt::Display for RateSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Trace { file, .. } => write!(f, "trace {}", file.display()),
            Self::Steps(steps) => {
                for (index, (from, rate)) in steps.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    write!(f, "{}@{}s", rate.as_bits_per_sec(), from.as_secs_f64())?;
                }
                Ok(())
            }
        }
    }
}
