//! Golden section: each chunk narrows the bracket.
//!
//! As in the paper, N is at nu from the lower end of the wider part, also left of m, where the textbook (Numerical
//! Recipes, 10.1) places it at nu from m.

use super::Point;

/// nu = (3 - sqrt 5) / 2, the golden section.
const NU: f64 = 0.381_966_011_250_105_1;

/// A range of numbers of streams that contains the optimum: G(l) <= G(m) >= G(r).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bracket {
    pub(super) l: Point,
    /// The best number so far.
    pub(super) m: Point,
    pub(super) r: Point,
}

impl Bracket {
    /// Returns N = l + (m - l) nu if m - l > r - m, else m + (r - m) nu, rounded (the paper's formula 1); `None` if no
    /// untried number within the bracket remains.
    pub(super) fn next(&self) -> Option<usize> {
        let (left, right) = (self.m.streams - self.l.streams, self.r.streams - self.m.streams);
        let (from, width) = if left > right { (self.l, left) } else { (self.m, right) };
        // If the width is at least 2, its product with nu rounds to at least 1 and less than the width: N is new and
        // within the bracket.
        (width > 1).then(|| from.streams + (width as f64 * NU).round() as usize)
    }

    /// Returns the bracket after a trial of N (steps 3 and 4; formula 2).
    pub(super) fn narrowed(self, tried: Point) -> Self {
        let Self { l, m, r } = self;
        match (tried.goodput > m.goodput, m.streams < tried.streams) {
            (true, true) => Self { l: m, m: tried, r },
            (true, false) => Self { l, m: tried, r: m },
            (false, true) => Self { l, m, r: tried },
            (false, false) => Self { l: tried, m, r },
        }
    }
}
