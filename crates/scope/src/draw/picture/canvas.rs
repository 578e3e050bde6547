//! The elements of a picture, before it becomes SVG or PNG.

/// A picture on white. Lengths are pixels at 96 per inch; y grows downwards.
#[derive(Debug, Default)]
pub(in super::super) struct Picture {
    /// The title.
    pub(in super::super) title: String,
    /// Its width.
    pub(in super::super) width: f64,
    /// Its height.
    pub(in super::super) height: f64,
    /// The elements, the last on top.
    pub(in super::super) elements: Vec<Element>,
}

/// An element of a picture.
#[derive(Debug)]
pub(in super::super) enum Element {
    /// An area.
    Area {
        /// Its outline, in SVG path syntax.
        path: String,
        /// `#rrggbb`.
        colour: &'static str,
    },
    /// A line.
    Line {
        /// Its course, in SVG path syntax.
        path: String,
        /// `#rrggbb`.
        colour: &'static str,
        /// Its width.
        width: f64,
        /// Whether the line is dashed by [`DASHES`].
        dashed: bool,
    },
    /// A line of text.
    Text(Text),
}

/// Dash and gap of a reference line.
pub(in super::super) const DASHES: [f32; 2] = [6.0, 4.0];

/// A line of text.
#[derive(Debug)]
pub(in super::super) struct Text {
    /// Its anchor.
    pub(in super::super) at: (f64, f64),
    /// Its alignment to the anchor.
    pub(in super::super) align: Align,
    /// Rotation around the anchor, in degrees, clockwise.
    pub(in super::super) turned: f64,
    /// The font size.
    pub(in super::super) size: f64,
    /// `#rrggbb`.
    pub(in super::super) colour: &'static str,
    /// The text itself.
    pub(in super::super) text: String,
}

/// The alignment of a text to its anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Align {
    /// The text begins at the anchor.
    Start,
    /// The text is centred on the anchor.
    Middle,
    /// The text ends at the anchor.
    End,
}

impl Picture {
    /// Adds an area.
    pub(super) fn area(&mut self, path: String, colour: &'static str) {
        self.elements.push(Element::Area { path, colour });
    }

    /// Adds a line along a path.
    pub(super) fn path(&mut self, path: String, colour: &'static str, width: f64) {
        self.elements.push(Element::Line { path, colour, width, dashed: false });
    }

    /// Adds a dashed line along a path.
    pub(super) fn dashes(&mut self, path: String, colour: &'static str, width: f64) {
        self.elements.push(Element::Line { path, colour, width, dashed: true });
    }

    /// Adds a straight line.
    pub(super) fn line(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        colour: &'static str,
        width: f64,
    ) {
        self.path(format!("M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"), colour, width);
    }

    /// Adds a line of text.
    pub(super) fn text(&mut self, at: (f64, f64), size: f64, colour: &'static str, align: Align, text: &str) {
        self.turned_text(at, 0.0, size, colour, align, text);
    }

    /// Adds a line of text, rotated by `turned` degrees around its anchor.
    pub(super) fn turned_text(
        &mut self,
        at: (f64, f64),
        turned: f64,
        size: f64,
        colour: &'static str,
        align: Align,
        text: &str,
    ) {
        self.elements.push(Element::Text(Text { at, align, turned, size, colour, text: text.to_owned() }));
    }
}
