//! Path values that apply to one direction, or to the second bottleneck.

use std::fmt;
use std::str::FromStr;

use super::{ParsePathError, PathSpec};

/// Keys that may be overridden; hosts, seed and MTU apply to the whole path.
const OF_A_DIRECTION: &str = "rate, rate_steps, trace, delay, jitter, queue, aqm, loss, gemodel, reorder, duplicate, \
                              corrupt, background";

/// Values by name, written "rate=10Mbit; queue=100packets"; none by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides(Vec<(String, String)>);

impl Overrides {
    /// Returns whether there are no overrides.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the values.
    pub(super) fn apply(&self, spec: &mut PathSpec) {
        for (key, value) in &self.0 {
            if key == "rate" || key == "rate_steps" || key == "trace" {
                (spec.schedule, spec.rate) = (super::RateSchedule::None, None);
            }
            // The value was validated when it was parsed.
            let _ = spec.set(key, value);
        }
    }
}

impl FromStr for Overrides {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' sets no values of a path: {why}; write NAME=VALUE with ';' between them, as in rate=10Mbit; \
                 queue=100packets"
            ))
        };
        let mut values = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty() && *part != "none") {
            let (key, value) = part.split_once('=').ok_or_else(|| failed(format!("'{part}' has no '='")))?;
            let (key, value) = (key.trim(), value.trim());
            if !OF_A_DIRECTION.split(", ").any(|known| known == key) {
                return Err(failed(format!("'{key}' is not one of {OF_A_DIRECTION}")));
            }
            PathSpec::default().set(key, value).map_err(|error| failed(error.to_string()))?;
            values.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self(values))
    }
}

impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let parts: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&parts.join("; "))
    }
}
