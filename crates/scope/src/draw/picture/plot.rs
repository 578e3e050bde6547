//! One chart: heading, legend, grid, axes and series.

use crate::chart::{Mark, Point, Scale, Series};

use super::super::prepared::PreparedChart;
use super::super::text;
use super::canvas::{Align, Picture};
use super::marks::{self, Frame};
use super::{FAINT_INK, HEADING, INK, MARGIN, SMALL, WIDTH, legend, paragraph};

const GRID: &str = "#e3e3e3";
const FRAME: &str = "#8a8a8a";
/// Maximum width of a tick label.
const WIDEST_TICK: f64 = 150.0;
/// Rotation in degrees of names too wide to stand side by side.
const SLOPE: f64 = -35.0;

/// Draws a chart below `y`, its plot from `left` on and `height` high; returns its lower edge.
pub(super) fn draw(picture: &mut Picture, chart: &PreparedChart, (left, y): (f64, f64), height: f64) -> f64 {
    let mut y = y;
    if !chart.chart.title.is_empty() {
        y += HEADING * 1.3;
        let title = text::cut(&chart.chart.title, HEADING, WIDTH - MARGIN - left);
        picture.text((left, y - 4.0), HEADING, INK, Align::Start, &title);
    }
    y = paragraph(picture, &chart.chart.note, y, left);
    let width = WIDTH - MARGIN - left;
    let series: Vec<_> = chart.series.iter().map(|(series, points)| (*series, !points.is_empty())).collect();
    y = legend::draw(picture, &series, (left, y + 2.0), width);
    let frame = Frame { left, top: y + 8.0, width, height };
    if has_points(chart) {
        let is_band = |(series, _): &&(&Series, Vec<Point>)| series.mark == Mark::Band;
        for (series, points) in chart.series.iter().filter(is_band) {
            marks::draw(picture, frame, chart, series, points);
        }
        grid(picture, chart, frame);
        for (series, points) in chart.series.iter().filter(|series| !is_band(series)) {
            marks::draw(picture, frame, chart, series, points);
        }
    } else {
        let middle = (left + width / 2.0, frame.top + height / 2.0);
        picture.text(middle, SMALL, FAINT_INK, Align::Middle, "nothing was recorded");
    }
    axes(picture, chart, frame)
}

/// Returns the label of a tick, truncated.
pub(super) fn tick_text(text: &str) -> String {
    text::cut(text, SMALL, WIDEST_TICK)
}

fn has_points(chart: &PreparedChart) -> bool {
    chart.series.iter().any(|(_, points)| !points.is_empty())
}

fn grid(picture: &mut Picture, chart: &PreparedChart, frame: Frame) {
    let bottom = frame.top + frame.height;
    let lines = |scale: &Scale| !matches!(scale, Scale::Names(_));
    if lines(&chart.chart.y.scale) {
        for place in chart.y.ticks.iter().filter_map(|tick| chart.y.place(tick.value)) {
            let y = bottom - place * frame.height;
            picture.line((frame.left, y), (frame.left + frame.width, y), GRID, 0.8);
        }
    }
    if lines(&chart.chart.x.scale) {
        for place in chart.x.ticks.iter().filter_map(|tick| chart.x.place(tick.value)) {
            let x = frame.left + place * frame.width;
            picture.line((x, frame.top), (x, bottom), GRID, 0.8);
        }
    }
}

/// Draws both axes; returns the lower edge of the x axis' label.
fn axes(picture: &mut Picture, chart: &PreparedChart, frame: Frame) -> f64 {
    let (right, bottom) = (frame.left + frame.width, frame.top + frame.height);
    picture.line((frame.left, bottom), (right, bottom), FRAME, 1.0);
    picture.line((frame.left, frame.top), (frame.left, bottom), FRAME, 1.0);
    let mut y = bottom + 4.0;
    if has_points(chart) {
        for tick in &chart.y.ticks {
            let Some(place) = chart.y.place(tick.value) else { continue };
            let y = bottom - place * frame.height;
            let at = (frame.left - 7.0, y + SMALL * 0.35);
            picture.line((frame.left - 4.0, y), (frame.left, y), FRAME, 1.0);
            picture.text(at, SMALL, INK, Align::End, &tick_text(&tick.text));
        }
        y = ticks_below(picture, chart, frame);
    }
    picture.turned_text(
        (MARGIN + SMALL * 0.6, frame.top + frame.height / 2.0),
        -90.0,
        SMALL,
        INK,
        Align::Middle,
        &text::cut(&chart.y.label, SMALL, frame.height + 40.0),
    );
    let label = text::cut(&chart.x.label, SMALL, frame.width);
    y += SMALL * 1.4;
    picture.text((frame.left + frame.width / 2.0, y - 3.0), SMALL, INK, Align::Middle, &label);
    y
}

/// Draws the ticks of the x axis; returns the lower edge of their labels.
fn ticks_below(picture: &mut Picture, chart: &PreparedChart, frame: Frame) -> f64 {
    let bottom = frame.top + frame.height;
    let texts: Vec<String> = chart.x.ticks.iter().map(|tick| tick_text(&tick.text)).collect();
    let widest = texts.iter().map(|text| text::width(text, SMALL)).fold(0.0, f64::max);
    let slot = frame.width / texts.len().max(1) as f64;
    let turned = widest + 6.0 > slot;
    for (tick, text) in chart.x.ticks.iter().zip(&texts) {
        let Some(place) = chart.x.place(tick.value) else { continue };
        let x = frame.left + place * frame.width;
        picture.line((x, bottom), (x, bottom + 4.0), FRAME, 1.0);
        if turned {
            picture.turned_text((x + 4.0, bottom + 14.0), SLOPE, SMALL, INK, Align::End, text);
        } else {
            picture.text((x, bottom + 17.0), SMALL, INK, Align::Middle, text);
        }
    }
    let sunk = if turned { widest * SLOPE.to_radians().sin().abs() } else { 0.0 };
    bottom + 19.0 + sunk
}
