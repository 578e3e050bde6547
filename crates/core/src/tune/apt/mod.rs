//! APT, automatic parallelism tuning, as published: searches the number of streams N with the
//! highest goodput G(N).
//!
//! ```text
//!                  G(N) < G(N_-1)                         nothing is left within the bracket
//!  Bracketing ----------------------> Golden --------------------------------------------> Converged
//!  N <- alpha N    (l, m, r)          N within the wider of (l, m) and (m, r)               N <- m
//! ```
//!
//! A file is transferred in chunks. After each chunk, G(N) is measured and determines the number of
//! streams and the size of the next one, so that each takes about Delta. G is assumed to be concave
//! in N.
//!
//! Source: T. Ito, H. Ohsaki, M. Imase, "Performance Evaluation of Automatic Parallelism Tuning
//! Mechanism for Data Transfer Protocol GridFTP", sections 2.1 (N) and 2.2 (the chunk's size X);
//! the names are the paper's. The algorithm is not improved, because other tuners are compared with
//! it: only a decrease ends bracketing, so a plateau is climbed to its end or to the largest number
//! of streams, and changes of the path after convergence are not detected.
//!
//! # Cases that the paper does not define
//!
//! - Zero streams have no goodput: N = 0 with G(0) = 0 precedes N0. The first chunk is therefore
//!   never a decrease, and a decrease at the second one gives the bracket (0, N0, N), within which
//!   numbers down to one stream are tried.
//! - If alpha N rounds to N, N + 1 is next.
//! - N is bounded. If it must not grow, and G(N) has not decreased, the bracket is (N_-1, N, N).
//! - Golden section has no end in the paper. If no new number within the bracket remains, formula 1
//!   gives m itself, or in (m - 1, m, m), if N was bounded, l, which was measured before. Then xi =
//!   0, and so X = G(m) Delta; formula 2 replaces G(m) only by a larger value. The search therefore
//!   stays at m. Formula 2 would also make m an end of the bracket, from which formula 1 would
//!   alternate between m and m - 1; this is not followed.
//! - If G(N_-2) is zero, its ratio is undefined and alpha is used instead, as in the second chunk.
//! - X is at least one packet per stream.
//!
//! # Number of chunks
//!
//! Of N0, alpha N0, ... let the k-th (from 0) be the first number not below the optimum. If G is
//! strictly concave, bracketing then takes at most k + 2 chunks, because the number after that one
//! must have a lower goodput.
//!
//! For any G, each chunk of golden section removes a third or more of the wider part of the
//! bracket, or all of the other part. A bracket of width w = r - l takes at most 1 + log(w / 2) /
//! log(4 / 3) chunks: the tests try every outcome up to w = 512.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::MAX_STREAMS;
use crate::units::{Bytes, Rate, Rtt};

/// nu = (3 - sqrt 5) / 2, the golden section.
const NU: f64 = 0.381_966_011_250_105_1;
/// The least size of a chunk per stream: the packet size of the paper.
const PACKET: Bytes = Bytes::new(1500);

/// The parameters of APT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// N0, the number of streams of the first chunk.
    pub n0: usize,
    /// alpha, the factor by which the number grows until the goodput decreases; values below 1 and
    /// non-finite values count as 1.
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
    /// Returns the parameters of the paper's simulation (table 1, 10 ms each way), bounded by
    /// [`MAX_STREAMS`].
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

/// The size of a chunk of the file and its number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// N.
    pub streams: usize,
    /// X; may exceed the rest of the file.
    pub size: Bytes,
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
    /// The last two chunks, (N_-2, G(N_-2)) and (N_-1, G(N_-1)); before the first chunk, no streams
    /// without goodput.
    Bracketing {
        before: Point,
        last: Point,
    },
    /// `n` is the number within the bracket that is being tried.
    Golden {
        bracket: Bracket,
        n: usize,
    },
    Converged(Point),
}

/// A range of numbers of streams that contains the optimum: G(l) <= G(m) >= G(r).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bracket {
    l: Point,
    /// The best number so far.
    m: Point,
    r: Point,
}

