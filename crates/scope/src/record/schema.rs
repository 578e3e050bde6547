//! The lines of a record: a header, then events ([`JobEvent`](longhaul_core::event::JobEvent)), then an end.
//!
//! A reader must ignore what it does not know: fields and events may be added within a version.

use longhaul_core::event::Event;
use longhaul_core::telemetry;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::tcp_fields::TcpFields;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// The value of [`Header::record`], by which a record is known.
pub const MAGIC: &str = "longhaul";

/// The first line.
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
    /// The program and its version.
    pub program: String,
    /// When it began, in seconds since 1970, UTC.
    pub started: f64,
    /// How often samples were asked for, in seconds.
    pub interval: f64,
    /// The host's name, kernel and number of cores.
    pub host: Host,
}

/// The side of a transfer that recorded.
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

/// The host that recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its processor cores.
    pub cores: usize,
}

/// A reading of everything, as it is kept of a record.
pub type Sample = telemetry::Sample<TcpFields>;

/// A connection in such a reading.
pub type StreamSample = telemetry::StreamSample<TcpFields>;

/// The last line of a record that was not cut off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename = "end")]
pub struct End {
    /// When, in seconds since the record's start.
    pub at: f64,
    /// What recording cost.
    pub telemetry: Telemetry,
    /// The result, which was here until version 2; since then it is an event of its job.
    #[serde(default, skip_serializing, deserialize_with = "outcome")]
    pub outcome: Option<Event>,
}

/// Reads the result of a transfer; a server had none.
fn outcome<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Event>, D::Error> {
    let found = Value::deserialize(from)?;
    Ok(serde_json::from_value(found).ok())
}

/// What recording cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Telemetry {
    /// Samples taken.
    pub samples: u64,
    /// Lines that were dropped because the disk under the record was too slow.
    pub dropped: u64,
    /// CPU time of sampling and of recording, in seconds.
    pub cpu: f64,
}
