//! From what a transfer shows over time to what holds it back, and which knob to turn.
//!
//! [`Attribution`] is fed with one [`Reading`] after another. It assigns each interval to exactly
//! one limit, and yields the shares of the whole time, the dominant cause, its evidence, and the
//! cure. The same code serves transfers while they run, their records, packet captures, and the
//! sockets of other programs.

mod attribution;
mod bottleneck_queue;
mod capped_arrivals;
mod classifier;
mod cure;
mod interval;
mod limited_by;
mod loss;
mod params;
mod reading;
mod recent_rates;
mod run;
mod send_buffer;
mod shares;
mod slow_start;
mod verdict;
mod witness;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use attribution::{Attribution, LimitedSpan};
pub use limited_by::LimitedBy;
pub use reading::{End, PacketReading, PathReading, Reading, SenderPace, SenderReading, ThreadTimes};
pub use run::{FileOfRun, RunDiagnosis};
pub use shares::Shares;
pub use verdict::KnownLimits;
pub use witness::{Witness, WitnessedTime};

/// What was found: the limit, the evidence for it and the knob to turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// What held the transfer back for longest.
    #[serde(rename = "limited_by")]
    pub limit: LimitedBy,
    /// For which share of the time each limit held it back.
    pub shares: Shares,
    /// What showed these limits, and for how long each; the longest first.
    pub witnesses: Vec<WitnessedTime>,
    /// Evidence, cure with its expected gain, and further limits; a sentence each.
    pub advice: Vec<String>,
    /// The cure without its gain; not written.
    #[serde(skip)]
    pub change: Option<String>,
}

/// Below this RTT a window or a send buffer is hardly ever what limits.
const LONG_RTT: Duration = Duration::from_millis(5);
/// The granularity of timestamps (RFC 7323, section 5.4): what the data's RTT differs by less is no
/// queue.
const TIMESTAMP_TICK: Duration = Duration::from_millis(1);
