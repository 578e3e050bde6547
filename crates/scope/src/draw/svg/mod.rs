//! A sheet as SVG: title and notes, and the charts one below the other, their plots aligned.

mod canvas;
mod legend;
mod marks;
mod plot;

use crate::chart::Sheet;

use super::prepared::{Limits, Prepared, prepare};
use super::text;
use canvas::{Align, Canvas};

/// The picture's width in pixels at 96 a inch.
const WIDTH: f64 = 860.0;
const MARGIN: f64 = 20.0;
/// The height of a plot among others, and of the only one.
const PLOT: (f64, f64) = (190.0, 380.0);
/// A note longer than this tells nobody anything.
const MOST_LINES: usize = 6;

const TITLE: f64 = 19.0;
const HEADING: f64 = 14.5;
const SMALL: f64 = 12.0;

const INK: &str = "#1a1a1a";
const FAINT_INK: &str = "#555555";

/// Draws a sheet.
pub(super) fn draw(sheet: &Sheet) -> String {
    let height = if sheet.charts.len() == 1 { PLOT.1 } else { PLOT.0 };
    // Two points a pixel of a printer's resolution: more cannot be told apart.
    let limits =
        Limits { points: 4000, points_of_all: 40_000, x_ticks: 12, y_ticks: (height / 38.0).ceil() as usize };
    let charts = prepare(sheet, limits);
    let mut canvas = Canvas::default();
    let mut y = MARGIN;
    for line in text::wrap(&sheet.title, TITLE, WIDTH - 2.0 * MARGIN).iter().take(MOST_LINES) {
        y += TITLE * 1.25;
        canvas.text((MARGIN, y - 5.0), TITLE, INK, Align::Start, "500", line);
    }
    for note in &sheet.notes {
        y = paragraph(&mut canvas, note, y, MARGIN);
    }
    let left = plots_left_edge(&charts);
    for chart in &charts {
        y += if y > MARGIN { 22.0 } else { 0.0 };
        y = plot::draw(&mut canvas, chart, (left, y), height);
    }
    if charts.is_empty() {
        y += 24.0;
        canvas.text((MARGIN, y), SMALL, FAINT_INK, Align::Start, "400", "nothing was recorded");
    }
    canvas.finish(&sheet.title, WIDTH, y + MARGIN)
}

/// Writes text in lines below `y`; returns where it ends.
fn paragraph(canvas: &mut Canvas, text: &str, mut y: f64, left: f64) -> f64 {
    for line in text::wrap(text, SMALL, WIDTH - MARGIN - left).iter().take(MOST_LINES) {
        y += SMALL * 1.4;
        canvas.text((left, y - 3.0), SMALL, FAINT_INK, Align::Start, "400", line);
    }
    y
}

/// Returns where all plots begin: right of the widest tick of any.
fn plots_left_edge(charts: &[Prepared]) -> f64 {
    let ticks = charts.iter().flat_map(|chart| &chart.y.ticks);
    let widest = ticks.map(|tick| text::width(&plot::tick_text(&tick.text), SMALL)).fold(0.0, f64::max);
    MARGIN + widest + 8.0 + SMALL * 1.6
}
