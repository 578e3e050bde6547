//! Reordered packets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::Rtt;

use super::{PacketShare, ParsePathError};

/// Share of packets to be delayed further, and by how long, written "1%,5ms"; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reorder {
    /// Share of reordered packets.
    pub share: PacketShare,
    /// Additional delay.
    pub by: Duration,
}

impl FromStr for Reorder {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' does not say which packets are overtaken: {why}; write a share and for how long they are held back, as in 1%,5ms"
            ))
        };
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).collect();
        let [share, by] = words.as_slice() else { return Err(failed("it has not two values".to_owned())) };
        let share = share.parse().map_err(|error| failed(format!("{error}")))?;
        let by = by.parse::<Rtt>().map_err(|error| failed(error.to_string()))?.get();
        if by > Duration::from_secs(60) {
            return Err(failed(format!("{by:?} is above one minute")));
        }
        Ok(Self { share, by })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share.get() {
            0.0 => f.write_str("none"),
            _ => write!(f, "{},{}s", self.share, self.by.as_secs_f64()),
        }
    }
}
