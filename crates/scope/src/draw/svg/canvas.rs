//! SVG as it is written: elements with escaped text and short numbers.

use std::fmt::{Display, Write};

use super::super::text::escape;

/// Where a text stands relative to its place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Align {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// The elements drawn so far.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    elements: String,
}

impl Canvas {
    /// Adds an element that holds no text from outside.
    pub(super) fn add(&mut self, element: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.elements, "{element}");
    }

    /// Adds a line of text.
    pub(super) fn text(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        colour: &str,
        align: Align,
        weight: &str,
        text: &str,
    ) {
        let anchor = anchor(align);
        let text = escape(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}"{anchor} font-weight="{weight}">{text}</text>"#
        ));
    }

    /// Adds a line of text that is turned by `degrees` around its place.
    pub(super) fn turned_text(
        &mut self,
        (x, y): (f64, f64),
        degrees: f64,
        size: f64,
        colour: &str,
        align: Align,
        text: &str,
    ) {
        let anchor = anchor(align);
        let text = escape(text);
        self.add(format_args!(
            r#"<text transform="translate({x:.1} {y:.1}) rotate({degrees})" font-size="{size}" fill="{colour}"{anchor}>{text}</text>"#
        ));
    }

    /// Adds a straight line.
    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str, width: f64) {
        self.add(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"/>"#
        ));
    }

    /// Returns the whole picture on white paper.
    pub(super) fn finish(self, title: &str, width: f64, height: f64) -> String {
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" "#,
                r#"viewBox="0 0 {width:.0} {height:.0}" font-family="Roboto, Arial, Helvetica, sans-serif">"#,
                "\n<title>{title}</title>\n",
                "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{elements}</svg>\n"
            ),
            title = escape(title),
            elements = self.elements,
            width = width,
            height = height,
        )
    }
}

fn anchor(align: Align) -> &'static str {
    match align {
        Align::Start => "",
        Align::Middle => r#" text-anchor="middle""#,
        Align::End => r#" text-anchor="end""#,
    }
}
