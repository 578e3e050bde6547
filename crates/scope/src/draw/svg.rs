//! A picture as SVG.

use std::fmt::Write;

use super::picture::{Align, DASHES, Element, Picture, Text};
use super::text::escape;

/// Writes a picture.
pub(super) fn write(picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let title = escape(&picture.title);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="Roboto, Arial, Helvetica, sans-serif" stroke-linejoin="round" stroke-linecap="round">
<title>{title}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
"##
    );
    for element in &picture.elements {
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "{}", written(element));
    }
    svg + "</svg>\n"
}

fn written(element: &Element) -> String {
    match element {
        Element::Area { path, colour } => format!(r#"<path d="{path}" fill="{colour}"/>"#),
        Element::Line { path, colour, width, dashed } => {
            let [line, gap] = DASHES;
            let dashes = if *dashed {
                format!(r#" stroke-dasharray="{line} {gap}" stroke-linecap="butt""#)
            } else {
                String::new()
            };
            format!(r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>"#)
        }
        Element::Text(text) => written_text(text),
    }
}

fn written_text(text: &Text) -> String {
    let (x, y) = text.at;
    let place = if text.turned == 0.0 {
        format!(r#"x="{x:.1}" y="{y:.1}""#)
    } else {
        format!(r#"transform="translate({x:.1} {y:.1}) rotate({})""#, text.turned)
    };
    let anchor = match text.align {
        Align::Start => "",
        Align::Middle => r#" text-anchor="middle""#,
        Align::End => r#" text-anchor="end""#,
    };
    let (size, colour, text) = (text.size, text.colour, escape(&text.text));
    format!(r#"<text {place} font-size="{size}" fill="{colour}"{anchor}>{text}</text>"#)
}
