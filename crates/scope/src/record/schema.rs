//! The lines of a record: a header, events ([`JobEvent`](longhaul_core::event::JobEvent)), and an
//! end.
//!
//! A reader must ignore unknown fields and events: they may be added within a version.

use longhaul_core::event::Event;
use longhaul_core::telemetry;
use longhaul_core::units::Rate;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::tcp_fields::TcpFields;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// The value of [`Header::record`], which identifies a record.
pub const MAGIC: &str = "longhaul";

/// The first line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`MAGIC`].
    pub record: String,
    /// The version of this schema.
    pub version: u32,
    /// Which side of a transfer was recorded.
    pub side: Side,
    /// What was recorded: a URL without credentials, or a directory.
    pub what: String,
    /// The rate that `--pace` sets for what this end sends: for each connection of a server, for
    /// all of an upload together.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "pace_bps")]
    pub pace: Option<Rate>,
    /// The program and its version.
    pub program: String,
    /// Start of the record, in seconds since 1970, UTC.
    pub started: f64,
    /// Requested sampling interval in seconds.
    pub interval: f64,
    /// The host's name, kernel and number of cores.
    pub host: Host,
}

/// The side of a transfer that wrote the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The receiver of a file.
    Get,
    /// The sender of a file.
    Put,
    /// The server of files.
    Serve,
}

/// The host that wrote the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its processor cores.
    pub cores: usize,
}

/// A sample of a recorded transfer.
pub type Sample = telemetry::Sample<TcpFields>;

/// A connection in a sample.
pub type StreamSample = telemetry::StreamSample<TcpFields>;

/// The last line of a complete record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename = "end")]
pub struct End {
    /// Time in seconds since the record's start.
    pub at: f64,
    /// Cost of recording.
    pub telemetry: Telemetry,
    /// The result, only in version 1; from version 2 on an event of its job.
    #[serde(default, skip_serializing, deserialize_with = "outcome")]
    pub outcome: Option<Event>,
}

/// Reads the result of a transfer; a server has none.
fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Event>, D::Error> {
    let found = Value::deserialize(from)?;
    Ok(serde_json::from_value(found).ok())
}

/// The cost of recording.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Telemetry {
    /// Samples taken.
    pub samples: u64,
    /// Lines dropped because the disk was too slow.
    pub dropped: u64,
    /// CPU time of sampling and recording, in seconds.
    pub cpu: f64,
}
