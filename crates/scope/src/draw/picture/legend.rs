//! A chart's legend: rows above the plot, where they cover no data.

use crate::chart::{Mark, Series};

use super::super::palette::colour;
use super::super::text;
use super::canvas::{Align, Picture};
use super::marks;
use super::{INK, SMALL};

const SAMPLE: f64 = 22.0;
const ROW: f64 = 17.0;
/// Space between two entries.
const GAP: f64 = 18.0;
/// Longer names are truncated.
const WIDEST: f64 = 330.0;

/// Draws the legend below `y`; returns where it ends.
pub(super) fn draw(
    picture: &mut Picture,
    series: &[(&Series, bool)],
    (left, y): (f64, f64),
    room: f64,
) -> f64 {
    let named: Vec<_> = series.iter().filter(|(series, _)| !series.name.is_empty()).collect();
    let names: Vec<String> = named.iter().map(|(series, has_points)| name(series, *has_points)).collect();
    let width = |name: &String| SAMPLE + 6.0 + text::width(name, SMALL) + GAP;
    let fits_a_row = names.iter().map(width).sum::<f64>() <= room;
    let column = names.iter().map(width).fold(0.0, f64::max);
    let (mut x, mut row) = (left, 0.0);
    for ((series, _), name) in named.iter().zip(&names) {
        let step = if fits_a_row { width(name) } else { column };
        // An entry that does not fit starts the next row; a truncated one may fill a row.
        if x > left && x + step - GAP > left + room {
            (x, row) = (left, row + 1.0);
        }
        let middle = y + row * ROW + ROW / 2.0;
        sample(picture, series, (x, middle));
        picture.text((x + SAMPLE + 6.0, middle + 4.2), SMALL, INK, Align::Start, name);
        x += step;
    }
    if names.is_empty() { y } else { y + (row + 1.0) * ROW }
}

fn name(series: &Series, has_points: bool) -> String {
    let name = text::cut(&series.name, SMALL, WIDEST);
    if has_points { name } else { name + " (nothing was recorded)" }
}

/// Draws a sample of a series' mark.
fn sample(picture: &mut Picture, series: &Series, (x, y): (f64, f64)) {
    let (colour, _) = colour(series.colour);
    let end = x + SAMPLE;
    match series.mark {
        Mark::Line | Mark::Steps | Mark::Measured => picture.line((x, y), (end, y), colour, 2.0),
        Mark::Dashed => picture.dashes(format!("M{x:.1} {y:.1}L{end:.1} {y:.1}"), colour, 1.6),
        Mark::Band => picture.area(format!("M{x:.1} {:.1}h{SAMPLE}v11h-{SAMPLE}z", y - 5.5), colour),
        Mark::Dots | Mark::Rings | Mark::Events | Mark::Separate => {}
    }
    match series.mark {
        Mark::Dots | Mark::Events => marks::dots(picture, &[(x + SAMPLE / 2.0, y)], colour),
        Mark::Rings => marks::rings(picture, &[(x + SAMPLE / 2.0, y)], series.colour, colour),
        Mark::Measured | Mark::Separate => {
            marks::symbols(picture, &[(x + SAMPLE / 2.0, y)], series.colour, colour)
        }
        Mark::Line | Mark::Steps | Mark::Dashed | Mark::Band => {}
    }
}
