//! A picture as PNG.

use std::fmt::Display;

use longhaul_core::failure::{Failure, FailureKind};
use zeno::{Cap, Join, Mask, Placement, Stroke, Style, Transform};

use super::picture::{Align, DASHES, Element, Picture, Text};
use super::text;

/// Pixels per unit of the picture: sharp in print and on high-density screens.
const SCALE: f32 = 2.0;
/// Maximum height in pixels: many viewers fail above it, and painting takes 150 MB of memory.
const TALLEST: f64 = 30_000.0;

/// Paints a picture and encodes it as PNG.
pub(super) fn paint(picture: &Picture) -> Result<Vec<u8>, Failure> {
    let (width, height) =
        (picture.width.round() * f64::from(SCALE), picture.height.round() * f64::from(SCALE));
    if height > TALLEST {
        return Err(not_painted(&format!("it would be {height} pixels tall")));
    }
    let mut pixels = Pixels::new(width as usize, height as usize);
    for element in &picture.elements {
        pixels.paint(element);
    }
    pixels.encode().map_err(|error| not_painted(&error))
}

fn not_painted(reason: &dyn Display) -> Failure {
    let message = format!("cannot draw the picture in pixels: {reason}; .svg has no such limit");
    Failure::new(FailureKind::CannotCreate, message)
}

/// Red, green and blue of each pixel, row by row.
struct Pixels {
    width: usize,
    height: usize,
    colours: Vec<u8>,
}

impl Pixels {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, colours: vec![255; width * height * 3] }
    }

    fn paint(&mut self, element: &Element) {
        match element {
            Element::Area { path, colour } => {
                self.fill(path, Style::default(), Transform::IDENTITY, colour);
            }
            Element::Line { path, colour, width, dashed } => {
                let mut stroke = Stroke::new(*width as f32);
                stroke.join(Join::Round).cap(if *dashed { Cap::Butt } else { Cap::Round });
                if *dashed {
                    stroke.dash(&DASHES, 0.0);
                }
                self.fill(path, stroke, Transform::IDENTITY, colour);
            }
            Element::Text(text) => self.text(text),
        }
    }

    /// Paints the glyphs of a text at their positions.
    fn text(&mut self, text: &Text) {
        let (glyphs, width) = text::outlines(&text.text, text.size as f32);
        let before = match text.align {
            Align::Start => 0.0,
            Align::Middle => width / 2.0,
            Align::End => width,
        };
        let (sin, cos) = (text.turned as f32).to_radians().sin_cos();
        for (offset, outline) in &glyphs {
            let along = offset - before;
            let (x, y) = (text.at.0 as f32 + along * cos, text.at.1 as f32 + along * sin);
            // A clockwise rotation of an outline whose y grows upwards; zeno's composition mirrors
            // what it rotates.
            let at = Transform { xx: cos, xy: sin, yx: sin, yy: -cos, x, y };
            self.fill(outline, Style::default(), at, text.colour);
        }
    }

    /// Blends a colour into the pixels that a path in SVG syntax covers at its place, weighted by
    /// coverage.
    fn fill<'a>(&mut self, path: &str, style: impl Into<Style<'a>>, at: Transform, colour: &str) {
        let (mask, place) =
            Mask::new(path).style(style).transform(Some(at.then_scale(SCALE, SCALE))).render();
        let ink = ink(colour);
        for (row, coverage) in mask.chunks(place.width.max(1) as usize).enumerate() {
            let (pixels, cut) = self.row(place, row);
            let covered =
                pixels.chunks_exact_mut(3).zip(coverage.iter().skip(cut)).filter(|(_, by)| **by > 0);
            for (pixel, by) in covered {
                for (part, ink) in pixel.iter_mut().zip(ink) {
                    let (paper, by) = (u32::from(*part), u32::from(*by));
                    *part = ((paper * (255 - by) + u32::from(ink) * by + 127) / 255) as u8;
                }
            }
        }
    }

    /// Returns the pixels under a row of a mask, and the number of mask pixels left of the picture.
    fn row(&mut self, place: Placement, row: usize) -> (&mut [u8], usize) {
        let left = i64::from(place.left).clamp(0, self.width as i64) as usize;
        let right = (i64::from(place.left) + i64::from(place.width)).clamp(0, self.width as i64) as usize;
        let cut = (-i64::from(place.left)).max(0) as usize;
        let y = usize::try_from(i64::from(place.top) + row as i64).ok().filter(|y| *y < self.height);
        let pixels =
            y.and_then(|y| self.colours.get_mut((y * self.width + left) * 3..(y * self.width + right) * 3));
        (pixels.unwrap_or_default(), cut)
    }

    fn encode(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut encoded = Vec::new();
        let mut encoder = png::Encoder::new(&mut encoded, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.colours)?;
        writer.finish()?;
        Ok(encoded)
    }
}

