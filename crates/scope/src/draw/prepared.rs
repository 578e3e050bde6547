//! Charts made ready for drawing: only what can be drawn, no more of it than can be seen, and its axes.

use crate::chart::{Chart, Mark, Point, Scale, Series, Sheet, Unit};

use super::axis::{End, Ruler};
use super::thin::{finite, thin};

/// A chart ready to be drawn.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    /// What it was made from.
    pub(super) chart: &'a Chart,
    /// The horizontal axis; the same for all charts with the same unit.
    pub(super) x: Ruler,
    /// The vertical axis.
    pub(super) y: Ruler,
    /// Each series with those of its points that are drawn.
    pub(super) series: Vec<(&'a Series, Vec<Point>)>,
}

/// How much of it there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Points of a series.
    pub(super) points: usize,
    /// Points of a chart.
    pub(super) points_of_all: usize,
    /// Ticks of the horizontal axis, about.
    pub(super) x_ticks: usize,
    /// Ticks of the vertical axis, about.
    pub(super) y_ticks: usize,
}

/// Makes all charts of a sheet ready.
pub(super) fn prepare(sheet: &Sheet, limits: Limits) -> Vec<Prepared<'_>> {
    let drawable: Vec<Vec<(&Series, Vec<Point>)>> =
        sheet.charts.iter().map(|chart| thinned(chart, limits)).collect();
    let with_x = |chart: &Chart| {
        let alike = sheet.charts.iter().zip(&drawable).filter(move |(other, _)| shares_x(chart, other));
        alike.flat_map(|(_, series)| all_points(series)).map(|point| point.x).collect::<Vec<_>>()
    };
    let rulers: Vec<(Ruler, Ruler)> = sheet
        .charts
        .iter()
        .zip(&drawable)
        .map(|(chart, series)| {
            let end = if chart.x.unit == Unit::Seconds { End::AtValue } else { End::AtTick };
            let heights = all_points(series).flat_map(heights);
            (
                Ruler::new(&chart.x, with_x(chart).into_iter(), end, limits.x_ticks),
                Ruler::new(&chart.y, heights, End::AtTick, limits.y_ticks),
            )
        })
        .collect();
    let parts = sheet.charts.iter().zip(rulers).zip(drawable);
    parts.map(|((chart, (x, y)), series)| Prepared { chart, x, y, series }).collect()
}

/// Says whether two charts have the same horizontal axis, so that one can be read below the other.
pub(super) fn shares_x(chart: &Chart, other: &Chart) -> bool {
    let linear = |chart: &Chart| chart.x.scale == Scale::Linear;
    std::ptr::eq(chart, other) || (linear(chart) && linear(other) && chart.x.unit == other.x.unit)
}

fn thinned(chart: &Chart, limits: Limits) -> Vec<(&Series, Vec<Point>)> {
    let most = limits.points.min(limits.points_of_all / chart.series.len().max(1));
    let points = |series: &Series| match series.mark {
        // Its points are pairs.
        Mark::Band => finite(&series.points),
        _ => thin(finite(&series.points), most),
    };
    chart.series.iter().map(|series| (series, points(series))).collect()
}

fn all_points<'a>(series: &'a [(&Series, Vec<Point>)]) -> impl Iterator<Item = Point> + 'a {
    series.iter().flat_map(|(_, points)| points.iter().copied())
}

fn heights(point: Point) -> [f64; 3] {
    let (low, high) = point.spread.unwrap_or((point.y, point.y));
    [low, point.y, high]
}
