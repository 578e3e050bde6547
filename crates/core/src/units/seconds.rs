//! Serialises times as seconds, for `#[serde(with = "seconds")]`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// Returns a time in seconds, rounded to microseconds, the finest resolution of all measurements.
pub fn of(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Serialises a time as seconds.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(of(*time))
}

/// Deserialises a time from seconds.
///
/// # Errors
/// If the value is not a number, is negative, or exceeds a [`Duration`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(Error::custom)
}

/// Serialises optional times as seconds, for `#[serde(with = "seconds::optional")]`.
pub mod optional {
    use super::*;

    /// Serialises a time as seconds, or as null.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(of).serialize(serializer)
    }

    /// Deserialises a time from seconds, or from null.
    ///
    /// # Errors
    /// As of [`deserialize`](super::deserialize).
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        seconds.map(|seconds| Duration::try_from_secs_f64(seconds).map_err(Error::custom)).transpose()
    }
}
