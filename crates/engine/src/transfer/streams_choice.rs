//! What the user asks of the number of streams.

use std::time::Duration;

/// How many connections to use, where the server answers ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Streams {
    /// This number.
    Fixed(usize),
    /// As many as pay, by [`StreamTuner`](longhaul_core::tune::streams::StreamTuner).
    Auto,
    /// What GridFTP-APT finds.
    Apt(AptSettings),
}

/// The parameters of GridFTP-APT, by the names of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AptSettings {
    /// The number of streams to begin with (N0).
    pub n0: usize,
    /// The factor by which it grows while a bracket is searched (alpha).
    pub alpha: f64,
    /// How long a chunk should take (Delta).
    pub delta: Duration,
}
