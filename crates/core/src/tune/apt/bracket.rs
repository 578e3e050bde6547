//! Bracketing: the number of streams grows by alpha until goodput falls.

use std::ops::ControlFlow;

use super::Point;
use super::golden::Bracket;

/// The last two chunks; before the first chunk, no streams without goodput.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bracketing {
    /// N_-2 and G(N_-2).
    pub(super) before: Point,
    /// N_-1 and G(N_-1).
    pub(super) last: Point,
}

impl Bracketing {
    /// Observes G(N): a decrease ends bracketing with the bracket (N_-2, N_-1, N) (step 3 of the paper), and so does
    /// the largest number of streams, with (N_-1, N, N).
    pub(super) fn observe(self, here: Point, most: usize) -> ControlFlow<Bracket, Self> {
        if here.goodput < self.last.goodput {
            ControlFlow::Break(Bracket { l: self.before, m: self.last, r: here })
        } else if here.streams >= most {
            ControlFlow::Break(Bracket { l: self.last, m: here, r: here })
        } else {
            ControlFlow::Continue(Self { before: self.last, last: here })
        }
    }

    /// Returns alpha N_-1, rounded (step 4); at least one stream more, at most `most`.
    pub(super) fn next(&self, alpha: f64, most: usize) -> usize {
        let grown = (alpha * self.last.streams as f64).round() as usize;
        grown.max(self.last.streams.saturating_add(1)).min(most)
    }
}
