//! The goals of `--pace auto` on the pacing grid, in real and in virtual time.

use longhaul_lab::scenario::Spread;

use crate::grid_path::{GridPath, GridQueue};
use crate::report::Goal;

/// The queue, in milliseconds, behind which `auto` must be twice as fast as `off`.
const SHORT_QUEUE_MS: u64 = 8;

/// `--pace auto` and `off` on one path.
pub(crate) struct PacedPath {
    pub(crate) path: GridPath,
    /// The time of `auto` over that of `off`.
    pub(crate) time: f64,
    /// Segments retransmitted by `auto` and by `off`; `None` where the kernel did not tell.
    pub(crate) retransmits: Option<[f64; 2]>,
}

/// Returns the goals on the paths of `grid`, and whether they were met; none without paths.
pub(crate) fn goals(grid: &str, paths: &[PacedPath]) -> Vec<Goal> {
    let times = Spread::of(paths.iter().map(|path| path.time));
    let is_short = |path: &&PacedPath| path.path.queue == GridQueue::Millis(SHORT_QUEUE_MS);
    let short = Spread::of(paths.iter().filter(is_short).map(|path| path.time));
    let time = |of: &str, time: Option<f64>, most: f64| {
        let asked = format!("{grid}: {of} of auto / off at most {most:.2}");
        time.map(|time| Goal::new(asked, format!("{time:.3}x"), time <= most))
    };
    let shallow = paths.iter().filter(|path| path.path.is_shallow());
    let counted: Vec<_> = shallow.filter_map(|path| path.retransmits).collect();
    let retransmits = (!counted.is_empty()).then(|| {
        let [auto, off] = [0, 1].map(|index| counted.iter().map(|counts| counts[index]).sum::<f64>());
        let asked = format!("{grid}, queue at most 0.1 BDP: retransmits of auto at most 1 % of off");
        Goal::new(asked, format!("{auto:.0} of {off:.0}"), auto <= 0.01 * off)
    });
    let goals = [
        time("median", times.as_ref().map(|times| times.median), 1.03),
        time("worst", times.as_ref().map(|times| times.max), 1.10),
        time(&format!("median with a queue of {SHORT_QUEUE_MS} ms"), short.map(|short| short.median), 0.5),
        retransmits,
    ];
    goals.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_held_to_off_in_time_and_in_retransmits() {
        let paced = |queue, time, retransmits| PacedPath {
            path: GridPath { mbit: 100, rtt_ms: 100, queue },
            time,
            retransmits: Some(retransmits),
        };
        let paths = [
            paced(GridQueue::Millis(8), 0.6, [2.0, 100.0]),
            paced(GridQueue::BdpPercent(10), 0.9, [0.0, 100.0]),
            paced(GridQueue::BdpPercent(100), 1.2, [900.0, 100.0]),
        ];
        let of = |paths: &[PacedPath]| Goal::measured(&goals("grid", paths));
        let met = ["0.900x yes", "1.200x **no**", "0.600x **no**", "2 of 200 yes"];
        assert_eq!(of(&paths), met, "a queue of 1 BDP counts only in the times");
        assert_eq!(of(&paths[2..]), ["1.200x **no**", "1.200x **no**"]);
        assert!(of(&[]).is_empty());
    }
}
