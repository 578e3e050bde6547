//! The chunk's size: X = G Delta, with the expected goodput.

use std::time::Duration;

use super::bracket::Bracketing;
use super::golden::Bracket;
use crate::units::{Bytes, Rate, Rtt};

/// The least size per stream: the packet size of the paper.
const PACKET: Bytes = Bytes::new(1500);

/// The size of a chunk of the file and its number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N.
    pub streams: usize,
    /// X; may exceed the rest of the file.
    pub size: Bytes,
}

impl Chunk {
    /// Creates a chunk that takes Delta at the expected goodput, with at least a packet per stream.
    pub(super) fn lasting(delta: Duration, streams: usize, expected: Rate) -> Self {
        Self { streams, size: expected.bytes_in(delta).max(PACKET * streams as u64) }
    }
}

/// Returns the expected goodput of the first chunk, N0 W / R; zero if R is zero.
pub(super) fn unmeasured(n0: usize, window: Bytes, rtt: Rtt) -> Rate {
    Rate::over(window * n0 as u64, rtt.get())
}

/// Returns the expected goodput while bracketing, G(N_-1) G(N_-1) / G(N_-2), or alpha G(N_-1) if the ratio is
/// undefined.
pub(super) fn growing(bracketing: &Bracketing, alpha: f64) -> Rate {
    let (before, last) = (bracketing.before.goodput, bracketing.last.goodput);
    let ratio = last.as_bits_per_sec() as f64 / before.as_bits_per_sec() as f64;
    last.scaled(if before > Rate::default() { ratio } else { alpha })
}

/// Returns the expected goodput of N within the bracket, interpolated linearly between its neighbours.
pub(super) fn within(bracket: &Bracket, n: usize) -> Rate {
    let Bracket { l, m, r } = *bracket;
    let (from, to) = if n < m.streams { (l, m) } else { (m, r) };
    let xi = (n - from.streams) as f64 / (to.streams - from.streams) as f64;
    from.goodput.scaled(1.0 - xi) + to.goodput.scaled(xi)
}
