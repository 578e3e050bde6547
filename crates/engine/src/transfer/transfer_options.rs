//! The settings that downloads and uploads share.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::pace::Pace;

use crate::rate_limit::RateLimit;
use crate::sampling::SampleInterval;
use crate::source::http::ClientConfig;

/// The settings of a transfer in either direction.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// The number of connections to each server that supports ranges.
    pub streams: Streams,
    /// The path memory's file; `None` stores nothing.
    pub memory: Option<PathBuf>,
    /// The interval of [`Event::Sample`](longhaul_core::event::Event::Sample); `None` emits none.
    pub sample: Option<SampleInterval>,
    /// The pacing of the sender: of this host, or as requested of the server.
    pub pace: Pace,
    /// The rate limit, shared with other transfers.
    pub limit: Option<RateLimit>,
    /// Whether to resume an earlier run.
    pub resume: bool,
    /// The maximum number of consecutive failures of a stream.
    pub retries: u32,
    /// The stall timeout of a connection.
    pub stall: Duration,
    /// The settings of the client. In a download, `recv_buffer: None` chooses automatically.
    pub client: ClientConfig,
}

impl TransferOptions {
    /// The consecutive failures that a stream may have by default.
    pub const DEFAULT_RETRIES: u32 = 5;
    /// The default stall timeout of a connection.
    pub const DEFAULT_STALL: Duration = Duration::from_secs(60);
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            streams: Streams::Auto,
            memory: None,
            sample: None,
            pace: Pace::Auto,
            limit: None,
            resume: true,
            retries: Self::DEFAULT_RETRIES,
            stall: Self::DEFAULT_STALL,
            client: ClientConfig::default(),
        }
    }
}

/// The number of connections, if the server supports ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Streams {
    /// A fixed number.
    Fixed(usize),
    /// Chosen by [`StreamTuner`](longhaul_core::tune::streams::StreamTuner).
    Auto,
    /// Chosen by GridFTP-APT.
    Apt(AptSettings),
}

/// The parameters of GridFTP-APT, named as in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AptSettings {
    /// The initial number of streams (N0).
    pub n0: usize,
    /// The growth factor while searching a bracket (alpha).
    pub alpha: f64,
    /// The target duration of a chunk (Delta).
    pub delta: Duration,
}
