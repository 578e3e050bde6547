//! The option `--initial-window off|auto|SEGMENTS`: the initial congestion window for clients whose
//! path was measured before.

use std::fmt;
use std::str::FromStr;

/// The initial congestion window of connections to a client whose path was measured before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitialWindow {
    /// The kernel's ten segments (RFC 6928).
    #[default]
    Off,
    /// The number of segments that the pace sends in the first RTT.
    Auto,
    /// A fixed number of segments.
    Segments(u32),
}

/// The largest accepted window, in segments: 1.4 GB at 1448 bytes each.
const MAX_SEGMENTS: u32 = 1_000_000;

/// The text is not an initial window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an initial window: write off, auto, or a number of segments from 1 to {MAX_SEGMENTS}")]
pub struct ParseInitialWindowError(String);

impl fmt::Display for InitialWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Auto => f.pad("auto"),
            Self::Segments(segments) => segments.fmt(f),
        }
    }
}

impl FromStr for InitialWindow {
    type Err = ParseInitialWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            segments => match segments.parse() {
                Ok(segments @ 1..=MAX_SEGMENTS) => Ok(Self::Segments(segments)),
                _ => Err(ParseInitialWindowError(segments.to_owned())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_parsed_as_equal() {
        for text in ["off", "auto", "1", "500", "1000000"] {
            assert_eq!(text.parse::<InitialWindow>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "1000001", "99999999999", "1.5", "64KiB", "on"] {
            let error = text.parse::<InitialWindow>().unwrap_err().to_string();
            assert!(error.contains("off, auto") && error.contains("1000000"), "{error}");
        }
    }
}
