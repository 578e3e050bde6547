//! How the points of a series look.

use std::fmt::Write;

use crate::chart::{Mark, Point, Series};

use super::super::palette::colour;
use super::super::prepared::Prepared;
use super::canvas::Canvas;

/// The dashes of a reference.
pub(super) const DASHES: &str = "6 4";

/// Where a plot stands.
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
    /// Returns the place of a value, if it has one.
    pub(super) fn place(&self, chart: &Prepared, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (chart.x.place(x)?, chart.y.place(y)?);
        Some((self.left + x * self.width, self.top + (1.0 - y) * self.height))
    }
}

/// Draws a series into its plot.
pub(super) fn draw(canvas: &mut Canvas, frame: Frame, chart: &Prepared, series: &Series, points: &[Point]) {
    let (colour, _) = colour(series.colour);
    let places: Vec<_> = points.iter().filter_map(|p| frame.place(chart, p.x, p.y)).collect();
    match (series.mark, places.as_slice()) {
        (Mark::Dots, _) => dots(canvas, &places, colour),
        (Mark::Measured, _) => {
            line(canvas, &places, colour, r#"stroke-width="1.6""#);
            for point in points {
                whisker(canvas, frame, chart, point, colour);
            }
            symbols(canvas, &places, series.colour, colour);
        }
        // A line through one point is none.
        (Mark::Line | Mark::Steps, [only]) => dots(canvas, &[*only], colour),
        // But a limit is one even so, all the way.
        (Mark::Dashed, [(_, y)]) => {
            let ends = [(frame.left, *y), (frame.left + frame.width, *y)];
            line(canvas, &ends, colour, &format!(r#"stroke-width="1.4" stroke-dasharray="{DASHES}""#));
        }
        (Mark::Dashed, _) => {
            line(canvas, &places, colour, &format!(r#"stroke-width="1.4" stroke-dasharray="{DASHES}""#));
        }
        (Mark::Line, _) => line(canvas, &places, colour, r#"stroke-width="1.3""#),
        (Mark::Steps, _) => steps(canvas, &places, colour),
    }
}

/// Draws points as small discs.
pub(super) fn dots(canvas: &mut Canvas, places: &[(f64, f64)], colour: &str) {
    if places.is_empty() {
        return;
    }
    let mut path = String::new();
    for (x, y) in places {
        let _ = write!(path, "M{x:.1} {y:.1}h0");
    }
    canvas.add(format_args!(
        r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="4.5" stroke-linecap="round"/>"#
    ));
}

/// Draws points as a symbol that tells series apart where colours cannot.
pub(super) fn symbols(canvas: &mut Canvas, places: &[(f64, f64)], index: usize, colour: &str) {
    const SHAPES: [&str; 4] = [
        "m-3.7 0a3.7 3.7 0 1 0 7.4 0a3.7 3.7 0 1 0-7.4 0z",
        "m-3.4-3.4h6.8v6.8h-6.8z",
        "m0-4.6l4.4 7.4h-8.8z",
        "m0-4.8l4.4 4.8l-4.4 4.8l-4.4-4.8z",
    ];
    let shape = SHAPES[index % SHAPES.len()];
    for (x, y) in places {
        canvas.add(format_args!(
            r##"<path d="M{x:.1} {y:.1}{shape}" fill="{colour}" stroke="#ffffff" stroke-width="1"/>"##
        ));
    }
}

fn line(canvas: &mut Canvas, places: &[(f64, f64)], colour: &str, style: &str) {
    let mut path = String::new();
    for (index, (x, y)) in places.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    stroke(canvas, &path, colour, style);
}

fn steps(canvas: &mut Canvas, places: &[(f64, f64)], colour: &str) {
    let mut path = String::new();
    for (index, (x, y)) in places.iter().enumerate() {
        let _ = if index == 0 { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
    }
    stroke(canvas, &path, colour, r#"stroke-width="1.5""#);
}

fn stroke(canvas: &mut Canvas, path: &str, colour: &str, style: &str) {
    if !path.is_empty() {
        canvas.add(format_args!(
            r#"<path d="{path}" fill="none" stroke="{colour}" {style} stroke-linejoin="round"/>"#
        ));
    }
}

/// Draws between what a value varied.
fn whisker(canvas: &mut Canvas, frame: Frame, chart: &Prepared, point: &Point, colour: &str) {
    let Some((low, high)) = point.spread else { return };
    let ends = (frame.place(chart, point.x, low), frame.place(chart, point.x, high));
    let (Some((x, low)), Some((_, high))) = ends else { return };
    canvas.add(format_args!(
        r#"<path d="M{:.1} {low:.1}h8m-4 0V{high:.1}m-4 0h8" fill="none" stroke="{colour}" stroke-width="1.2"/>"#,
        x - 4.0
    ));
}
