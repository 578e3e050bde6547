//! Draws the points of a series.

use crate::chart::{Mark, Point, Series};

use super::super::palette::colour;
use super::super::prepared::PreparedChart;
use super::canvas::Picture;

const PAPER: &str = "#ffffff";

/// The position of a plot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Its left edge.
    pub(super) left: f64,
    /// Its top.
    pub(super) top: f64,
    /// Its width.
    pub(super) width: f64,
    /// Its height.
    pub(super) height: f64,
}

impl Frame {
    /// Returns the position of a value; `None` if it is outside an axis.
    pub(super) fn place(&self, chart: &PreparedChart, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (chart.x.place(x)?, chart.y.place(y)?);
        Some((self.left + x * self.width, self.top + (1.0 - y) * self.height))
    }
}

/// Draws a series into its plot.
pub(super) fn draw(
    picture: &mut Picture,
    frame: Frame,
    chart: &PreparedChart,
    series: &Series,
    points: &[Point],
) {
    let (colour, _) = colour(series.colour);
    let places: Vec<_> = points.iter().filter_map(|p| frame.place(chart, p.x, p.y)).collect();
    if places.is_empty() {
        return;
    }
    match (series.mark, places.as_slice()) {
        (Mark::Dots | Mark::Events, _) => dots(picture, &places, colour),
        (Mark::Rings, _) => rings(picture, &places, series.colour, colour),
        (Mark::Measured | Mark::Separate, _) => {
            for piece in pieces(&places).filter(|_| series.mark == Mark::Measured) {
                picture.path(way(piece), colour, 1.6);
            }
            for point in points {
                whisker(picture, frame, chart, point, colour);
            }
            symbols(picture, &places, series.colour, colour);
        }
        (Mark::Band, _) => bands(picture, frame, &places, colour),
        // A line needs two points; a single one is drawn as a dot.
        (Mark::Line | Mark::Steps, [only]) => dots(picture, &[*only], colour),
        // A reference with a single point spans the plot.
        (Mark::Dashed, [(_, y)]) => {
            let ends = [(frame.left, *y), (frame.left + frame.width, *y)];
            picture.dashes(way(&ends), colour, 1.4);
        }
        (Mark::Dashed, _) => picture.dashes(way(&places), colour, 1.4),
        (Mark::Line, _) => pieces(&places).for_each(|piece| picture.path(way(piece), colour, 1.3)),
        (Mark::Steps, _) => pieces(&places).for_each(|piece| picture.path(steps(piece), colour, 1.5)),
    }
}

/// Maximum of points in one path: the time to paint a path grows with the square of its crossings
/// of a pixel row.
const PIECE: usize = 100;

/// Splits a line into pieces; each begins at the end of the previous one.
fn pieces(places: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    let begins = (0..places.len().saturating_sub(1)).step_by(PIECE);
    begins.map(|begin| &places[begin..places.len().min(begin + PIECE + 1)])
}

/// A disc around the current point, in SVG path syntax.
const DISC: &str = "m-2.2 0a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0z";
/// Symbols that distinguish series without colour.
const SYMBOLS: [&str; 4] = [
    "m-3.7 0a3.7 3.7 0 1 0 7.4 0a3.7 3.7 0 1 0-7.4 0z",
    "m-3.4-3.4h6.8v6.8h-6.8z",
    "m0-4.6l4.4 7.4h-8.8z",
    "m0-4.8l4.4 4.8l-4.4 4.8l-4.4-4.8z",
];

/// Larger variants of `SYMBOLS`.
const RINGS: [&str; 4] = [
    "m-5.6 0a5.6 5.6 0 1 0 11.2 0a5.6 5.6 0 1 0-11.2 0z",
    "m-5.2-5.2h10.4v10.4h-10.4z",
    "m0-7l6.6 11.2h-13.2z",
    "m0-7.2l6.6 7.2l-6.6 7.2l-6.6-7.2z",
];

/// Fills the plot's height between the two positions of each pair.
fn bands(picture: &mut Picture, frame: Frame, places: &[(f64, f64)], colour: &'static str) {
    let (top, height) = (frame.top, frame.height);
    for piece in places.chunks(2 * PIECE) {
        let pairs = piece.chunks_exact(2);
        let area = |pair: &[(f64, f64)]| {
            let (left, width) = (pair[0].0, pair[1].0 - pair[0].0);
            format!("M{left:.1} {top:.1}h{width:.1}v{height:.1}h{:.1}z", -width)
        };
        picture.area(pairs.map(area).collect(), colour);
    }
}

/// Draws points as discs.
pub(super) fn dots(picture: &mut Picture, places: &[(f64, f64)], colour: &'static str) {
    for piece in places.chunks(PIECE) {
        picture.area(piece.iter().map(|(x, y)| format!("M{x:.1} {y:.1}{DISC}")).collect(), colour);
    }
}

/// Draws points as hollow symbols, larger than those of [`symbols`], so that they remain visible
/// below them.
pub(super) fn rings(picture: &mut Picture, places: &[(f64, f64)], index: usize, colour: &'static str) {
    let ring = RINGS[index % RINGS.len()];
    for piece in places.chunks(PIECE) {
        picture.path(piece.iter().map(|(x, y)| format!("M{x:.1} {y:.1}{ring}")).collect(), colour, 1.6);
    }
}

/// Draws points as symbols with a white edge.
pub(super) fn symbols(picture: &mut Picture, places: &[(f64, f64)], index: usize, colour: &'static str) {
    let symbol = SYMBOLS[index % SYMBOLS.len()];
    let path: String = places.iter().map(|(x, y)| format!("M{x:.1} {y:.1}{symbol}")).collect();
    picture.path(path.clone(), PAPER, 2.0);
    picture.area(path, colour);
}

/// Returns the path through the positions.
fn way(places: &[(f64, f64)]) -> String {
    let step = |(index, (x, y)): (usize, &(f64, f64))| {
        format!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' })
    };
    places.iter().enumerate().map(step).collect()
}

/// Returns the stepped path through the positions.
fn steps(places: &[(f64, f64)]) -> String {
    let step = |(index, (x, y)): (usize, &(f64, f64))| {
        if index == 0 { format!("M{x:.1} {y:.1}") } else { format!("H{x:.1}V{y:.1}") }
    };
    places.iter().enumerate().map(step).collect()
}

/// Draws the spread of a value.
fn whisker(picture: &mut Picture, frame: Frame, chart: &PreparedChart, point: &Point, colour: &'static str) {
    let Some((low, high)) = point.spread else { return };
    let ends = (frame.place(chart, point.x, low), frame.place(chart, point.x, high));
    let (Some((x, low)), Some((_, high))) = ends else { return };
    let path = format!("M{:.1} {low:.1}h8m-4 0V{high:.1}m-4 0h8", x - 4.0);
    picture.path(path, colour, 1.2);
}
