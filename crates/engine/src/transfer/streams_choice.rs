//! The user's choice of the number of streams.

use std::time::Duration;

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
