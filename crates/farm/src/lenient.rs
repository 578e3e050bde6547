//! Reads what other versions have written, as far as it is understood.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Reads a field that may be of another version; what cannot be read is `None`, and the fields
/// beside it count.
pub(crate) fn if_readable<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
