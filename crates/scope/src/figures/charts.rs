//! Makes the charts of one record, or of several in comparison.

use crate::chart::{Axis, Chart, Mark, NEUTRAL, Point, Scale, Series, Unit};
use crate::draw::format_value;
use crate::record::Record;

use super::lines::{self, FIGURES, Figure, Line};
use super::{averages, limits};

/// Maximum of streams in one chart: more lines are unreadable.
const MAX_DRAWN_STREAMS: usize = 8;

/// References within this ratio are drawn as one.
const NEARLY: f64 = 1.02;

/// A record on the common time axis.
#[derive(Debug)]
pub(super) struct AlignedRecord<'a> {
    /// The record's name.
    pub(super) name: &'a str,
    /// The record.
    pub(super) record: &'a Record,
    /// The record's start in seconds after the start of the axis.
    pub(super) begins: f64,
}

impl AlignedRecord<'_> {
    fn points(&self, line: &Line) -> Vec<Point> {
        self.place(line.points.of(self.record))
    }

    /// Shifts points by the record's start.
    pub(super) fn place(&self, mut points: Vec<Point>) -> Vec<Point> {
        points.iter_mut().for_each(|point| point.x += self.begins);
        points
    }
}

/// Returns each chart for which a record has data.
pub(super) fn of_records(records: &[AlignedRecord<'_>]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = FIGURES.iter().flat_map(|figure| figure.of(records)).collect();
    let by_stream = records.iter().filter_map(|record| {
        let name = if records.len() > 1 { format!(": {}", record.name) } else { String::new() };
        streams(&name, record)
    });
    if let ([only], Some(throughput)) =
        (records, charts.first_mut().filter(|chart| chart.title == FIGURES[0].title))
    {
        let mut bands = limits::bands(only.record);
        if !bands.is_empty() {
            bands.iter_mut().for_each(|band| band.points = only.place(std::mem::take(&mut band.points)));
            throughput.note.push_str(" Behind it: what limited the transfer.");
            throughput.series.splice(..0, bands);
        }
    }
    // Moving averages and streams follow the throughput.
    let below = usize::from(!charts.is_empty());
    let more: Vec<Chart> = averages::of_records(records).into_iter().chain(by_stream).collect();
    charts.splice(below..below, more);
    charts
}

impl Figure {
    /// Returns one chart for one record; for several records one comparison per line.
    fn of(&self, records: &[AlignedRecord<'_>]) -> Vec<Chart> {
        let (references, measured): (Vec<&Line>, Vec<&Line>) =
            self.lines.iter().partition(|line| line.mark == Mark::Dashed);
        if records.len() == 1 || measured.len() == 1 {
            return self.chart(records, self.title, &references, &measured).into_iter().collect();
        }
        let compared = |line: &Line| {
            let title = format!("{}: {}", self.title, line.name);
            self.chart(records, &title, &references, &[line])
        };
        measured.into_iter().filter_map(compared).collect()
    }

    /// Makes the chart of one record, or of several with one line of each; `None` if it would hold
    /// references only.
    fn chart(
        &self,
        records: &[AlignedRecord<'_>],
        title: &str,
        references: &[&Line],
        lines: &[&Line],
    ) -> Option<Chart> {
        let mut series = self.references(records, references);
        let is_alone = records.len() == 1;
        let (mut drawn, mut peaks) = (0, Vec::new());
        for (index, record) in records.iter().enumerate() {
            for line in lines {
                let (points, mark) = (record.points(line), line.mark);
                if points.is_empty() {
                    continue;
                }
                let (name, colour) = if is_alone { (line.name, drawn) } else { (record.name, index) };
                let largest = highest(&points).filter(|_| self.with_peak);
                series.push(Series { name: name.to_owned(), colour, mark, points });
                drawn += 1;
                let Some(peak) = largest else { continue };
                if is_alone {
                    let (name, mark, points) = (String::new(), Mark::Dots, vec![peak]);
                    series.push(Series { name, colour: colour + 1, mark, points });
                    peaks.push(self.peak(peak));
                } else {
                    peaks.push(format!("{name} {}", self.peak(peak)));
                }
            }
        }
        let note = match peaks.is_empty() {
            true => self.note.to_owned(),
            false => format!("{} Largest: {}.", self.note, peaks.join("; ")),
        };
        (drawn > 0).then(|| over_time(title, note, self.y, series))
    }

    /// Returns the references of all records; a single neutral one if they nearly agree.
    fn references(&self, records: &[AlignedRecord<'_>], lines: &[&Line]) -> Vec<Series> {
        let mut all = Vec::new();
        for line in lines {
            let mut of_records = Vec::new();
            for (colour, record) in records.iter().enumerate() {
                let (name, points) = (format!("{}: {}", record.name, line.name), record.points(line));
                if !points.is_empty() {
                    of_records.push(Series { name, colour, mark: line.mark, points });
                }
            }
            match common(&of_records) {
                Some(points) => {
                    all.push(Series { name: line.name.to_owned(), colour: NEUTRAL, mark: line.mark, points });
                }
                None => all.extend(of_records),
            }
        }
        all
    }

    fn peak(&self, peak: Point) -> String {
        format!("{} at {}", format_value(self.y.1, peak.y), format_value(Unit::Seconds, peak.x))
    }
}

/// Returns the throughput by stream, unless there is one stream or too many.
fn streams(name: &str, record: &AlignedRecord<'_>) -> Option<Chart> {
    let streams = lines::streams(record.record, MAX_DRAWN_STREAMS);
    if streams.is_empty() {
        return None;
    }
    let series = streams.into_iter().enumerate().map(|(colour, (number, points))| Series {
        name: format!("stream {number}"),
        colour,
        mark: Mark::Steps,
        points: record.place(points),
    });
    let title = format!("Throughput by stream{name}");
    let y = ("Throughput", Unit::BitsPerSecond);
    Some(over_time(&title, "Means over 0.5 s.".to_owned(), y, series.collect()))
}

/// Makes a chart over time.
pub(super) fn over_time(
    title: &str,
    note: String,
    (label, unit): (&str, Unit),
    series: Vec<Series>,
) -> Chart {
    Chart { title: title.to_owned(), note, x: Axis::time(), y: Axis::new(label, unit, Scale::Linear), series }
}

/// Returns one reference if all have nearly equal height at all times.
fn common(references: &[Series]) -> Option<Vec<Point>> {
    let heights = || references.iter().flat_map(|series| &series.points).map(|point| point.y);
    let (low, high) = (heights().min_by(f64::total_cmp)?, heights().max_by(f64::total_cmp)?);
    let points = || references.iter().flat_map(|series| &series.points).copied();
    let first = points().min_by(|a, b| a.x.total_cmp(&b.x))?;
    let last = points().max_by(|a, b| a.x.total_cmp(&b.x))?;
    (high <= low * NEARLY).then(|| vec![first, Point { y: first.y, ..last }])
}

fn highest(points: &[Point]) -> Option<Point> {
    points.iter().copied().reduce(|highest, point| if point.y > highest.y { point } else { highest })
}
