//! The number of TCP cross flows, and when they run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::Rtt;

use super::ParsePathError;

/// Bulk TCP flows from the server to the client, written "4", "4@5s..20s" or "4@5s.."; none by
/// default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CrossFlows {
    /// Number of flows.
    pub count: u16,
    /// Start, since the path's first packet.
    pub from: Duration,
    /// End, since the path's first packet; `None`: with the path.
    pub to: Option<Duration>,
}

impl FromStr for CrossFlows {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' are no cross flows: {why}; write how many, and from when to when, as in 4, 4@5s..20s or 4@5s.."
            ))
        };
        let time = |text: &str| text.parse().map(Rtt::get).map_err(|error| failed(error.to_string()));
        let (count, times) = text.split_once('@').unwrap_or((text, "0s.."));
        let count = count.parse().map_err(|_| failed(format!("'{count}' is not a number of flows")))?;
        let (from, to) = times
            .split_once("..")
            .ok_or_else(|| failed(format!("'{times}' has no '..' between two times")))?;
        let from = time(from)?;
        let to = if to.is_empty() { None } else { Some(time(to)?) };
        match to {
            Some(to) if to <= from => Err(failed(format!("{to:?} does not come after {from:?}"))),
            to => Ok(Self { count, from, to }),
        }
    }
}

impl fmt::Display for CrossFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, from, to } = self;
        match to {
            None if from.is_zero() => write!(f, "{count}"),
            None => write!(f, "{count}@{}s..", from.as_secs_f64()),
            Some(to) => write!(f, "{count}@{}s..{}s", from.as_secs_f64(), to.as_secs_f64()),
        }
    }
}
