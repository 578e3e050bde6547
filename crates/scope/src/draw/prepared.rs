//! Charts prepared for drawing: finite points, thinned to what is visible, and axes.

use crate::chart::{Chart, Mark, Point, Scale, Series, Sheet, Unit};

use super::axis::{DrawnAxis, End};
use super::thin::{finite, thin};

/// A chart ready to be drawn.
#[derive(Debug)]
pub(super) struct PreparedChart<'a> {
    /// The source chart.
    pub(super) chart: &'a Chart,
    /// The horizontal axis; shared by all charts with one unit.
    pub(super) x: DrawnAxis,
    /// The vertical axis.
    pub(super) y: DrawnAxis,
    /// Each series with its thinned points.
    pub(super) series: Vec<(&'a Series, Vec<Point>)>,
}

/// Upper bounds of points and ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Points per series.
    pub(super) points: usize,
    /// Points per chart.
    pub(super) points_of_all: usize,
    /// Approximate ticks of the horizontal axis.
    pub(super) x_ticks: usize,
    /// Approximate ticks of the vertical axis.
    pub(super) y_ticks: usize,
}

/// Prepares all charts of a sheet.
pub(super) fn prepare(sheet: &Sheet, limits: Limits) -> Vec<PreparedChart<'_>> {
    let drawable: Vec<Vec<(&Series, Vec<Point>)>> =
        sheet.charts.iter().map(|chart| thinned(chart, limits)).collect();
    let with_x = |chart: &Chart| {
        let alike = sheet.charts.iter().zip(&drawable).filter(move |(other, _)| shares_x(chart, other));
        alike.flat_map(|(_, series)| all_points(series)).map(|point| point.x).collect::<Vec<_>>()
    };
    let rulers: Vec<(DrawnAxis, DrawnAxis)> = sheet
        .charts
        .iter()
        .zip(&drawable)
        .map(|(chart, series)| {
            let end = if chart.x.unit == Unit::Seconds { End::AtValue } else { End::AtTick };
            let heights = all_points(series).flat_map(heights);
            (
                DrawnAxis::new(&chart.x, with_x(chart).into_iter(), end, limits.x_ticks),
                DrawnAxis::new(&chart.y, heights, End::AtTick, limits.y_ticks),
            )
        })
        .collect();
    let parts = sheet.charts.iter().zip(rulers).zip(drawable);
    parts.map(|((chart, (x, y)), series)| PreparedChart { chart, x, y, series }).collect()
}

/// Returns whether two charts share a horizontal axis, so that they align one below the other.
pub(super) fn shares_x(chart: &Chart, other: &Chart) -> bool {
    let linear = |chart: &Chart| chart.x.scale == Scale::Linear;
    std::ptr::eq(chart, other) || (linear(chart) && linear(other) && chart.x.unit == other.x.unit)
}

fn thinned(chart: &Chart, limits: Limits) -> Vec<(&Series, Vec<Point>)> {
    let most = limits.points.min(limits.points_of_all / chart.series.len().max(1));
    let points = |series: &Series| match series.mark {
        // The points of a band are pairs and cannot be thinned.
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