impl Apt {
    /// Creates a search that starts with N0 streams, at most `most` and at least one.
    pub fn new(parameters: Parameters) -> Self {
        let most = parameters.most.max(1);
        let alpha = if parameters.alpha.is_finite() { parameters.alpha.max(1.0) } else { 1.0 };
        let parameters = Parameters { n0: parameters.n0.clamp(1, most), alpha, most, ..parameters };
        // The expected goodput of the first chunk is N0 W / R, and zero if R is zero.
        let expected = Rate::over(parameters.window * parameters.n0 as u64, parameters.rtt.get());
        Self {
            parameters,
            search: Search::Bracketing { before: Point::default(), last: Point::default() },
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
            // A decrease gives the bracket (N_-2, N_-1, N) (step 3), the largest number of streams
            // (N_-1, N, N).
            Search::Bracketing { before, last } if here.goodput < last.goodput => {
                Search::within(Bracket { l: before, m: last, r: here })
            }
            Search::Bracketing { last, .. } if here.streams >= self.parameters.most => {
                Search::within(Bracket { l: last, m: here, r: here })
            }
            Search::Bracketing { last, .. } => Search::Bracketing { before: last, last: here },
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
            Search::Bracketing { .. } => AptPhase::Bracketing,
            Search::Golden { .. } => AptPhase::Golden,
            Search::Converged(_) => AptPhase::Converged,
        }
    }

    fn next(&self) -> Chunk {
        let Parameters { alpha, delta, most, .. } = self.parameters;
        let (streams, expected) = match self.search {
            Search::Bracketing { before, last } => {
                // alpha N_-1, rounded (step 4), and G(N_-1) G(N_-1) / G(N_-2), or alpha G(N_-1) if
                // the ratio is undefined.
                let grown = (alpha * last.streams as f64).round() as usize;
                let ratio = last.goodput.as_bits_per_sec() as f64 / before.goodput.as_bits_per_sec() as f64;
                let factor = if before.goodput > Rate::default() { ratio } else { alpha };
                (grown.max(last.streams.saturating_add(1)).min(most), last.goodput.scaled(factor))
            }
            Search::Golden { bracket, n } => (n, bracket.goodput_of(n)),
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

impl Chunk {
    /// Creates a chunk that takes Delta at the expected goodput, with at least a packet per stream.
    fn lasting(delta: Duration, streams: usize, expected: Rate) -> Self {
        Self { streams, size: expected.bytes_in(delta).max(PACKET * streams as u64) }
    }
}

/// Golden section: each chunk narrows the bracket. As in the paper, N is at nu from the lower end
/// of the wider part, also left of m, where the textbook (Numerical Recipes, 10.1) places it at nu
/// from m.
impl Bracket {
    /// Returns N = l + (m - l) nu if m - l > r - m, else m + (r - m) nu, rounded (the paper's
    /// formula 1); `None` if no untried number within the bracket remains.
    fn next(&self) -> Option<usize> {
        let (left, right) = (self.m.streams - self.l.streams, self.r.streams - self.m.streams);
        let (from, width) = if left > right { (self.l, left) } else { (self.m, right) };
        // If the width is at least 2, its product with nu rounds to at least 1 and less than the
        // width: N is new and within the bracket.
        (width > 1).then(|| from.streams + (width as f64 * NU).round() as usize)
    }

    /// Returns the bracket after a trial of N (steps 3 and 4; formula 2).
    fn narrowed(self, tried: Point) -> Self {
        let Self { l, m, r } = self;
        match (tried.goodput > m.goodput, m.streams < tried.streams) {
            (true, true) => Self { l: m, m: tried, r },
            (true, false) => Self { l, m: tried, r: m },
            (false, true) => Self { l, m, r: tried },
            (false, false) => Self { l: tried, m, r },
        }
    }

    /// Returns the expected goodput of N within the bracket, interpolated linearly between its
    /// neighbours.
    fn goodput_of(&self, n: usize) -> Rate {
        let Self { l, m, r } = *self;
        let (from, to) = if n < m.streams { (l, m) } else { (m, r) };
        let xi = (n - from.streams) as f64 / (to.streams - from.streams) as f64;
        from.goodput.scaled(1.0 - xi) + to.goodput.scaled(xi)
    }
}
