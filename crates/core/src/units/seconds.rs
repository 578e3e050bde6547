//! Times as seconds, for `#[serde(with = "seconds")]`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

/// Returns a time in seconds, rounded to microseconds: nothing here is measured finer.
pub fn of(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Writes a time as seconds.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(of(*time))
}

/// Reads a time from seconds.
///
/// # Errors
/// Fails where the value is no number, negative, or larger than a [`Duration`] can be.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(Error::custom)
}
