//! The settings that downloads and uploads share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_core::pace::Pace;
use longhaul_core::tune::MAX_STREAMS;

use crate::rate_limit::RateLimit;
use crate::sampling::SampleInterval;
use crate::source::http::ClientConfig;

/// The settings of a transfer in either direction.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// The number of connections to each server that supports ranges.
    pub streams: Streams,
    /// The most connections to each server, where their number is not fixed.
    pub stream_cap: StreamCap,
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
            stream_cap: StreamCap::default(),
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

/// A cap of the number of connections, which may change while the transfer runs; clones share it.
#[derive(Debug, Clone)]
pub struct StreamCap(Arc<AtomicUsize>);

impl StreamCap {
    /// Creates a cap.
    pub fn new(streams: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(streams)))
    }

    /// Changes the cap; surplus connections are closed when they have received what they have
    /// requested.
    pub fn set(&self, streams: usize) {
        self.0.store(streams, Ordering::Relaxed);
    }

    /// Returns the cap, at least 1.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

impl Default for StreamCap {
    /// The tuners' own limit.
    fn default() -> Self {
        Self::new(MAX_STREAMS)
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
