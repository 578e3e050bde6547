//! The result of a job that has succeeded, and of several.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lossy_path;
use crate::advice::{Finding, LimitedBy, Shares};
use crate::checksum::Checksum;
use crate::units::{Bytes, Rate, seconds};

/// The result for a complete file, verified if a checksum was given; an unknown value is null.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The file on this host.
    #[serde(serialize_with = "lossy_path")]
    pub path: PathBuf,
    /// The size of the file.
    pub bytes: Bytes,
    /// Bytes kept from an earlier run.
    pub resumed: Bytes,
    /// Whether the destination was already up to date, so that no byte was transferred.
    pub unchanged: bool,
    /// The duration of this run.
    #[serde(with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// The bytes transferred in this run divided by its duration.
    #[serde(rename = "goodput_bps")]
    pub goodput: Rate,
    /// The largest number of concurrent streams.
    pub streams: usize,
    /// Signs of loss.
    #[serde(flatten)]
    pub losses: LossCounts,
    /// What limited the transfer.
    #[serde(flatten)]
    pub finding: Finding,
    /// The file's digest, if one was computed.
    pub digest: Option<Checksum>,
}

impl Done {
    /// Creates the result for a file that is there already, with the expected size and time.
    pub fn unchanged(path: PathBuf, size: Bytes) -> Self {
        Self { path, bytes: size, resumed: size, unchanged: true, ..Self::default() }
    }
}

/// The segments that indicate loss, as the end that wrote the result counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LossCounts {
    /// Retransmitted segments; only a sender counts them.
    pub retransmits: Option<u64>,
    /// Segments that arrived out of order; only a receiver counts them.
    pub out_of_order: Option<u64>,
}

/// The result for the files of one command that were moved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunDone {
    /// Their number.
    pub files: u64,
    /// The bytes transferred.
    pub bytes: Bytes,
    /// The duration of the command.
    #[serde(with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// The bytes transferred divided by its duration.
    #[serde(rename = "goodput_bps")]
    pub goodput: Rate,
    /// The limit that applied for the longest time of the files.
    pub limited_by: LimitedBy,
    /// The share of the files' time for which each limit applied.
    pub shares: Shares,
    /// The evidence, the setting to change, and further limits; one sentence each.
    pub advice: Vec<String>,
}
