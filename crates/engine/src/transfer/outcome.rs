//! The outcome of a transfer.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::advice::Finding;
use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Done, LossCounts};
use longhaul_core::units::{Bytes, Rate};

/// A file that was moved as a whole, and verified if a digest was known.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The file on this host: the final name of a download, or the source of an upload.
    pub path: PathBuf,
    /// The file's size.
    pub size: Bytes,
    /// The bytes that an earlier run had moved.
    pub resumed: Bytes,
    /// The time of this run, from name resolution to the final name.
    pub time: Duration,
    /// The bytes moved by this run, divided by its time.
    pub goodput: Rate,
    /// The last number of connections; if fixed, the maximum open at once.
    pub streams: usize,
    /// Signs of loss.
    pub losses: LossCounts,
    /// The file's digest, if one was requested, or compared by both ends.
    pub digest: Option<Checksum>,
    /// The limit that held the transfer back.
    pub finding: Finding,
}

impl From<&Outcome> for Done {
    fn from(outcome: &Outcome) -> Self {
        Self {
            path: outcome.path.clone(),
            bytes: outcome.size,
            resumed: outcome.resumed,
            unchanged: false,
            time: outcome.time,
            goodput: outcome.goodput,
            streams: outcome.streams,
            losses: outcome.losses,
            finding: outcome.finding.clone(),
            digest: outcome.digest.clone(),
        }
    }
}
