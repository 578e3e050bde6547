//! Fewer points for the same picture.

use crate::chart::Point;

/// More is no measurement, and its difference to another may not be a number.
const LARGEST: f64 = 1e30;

/// Returns the points that can be drawn: those whose numbers are finite.
pub(super) fn finite(points: &[Point]) -> Vec<Point> {
    let finite = |value: f64| value.abs() <= LARGEST;
    let drawable = |point: &Point| {
        let spread = point.spread.is_none_or(|(low, high)| finite(low) && finite(high));
        finite(point.x) && finite(point.y) && spread
    };
    points.iter().copied().filter(drawable).collect()
}

/// Leaves at most `most` points (at least four): of each run of neighbours the lowest and the highest, so
/// that a burst of a single point survives, and the first and the last of all.
pub(super) fn thin(points: Vec<Point>, most: usize) -> Vec<Point> {
    let most = most.max(4);
    let [first, middle @ .., last] = points.as_slice() else { return points };
    if points.len() <= most {
        return points;
    }
    let neighbours = middle.len().div_ceil((most - 2) / 2);
    let extremes = middle.chunks(neighbours).flat_map(extremes);
    std::iter::once(*first).chain(extremes).chain([*last]).collect()
}

/// Returns the lowest and the highest point in the order in which they stand.
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
    fn a_burst_of_one_point_survives() {
        let mut values = vec![1.0; 100_000];
        values[77_777] = 50.0;
        values[33_333] = -3.0;
        let thinned = thin(points(values), 1000);
        assert!(thinned.len() <= 1000, "{}", thinned.len());
        assert!(thinned.contains(&Point::from((77_777.0, 50.0))));
        assert!(thinned.contains(&Point::from((33_333.0, -3.0))));
        assert_eq!((thinned[0].x, thinned[thinned.len() - 1].x), (0.0, 99_999.0));
    }

    #[test]
    fn what_is_short_stays_as_it_is() {
        for count in [0, 1, 2, 999, 1000] {
            let all = points((0..count).map(f64::from));
            assert_eq!(thin(all.clone(), 1000), all);
        }
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
        fn bounds_order_and_extremes_hold(values in prop::collection::vec(-1e9..1e9f64, 1..3000), most in 0usize..500) {
            let all = points(values);
            let thinned = thin(all.clone(), most);
            prop_assert!(thinned.len() <= most.max(4));
            prop_assert!(thinned.windows(2).all(|pair| pair[0].x < pair[1].x));
            let highest = |points: &[Point]| points.iter().map(|p| p.y).fold(f64::MIN, f64::max);
            let lowest = |points: &[Point]| points.iter().map(|p| p.y).fold(f64::MAX, f64::min);
            prop_assert_eq!(highest(&thinned), highest(&all));
            prop_assert_eq!(lowest(&thinned), lowest(&all));
        }
    }
}
