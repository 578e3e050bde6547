//! Variable rates: steps in time, or a mahimahi trace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

use super::{ParsePathError, steps};
use crate::model::Line;

/// Maximum bytes of a trace file: about an hour at 1 Gbit/s.
const MAX_TRACE: u64 = 1 << 30;
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
    /// A mahimahi trace, mm-link(1): each line is the time in milliseconds of an opportunity to
    /// send 1500 bytes.
    Trace {
        /// The trace file.
        file: PathBuf,
        /// Times of the opportunities.
        millis: Arc<[u32]>,
    },
}

fn no_schedule(text: impl fmt::Display, why: impl fmt::Display) -> ParsePathError {
    ParsePathError(format!("'{text}' is no schedule of rates: {why}"))
}

impl RateSchedule {
    /// Reads a trace file.
    ///
    /// # Errors
    /// Fails if the file is unreadable or no trace; names the line.
    pub fn load_trace(file: &Path) -> Result<Self, ParsePathError> {
        let failed = |why: String| no_schedule(file.display(), why);
        let metadata = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?;
        if !metadata.is_file() || metadata.len() > MAX_TRACE {
            return Err(failed("it is no file, or larger than 1 GiB".to_owned()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        Ok(Self::Trace { file: file.to_owned(), millis: read_trace(&text).map_err(failed)? })
    }

    /// Returns the nominal rate, used for the queue's default size: the highest step, or the mean
    /// of a trace.
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
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "none" {
            return Ok(Self::None);
        }
        let rate = |word: &str| match word {
            "0" => Ok(Rate::default()),
            _ => word.parse::<Rate>().map_err(|error| error.to_string()),
        };
        let steps = steps::parse(text, rate).map_err(|why| no_schedule(text, why))?;
        match steps.last() {
            None => Err(no_schedule(text, "write rates and times, as in 100Mbit@0s,20Mbit@8s")),
            Some((_, rate)) if *rate == Rate::default() => {
                Err(no_schedule(text, "the last rate is 0: nothing would arrive any more"))
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
                f.write_str(&steps::shown(steps, |rate| rate.as_bits_per_sec().to_string()))
            }
        }
    }
}
