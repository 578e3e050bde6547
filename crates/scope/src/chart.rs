//! What is to be drawn: charts as data, free of any way of drawing.

/// Charts that belong together, one below the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sheet {
    /// What it is about.
    pub title: String,
    /// Lines below the title: where the data come from, and what to know of them.
    pub notes: Vec<String>,
    /// The charts; those with the same unit of x share its range.
    pub charts: Vec<Chart>,
}

impl Sheet {
    /// Keeps the charts whose titles begin with one of `titles`, in any case; all where there are none.
    ///
    /// # Errors
    /// The first of `titles` that no chart has.
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
    /// What it shows.
    pub title: String,
    /// How to read it, in a line; may be empty.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the last on top.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it measures, without the unit.
    pub label: String,
    /// In what; whoever draws adds it, with the prefix (k, M, G) that suits the range.
    pub unit: Unit,
    /// How values become places.
    pub scale: Scale,
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

/// How values become places on an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// From near the least value: what differs by little.
    Near,
    /// By powers of ten, or of two for bytes.
    Logarithmic,
    /// Values are indices into these names.
    Names(Vec<String>),
}

/// The colour of text, for [`Series::colour`]: for what belongs to no record, as the limit of the path.
pub const NEUTRAL: usize = usize::MAX;

/// The first of the pale colours for [`Mark::Band`], for [`Series::colour`]; as many follow as a transfer has limits.
pub const PALE: usize = 1 << 16;

/// One line or cloud of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend; one without has no entry there.
    pub name: String,
    /// Which colour of the palette, [`NEUTRAL`], or from [`PALE`] on: series of one record share theirs.
    pub colour: usize,
    /// How it is drawn.
    pub mark: Mark,
    /// Where; by rising x.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line through the points.
    Line,
    /// A dashed line: limits and references.
    Dashed,
    /// A line that keeps its height up to the next point: bins and counters.
    Steps,
    /// Points alone: values of which there are few.
    Dots,
    /// Large hollow points: single results that lie on other lines.
    Rings,
    /// Points alone, of which only the time means something.
    Events,
    /// Points, a line through them, and their spread: measurements.
    Measured,
    /// Pale areas behind the plot, of its full height: each from one point to the next, in pairs.
    Band,
}

/// A value, and between what it varied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where on the horizontal axis.
    pub x: f64,
    /// Where on the vertical axis: the value, or the median of several.
    pub y: f64,
    /// The least and the largest, where there are several.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None }
    }
}