/// Returns red, green and blue of `#rrggbb`.
fn ink(colour: &str) -> [u8; 3] {
    let number = u32::from_str_radix(colour.trim_start_matches('#'), 16).unwrap_or(0);
    let [_, red, green, blue] = number.to_be_bytes();
    [red, green, blue]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first and last column and row with paint.
    fn painted(element: Element) -> (usize, usize, usize, usize) {
        let mut pixels = Pixels::new(400, 400);
        pixels.paint(&element);
        let dark = |at: &usize| pixels.colours[at * 3] < 128;
        let (columns, rows): (Vec<_>, Vec<_>) =
            (0..400 * 400).filter(dark).map(|at| (at % 400, at / 400)).unzip();
        let ends = |places: &[usize]| (*places.iter().min().unwrap(), *places.iter().max().unwrap());
        let ((left, right), (top, bottom)) = (ends(&columns), ends(&rows));
        (left, right, top, bottom)
    }

    fn text(align: Align, turned: f64) -> Element {
        let text = "MMMM".to_owned();
        Element::Text(Text { at: (100.0, 100.0), align, turned, size: 20.0, colour: "#000000", text })
    }

    #[test]
    fn text_stands_where_it_was_placed_turned_or_not() {
        let (left, right, top, bottom) = painted(text(Align::Middle, 0.0));
        assert!(left.abs_diff(400 - right) <= 3 && (60..75).contains(&(200 - left)), "{left} to {right}");
        assert!((195..=201).contains(&bottom) && (165..180).contains(&top), "{top} to {bottom}");
        let (left, right, top, bottom) = painted(text(Align::Middle, -90.0));
        assert!(top.abs_diff(400 - bottom) <= 3 && (60..75).contains(&(200 - top)), "{top} to {bottom}");
        assert!((195..=201).contains(&right) && (165..180).contains(&left), "{left} to {right}");
        assert!(painted(text(Align::End, 0.0)).1 <= 200);
        assert!(painted(text(Align::Start, 0.0)).0 >= 200);
    }

    #[test]
    fn paint_outside_picture_is_clipped() {
        let path = "M-50 100L1000 100".to_owned();
        let line = Element::Line { path, colour: "#000000", width: 4.0, dashed: false };
        assert_eq!(painted(line), (0, 399, 196, 203));
        for at in [(-5.0, 5.0), (5.0, -5.0), (500.0, 5.0), (5.0, 500.0)] {
            let (text, align) = ("M".to_owned(), Align::Middle);
            let outside = Text { at, align, turned: 0.0, size: 20.0, colour: "#000000", text };
            Pixels::new(10, 10).paint(&Element::Text(outside));
        }
    }

    #[test]
    fn a_colour_is_mixed_in_as_far_as_it_covers() {
        let mut pixels = Pixels::new(2, 1);
        let half = Element::Area { path: "M0 0h0.25v1h-0.25z".to_owned(), colour: "#ff8000" };
        pixels.paint(&half);
        let wanted = [255u8, 191, 127, 255, 255, 255];
        let mut both = pixels.colours.iter().zip(wanted);
        assert!(both.all(|(found, wanted)| found.abs_diff(wanted) <= 1), "{:?}", pixels.colours);
    }
}
