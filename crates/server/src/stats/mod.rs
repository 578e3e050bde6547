//! What is counted and logged of connections and requests.

pub(crate) mod access_log;
pub(crate) mod connection_stats;
pub(crate) mod metrics;
pub(crate) mod telemetry;
