//! How a job that succeeded went.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lossy_path;
use crate::advice::{LimitedBy, Shares};
use crate::checksum::Checksum;
use crate::units::{Bytes, Rate, seconds};

/// A file that is complete and, where a checksum was given, verified; a value that is not known is null.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The file on this host.
    #[serde(with = "lossy_path")]
    pub path: PathBuf,
    /// Its size.
    pub bytes: Bytes,
    /// What an earlier run had left of it.
    pub resumed: Bytes,
    /// Whether it was here already, as it is to be, so that nothing was moved.
    pub unchanged: bool,
    /// How long this run took.
    #[serde(with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// What was moved in this run over its time.
    #[serde(rename = "goodput_bps")]
    pub goodput: Rate,
    /// The most streams at once.
    pub streams: usize,
    /// Segments sent again; only a sender counts them.
    pub retransmits: Option<u64>,
    /// Segments that arrived out of order; only a receiver counts them.
    pub out_of_order: Option<u64>,
    /// What held the transfer back for longest.
    pub limited_by: LimitedBy,
    /// For which share of the time each limit held it back.
    pub shares: Shares,
    /// The evidence, which knob to turn and what that gains, and further limits; a sentence each.
    pub advice: Vec<String>,
    /// The file's digest, where one was computed.
    pub digest: Option<Checksum>,
}
