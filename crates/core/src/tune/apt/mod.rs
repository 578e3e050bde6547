//! APT, automatic parallelism tuning, as published: searches the number of streams N with the highest goodput G(N).
//!
//! ```text
//!                  G(N) < G(N_-1)                         nothing is left within the bracket
//!  Bracketing ----------------------> Golden --------------------------------------------> Converged
//!  N <- alpha N    (l, m, r)          N within the wider of (l, m) and (m, r)               N <- m
//! ```
//!
//! A file is transferred in chunks. After each chunk, G(N) is measured and determines the number of streams and the
//! size of the next one, so that each takes about Delta. G is assumed to be concave in N.
//!
//! Source: T. Ito, H. Ohsaki, M. Imase, "Performance Evaluation of Automatic Parallelism Tuning Mechanism for Data
//! Transfer Protocol GridFTP", sections 2.1 (N) and 2.2 (the chunk's size X); the names are the paper's. The algorithm
//! is not improved, because other tuners are compared with it: only a decrease ends bracketing, so a plateau is climbed
//! to its end or to the largest number of streams, and changes of the path after convergence are not detected.
//!
//! # Cases that the paper does not define
//!
//! - Zero streams have no goodput: N = 0 with G(0) = 0 precedes N0. The first chunk is therefore never a decrease, and a
//!   decrease at the second one gives the bracket (0, N0, N), within which numbers down to one stream are tried.
//! - If alpha N rounds to N, N + 1 is next.
//! - N is bounded. If it must not grow, and G(N) has not decreased, the bracket is (N_-1, N, N).
//! - Golden section has no end in the paper. If no new number within the bracket remains, formula 1 gives m itself, or
//!   in (m - 1, m, m), if N was bounded, l, which was measured before. Then xi = 0, and so X = G(m) Delta; formula 2
//!   replaces G(m) only by a larger value. The search therefore stays at m. Formula 2 would also make m an end of the
//!   bracket, from which formula 1 would alternate between m and m - 1; this is not followed.
//! - If G(N_-2) is zero, its ratio is undefined and alpha is used instead, as in the second chunk.
//! - X is at least one packet per stream.
//!
//! # Number of chunks
//!
//! Of N0, alpha N0, ... let the k-th (from 0) be the first number not below the optimum. If G is strictly concave,
//! bracketing then takes at most k + 2 chunks, because the number after that one must have a lower goodput.
//!
//! For any G, each chunk of golden section removes a third or more of the wider part of the bracket, or all of the
//! other part. A bracket of width w = r - l takes at most 1 + log(w / 2) / log(4 / 3) chunks: the tests try every
//! outcome up to w = 512.

mod bracket;
mod chunk;
mod golden;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::time::Duration;

use super::MAX_STREAMS;
use crate::units::{Bytes, Rate, Rtt};

use bracket::Bracketing;
pub use chunk::Chunk;
use golden::Bracket;

/// The parameters of APT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// N0, the number of streams of the first chunk.
    pub n0: usize,
    /// alpha, the factor by which the number grows until the goodput decreases; values below 1 and non-finite values
    /// count as 1.
    pub alpha: f64,
    /// Delta, the target duration of a chunk.
    pub delta: Duration,
    /// W, the socket buffer of a stream.
    pub window: Bytes,
    /// R, the round-trip time, including the server's response time.
    pub rtt: Rtt,
    /// The largest number of streams; the paper has no such bound.
    pub most: usize,
}

impl Default for Parameters {
    /// Returns the parameters of the paper's simulation (table 1, 10 ms each way), bounded by [`MAX_STREAMS`].
    fn default() -> Self {
        Self {
            n0: 4,
            alpha: 2.0,
            delta: Duration::from_secs(3),
            window: Bytes::kib(64),
            rtt: Rtt::new(Duration::from_millis(20)),
            most: MAX_STREAMS,
        }
    }
}

/// The phase of APT's search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AptPhase {
    /// Searches a range of numbers that contains the optimum.
    Bracketing,
    /// Narrows that range.
    Golden,
    /// Keeps the number found.
    Converged,
}

/// Chooses the number of streams and the size of the next chunk of a file.
#[derive(Debug, Clone)]
pub struct Apt {
    parameters: Parameters,
    search: Search,
    chunk: Chunk,
}

/// A number of streams and its goodput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Point {
    /// N.
    streams: usize,
    /// G(N).
    goodput: Rate,
}

#[derive(Debug, Clone, Copy)]
enum Search {
    Bracketing(Bracketing),
    /// `n` is the number within the bracket that is being tried.
    Golden {
        bracket: Bracket,
        n: usize,
    },
    Converged(Point),
}

impl Apt {
    /// Creates a search that starts with N0 streams, at most `most` and at least one.
    pub fn new(parameters: Parameters) -> Self {
        let most = parameters.most.max(1);
        let alpha = if parameters.alpha.is_finite() { parameters.alpha.max(1.0) } else { 1.0 };
        let parameters = Parameters { n0: parameters.n0.clamp(1, most), alpha, most, ..parameters };
        let expected = chunk::unmeasured(parameters.n0, parameters.window, parameters.rtt);
        Self {
            parameters,
            search: Search::Bracketing(Bracketing::default()),
            chunk: Chunk::lasting(parameters.delta, parameters.n0, expected),
        }
    }

    /// Returns the next chunk.
    pub const fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Observes G(N), the goodput of the last chunk; returns the next chunk.
    pub fn observe(&mut self, goodput: Rate) -> Chunk {
        let here = Point { streams: self.chunk.streams, goodput };
        self.search = match self.search {
            Search::Bracketing(bracketing) => match bracketing.observe(here, self.parameters.most) {
                ControlFlow::Continue(bracketing) => Search::Bracketing(bracketing),
                ControlFlow::Break(bracket) => Search::within(bracket),
            },
            Search::Golden { bracket, .. } => Search::within(bracket.narrowed(here)),
            // Formula 2 for N = m.
            Search::Converged(m) if goodput > m.goodput => Search::Converged(here),
            converged @ Search::Converged(_) => converged,
        };
        self.chunk = self.next();
        self.chunk
    }

    /// Returns the number of streams found; `None` while the search continues.
    pub const fn converged(&self) -> Option<usize> {
        match self.search {
            Search::Converged(optimum) => Some(optimum.streams),
            _ => None,
        }
    }

    /// Returns the phase of the search.
    pub const fn phase(&self) -> AptPhase {
        match self.search {
            Search::Bracketing(_) => AptPhase::Bracketing,
            Search::Golden { .. } => AptPhase::Golden,
            Search::Converged(_) => AptPhase::Converged,
        }
    }

    fn next(&self) -> Chunk {
        let Parameters { alpha, delta, most, .. } = self.parameters;
        let (streams, expected) = match self.search {
            Search::Bracketing(bracketing) => {
                (bracketing.next(alpha, most), chunk::growing(&bracketing, alpha))
            }
            Search::Golden { bracket, n } => (n, chunk::within(&bracket, n)),
            Search::Converged(optimum) => (optimum.streams, optimum.goodput),
        };
        Chunk::lasting(delta, streams, expected)
    }
}

impl Search {
    fn within(bracket: Bracket) -> Self {
        bracket.next().map_or(Self::Converged(bracket.m), |n| Self::Golden { bracket, n })
    }
}
