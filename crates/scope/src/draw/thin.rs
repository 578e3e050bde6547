//! Reduces the points of a series without a visible change.

use crate::chart::Point;

/// Larger values are no measurements; their difference may overflow.
const LARGEST: f64 = 1e30;

/// Returns the points with finite coordinates.
pub(super) fn finite(points: &[Point]) -> Vec<Point> {
    let finite = |value: f64| value.abs() <= LARGEST;
    let drawable = |point: &Point| {
        let spread = point.spread.is_none_or(|(low, high)| finite(low) && finite(high));
        finite(point.x) && finite(point.y) && spread
    };
    points.iter().copied().filter(drawable).collect()
}

/// Keeps at most `most` points (at least eight): the first, the last, and the lowest and highest of
/// each run of neighbours, so that a burst of a single point remains.
///
/// A run ends at a gap in x: a line across a pause begins and ends where the pause does.
pub(super) fn thin(points: Vec<Point>, most: usize) -> Vec<Point> {
    let most = most.max(8);
    let [first, middle @ .., last] = points.as_slice() else { return points };
    if points.len() <= most {
        return points;
    }
    let runs = (most - 2) / 2;
    // The shortest pause; at most half of the runs can end in one.
    let pause = (last.x - first.x) / (runs / 2) as f64;
    let together = || middle.chunk_by(|a, b| b.x - a.x <= pause);
    // Each pause may end a run early.
    let longest = middle.len().div_ceil(runs.saturating_sub(together().count()).max(1));
    let extremes = together().flat_map(|near| near.chunks(longest)).flat_map(extremes);
    std::iter::once(*first).chain(extremes).chain([*last]).collect()
}

/// Returns the lowest and the highest point, in their original order.
fn extremes(points: &[Point]) -> impl Iterator<Item = Point> + use<> {
    let indices = || 0..points.len();
    let low = indices().min_by(|&a, &b| points[a].y.total_cmp(&points[b].y)).unwrap_or(0);
    let high = indices().max_by(|&a, &b| points[a].y.total_cmp(&points[b].y)).unwrap_or(0);
    let (a, b) = (points[low.min(high)], points[low.max(high)]);
    [Some(a), (low != high).then_some(b)].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(values: impl IntoIterator<Item = f64>) -> Vec<Point> {
        values.into_iter().enumerate().map(|(x, y)| Point::from((x as f64, y))).collect()
    }

    #[test]
    fn a_pause_is_not_blurred() {
        // No points until x = 900, then a rising line.
        let line = (0..10_000).map(|n| Point::from((900.0 + f64::from(n) / 100.0, f64::from(n))));
        let all: Vec<Point> =
            [0.0, 0.1, 0.2].map(|x| Point::from((x, 0.0))).into_iter().chain(line).collect();
        let thinned = thin(all.clone(), 400);
        assert!(thinned.len() <= 400 && thinned.contains(&all[3]), "{:?}", &thinned[..5]);
        assert_eq!((thinned[0], thinned.last()), (all[0], all.last()));
        let at_once = thin((0..1000).map(|n| Point::from((5.0, f64::from(n)))).collect(), 100);
        assert!(at_once.len() <= 100, "{}", at_once.len());
    }

    #[test]
    fn only_finite_points_are_drawn() {
        let mut all = points([1.0, f64::NAN, f64::INFINITY, 2.0, f64::MIN]);
        all.push(Point { x: f64::NEG_INFINITY, y: 1.0, spread: None });
        all.push(Point { x: 5.0, y: 1.0, spread: Some((f64::NAN, 1.0)) });
        assert_eq!(finite(&all), [Point::from((0.0, 1.0)), Point::from((3.0, 2.0))]);
    }

    proptest! {
        #[test]
        fn bounds_order_and_extremes_hold(
            values in prop::collection::vec((-1e9..1e9f64, 0..40i32), 1..3000), most in 0usize..500,
        ) {
            // Steps of 1e-6 to 1e6.
            let mut x = 0.0;
            let all: Vec<Point> = values.into_iter().map(|(y, step)| {
                x += 2f64.powi(step - 20);
                Point::from((x, y))
            }).collect();
            let thinned = thin(all.clone(), most);
            prop_assert!(thinned.len() <= most.max(8) && (all.len() > most || thinned == all));
            prop_assert!(thinned.windows(2).all(|pair| pair[0].x < pair[1].x));
            let highest = |points: &[Point]| points.iter().map(|p| p.y).fold(f64::MIN, f64::max);
            let lowest = |points: &[Point]| points.iter().map(|p| p.y).fold(f64::MAX, f64::min);
            prop_assert_eq!(highest(&thinned), highest(&all));
            prop_assert_eq!(lowest(&thinned), lowest(&all));
        }
    }
}
