//! A sheet as a picture: title, notes, and the charts one below the other with aligned plots.

mod canvas;
mod legend;
mod marks;
mod plot;

use crate::chart::Sheet;

use super::prepared::{Limits, PreparedChart, prepare};
use super::text;
pub(super) use canvas::{Align, DASHES, Element, Picture, Text};

/// Width in pixels at 96 per inch.
const WIDTH: f64 = 860.0;
const MARGIN: f64 = 20.0;
/// Height of a plot among others, and of a single plot.
const PLOT: (f64, f64) = (190.0, 380.0);
/// Longer notes are truncated to this number of lines.
const MAX_LINES: usize = 6;

const TITLE: f64 = 19.0;
const HEADING: f64 = 14.5;
const SMALL: f64 = 12.0;

const INK: &str = "#1a1a1a";
const FAINT_INK: &str = "#555555";

/// Draws a sheet.
pub(super) fn draw(sheet: &Sheet) -> Picture {
    let height = if sheet.charts.len() == 1 { PLOT.1 } else { PLOT.0 };
    // Two points per pixel of the printed picture; more cannot be distinguished.
    let limits =
        Limits { points: 4000, points_of_all: 40_000, x_ticks: 12, y_ticks: (height / 38.0).ceil() as usize };
    let charts = prepare(sheet, limits);
    let mut picture = Picture { title: sheet.title.clone(), width: WIDTH, ..Picture::default() };
    let mut y = MARGIN;
    for line in text::wrap(&sheet.title, TITLE, WIDTH - 2.0 * MARGIN).iter().take(MAX_LINES) {
        y += TITLE * 1.25;
        picture.text((MARGIN, y - 5.0), TITLE, INK, Align::Start, line);
    }
    for note in &sheet.notes {
        y = paragraph(&mut picture, note, y, MARGIN);
    }
    let left = plots_left_edge(&charts);
    for chart in &charts {
        y += if y > MARGIN { 22.0 } else { 0.0 };
        y = plot::draw(&mut picture, chart, (left, y), height);
    }
    if charts.is_empty() {
        y += 24.0;
        picture.text((MARGIN, y), SMALL, FAINT_INK, Align::Start, "nothing was recorded");
    }
    picture.height = y + MARGIN;
    picture
}

/// Draws wrapped text below `y`; returns its lower edge.
fn paragraph(picture: &mut Picture, text: &str, mut y: f64, left: f64) -> f64 {
    for line in text::wrap(text, SMALL, WIDTH - MARGIN - left).iter().take(MAX_LINES) {
        y += SMALL * 1.4;
        picture.text((left, y - 3.0), SMALL, FAINT_INK, Align::Start, line);
    }
    y
}

/// Returns the left edge of all plots: right of the widest tick label.
fn plots_left_edge(charts: &[PreparedChart]) -> f64 {
    let ticks = charts.iter().flat_map(|chart| &chart.y.ticks);
    let widest = ticks.map(|tick| text::width(&plot::tick_text(&tick.text), SMALL)).fold(0.0, f64::max);
    MARGIN + widest + 8.0 + SMALL * 1.6
}
