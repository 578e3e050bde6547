//! Charts as data, independent of the output format.

/// Charts drawn one below the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// The title.
    pub title: String,
    /// Lines below the title: origin and conditions of the data.
    pub notes: Vec<String>,
    /// The charts; charts with one x unit share its range.
    pub charts: Vec<Chart>,
}

impl Sheet {
    /// Keeps the charts whose titles begin with one of `titles`, ignoring case; keeps all if
    /// `titles` is empty.
    ///
    /// # Errors
    /// The first of `titles` that matches no chart.
    pub fn keep<'t>(&mut self, titles: &'t [String]) -> Result<(), &'t str> {
        let has = |chart: &Chart, title: &str| {
            chart.title.get(..title.len()).is_some_and(|start| start.eq_ignore_ascii_case(title))
        };
        if let Some(unknown) = titles.iter().find(|title| !self.charts.iter().any(|chart| has(chart, title)))
        {
            return Err(unknown);
        }
        self.charts.retain(|chart| titles.is_empty() || titles.iter().any(|title| has(chart, title)));
        Ok(())
    }
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// How to read the chart, in one line; may be empty.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, drawn in order: the last is on top.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The measured quantity, without its unit.
    pub label: String,
    /// The unit; drawing adds the prefix (k, M, G) that fits the range.
    pub unit: Unit,
    /// The scale.
    pub scale: Scale,
}

impl Axis {
    /// Makes an axis.
    pub fn new(label: &str, unit: Unit, scale: Scale) -> Self {
        Self { label: label.to_owned(), unit, scale }
    }

    /// Makes a linear axis of the time in seconds.
    pub fn time() -> Self {
        Self::new("Time", Unit::Seconds, Scale::Linear)
    }
}

/// A unit of values, without prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes, with decimal prefixes as the papers use them.
    Bytes,
    /// Bits a second.
    BitsPerSecond,
    /// A pure number.
    Number,
}

/// The mapping of values to positions on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Linear, from near the minimum: for values that differ little.
    Near,
    /// Logarithmic: by powers of ten, or of two for bytes.
    Logarithmic,
    /// Values are indices into these names.
    Names(Vec<String>),
}

/// The colour of text, for [`Series::colour`]: for series of no record, such as the capacity of the
/// path.
pub const NEUTRAL: usize = usize::MAX;

/// The first pale colour, for [`Series::colour`] of a [`Mark::Band`]; one colour follows for each
/// limit of a transfer.
pub const PALE: usize = 1 << 16;

/// One line or cloud of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend; a series without a name has no entry.
    pub name: String,
    /// Index into the palette, [`NEUTRAL`], or [`PALE`] and above: series of one record share a
    /// colour.
    pub colour: usize,
    /// How the points are drawn.
    pub mark: Mark,
    /// The points, by rising x.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line through the points.
    Line,
    /// A dashed line: limits and references.
    Dashed,
    /// A line that keeps its value up to the next point: bins and counters.
    Steps,
    /// Points only: sparse values.
    Dots,
    /// Large hollow points: single results that lie on other lines.
    Rings,
    /// Points whose y has no meaning: events.
    Events,
    /// Points with their spread, joined by a line: measurements.
    Measured,
    /// Points with their spread, not joined: single measurements, or such without an order.
    Separate,
    /// Pale areas of the plot's full height; each pair of points bounds one area.
    Band,
}

/// A value and its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Position on the vertical axis: a single value, or the median of several.
    pub y: f64,
    /// Minimum and maximum, if there are several values.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None }
    }
}
