//! GridFTP-APT (Ito, Ohsaki, Imase).

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

/// The paper's parameters.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// N0.
    pub n0: usize,
    /// alpha.
    pub alpha: f64,
    /// Delta.
    pub delta: Duration,
    /// W.
    pub window: Bytes,
    /// R.
    pub rtt: Rtt,
    /// The cap.
    pub most: usize,
}

/// What to transfer next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N.
    pub streams: usize,
    /// X.
    pub size: Bytes,
}

/// Where the search stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking for a bracket.
    Bracketing,
    /// Narrowing it.
    Golden,
    /// Done.
    Converged,
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Apt {
    parameters: Parameters,
    chunk: Chunk,
    chunks: usize,
}

impl Apt {
    /// Starts.
    pub fn new(parameters: Parameters) -> Self {
        let Parameters { n0, delta, window, rtt, .. } = parameters;
        let rate = Rate::over(window * n0 as u64, rtt.get());
        Self { parameters, chunk: Chunk { streams: n0, size: rate.bdp(Rtt::new(delta)) }, chunks: 0 }
    }

    /// Returns what to transfer next.
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Observes the goodput of the chunk just transferred.
    pub fn observe(&mut self, goodput: Rate) -> Chunk {
        self.chunks += 1;
        if self.chunks < 3 {
            let grown = (self.chunk.streams as f64 * self.parameters.alpha).round() as usize;
            self.chunk.streams = grown.clamp(1, self.parameters.most);
        }
        self.chunk.size = goodput.bdp(Rtt::new(self.parameters.delta)).max(Bytes::mib(1));
        self.chunk
    }

    /// Returns the number it came to.
    pub fn converged(&self) -> Option<usize> {
        (self.chunks >= 3).then_some(self.chunk.streams)
    }

    /// Returns where the search stands.
    pub fn phase(&self) -> Phase {
        if self.chunks < 3 { Phase::Bracketing } else { Phase::Converged }
    }
}
