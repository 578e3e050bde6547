//! The result of one run.

use std::fmt;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use serde::{Serialize, Serializer};

use crate::bench_part::BenchPart;
use crate::clients::BenchClient;
use crate::paths::BenchPath;

/// The result of one run: times in seconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct RunResult {
    pub(crate) part: BenchPart,
    pub(crate) path: BenchPath,
    pub(crate) client: BenchClient,
    /// Number of the repetition, from 1.
    pub(crate) repetition: u32,
    /// The file's size.
    pub(crate) bytes: u64,
    /// Seconds from the program's start to its end; for fio, from its first byte.
    pub(crate) wall_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    pub(crate) max_rss_bytes: u64,
    /// Page faults without I/O: first accesses to memory.
    pub(crate) minor_faults: u64,
    /// The duration of an fsync of the file after the program's end.
    pub(crate) flush_s: f64,
    /// The rate of payload after the ramp-up, in bits per second; `None` for short runs and other programs.
    pub(crate) steady_bps: Option<u64>,
    /// The rate of payload in each whole second since the start, in bits per second; recorded if convergence is measured.
    #[serde(rename = "by_second_bps", serialize_with = "bits", skip_serializing_if = "Vec::is_empty")]
    pub(crate) by_second: Vec<Rate>,
    /// Whether the content was compared with the original, as in the first repetition.
    pub(crate) verified: bool,
    /// The received share of the capacity left beside cross traffic after the ramp-up.
    pub(crate) left_share: Option<f64>,
    /// The largest mean over 1 ms at the receiver, over the mean at steady speed; if recorded.
    pub(crate) burstiness_1ms: Option<f64>,
    /// The 99th percentile of the means over 1 ms, over the mean.
    pub(crate) mostly_1ms: Option<f64>,
    /// Seconds from the last byte to the verified file, if `get` has verified a digest.
    pub(crate) digest_s: Option<f64>,
    /// Retransmitted segments, if the sender recorded them.
    pub(crate) retransmits: Option<f64>,
    /// Packets towards the receiver that were dropped by a full queue.
    pub(crate) dropped: u64,
    /// The share of cross traffic towards the receiver that was dropped by a full queue.
    pub(crate) background_loss: Option<f64>,
    /// Deviations of the emulated path from its specification; empty without any.
    pub(crate) warnings: Vec<String>,
}

fn bits<S: Serializer>(rates: &[Rate], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rates.iter().map(|rate| rate.as_bits_per_sec()))
}

impl RunResult {
    /// Creates the result of a run that has not started.
    pub(crate) fn new(
        part: BenchPart,
        path: BenchPath,
        client: BenchClient,
        repetition: u32,
        size: Bytes,
    ) -> Self {
        Self {
            part,
            path,
            client,
            repetition,
            bytes: size.get(),
            wall_s: 0.0,
            user_s: 0.0,
            sys_s: 0.0,
            max_rss_bytes: 0,
            minor_faults: 0,
            flush_s: 0.0,
            steady_bps: None,
            by_second: Vec::new(),
            verified: false,
            left_share: None,
            burstiness_1ms: None,
            mostly_1ms: None,
            digest_s: None,
            retransmits: None,
            dropped: 0,
            background_loss: None,
            warnings: Vec::new(),
        }
    }

    /// Creates a result of one second, for tests.
    #[cfg(test)]
    pub(crate) fn sample(path: BenchPath, client: BenchClient, size: Bytes) -> Self {
        Self { wall_s: 1.0, ..Self::new(BenchPart::LongPath, path, client, 1, size) }
    }

    /// Returns the size of the file over the program's run time.
    pub(crate) fn goodput(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s))
    }

    /// Returns the size of the file over the time until it was durable.
    pub(crate) fn goodput_to_disk(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s + self.flush_s))
    }

    /// Returns the CPU seconds, user and system, per GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        (self.user_s + self.sys_s) * Bytes::gib(1).get() as f64 / self.bytes as f64
    }
}

impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, client, repetition, wall_s, .. } = self;
        let (goodput, cpu) = (self.goodput(), self.cpu_per_gib());
        write!(f, "{path}: {client}, {repetition}: {wall_s:.2} s, {goodput}, CPU {cpu:.3} s/GiB")?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nbench: WARNING: {warning}"))
    }
}
