//! The plots of a scenario: measured values over a swept parameter.

use anyhow::Result;
use longhaul_lab::scenario::{
    Group, Plot, PublishedResults, RUN, Results, ResultsDirectory, RunResult, Scenario, Spread, UnitOf,
    measures, unit_of,
};
use longhaul_scope::chart::{Axis, Chart, Mark, NEUTRAL, Point, Scale, Series, Sheet, Unit};
use longhaul_scope::draw;

use super::evidence::OUT;

/// Draws each plot as a picture, and all plots on one page.
///
/// # Errors
/// Fails if a file is not writable.
pub(super) fn write(scenario: &Scenario, results: &Results, output: &ResultsDirectory) -> Result<()> {
    if scenario.evaluation.plots.is_empty() {
        return Ok(());
    }
    let groups = results.groups();
    let charts: Vec<Chart> =
        scenario.evaluation.plots.iter().map(|plot| chart(scenario, plot, &groups)).collect();
    let sheet =
        |charts: Vec<Chart>| Sheet { title: scenario.name.clone(), notes: results.conditions(), charts };
    for (plot, chart) in scenario.evaluation.plots.iter().zip(&charts) {
        for file in plot.files() {
            draw::write(&sheet(vec![chart.clone()]), &output.directory().join(file), OUT)?;
        }
    }
    Ok(draw::write(&sheet(charts), &output.plots_page(), OUT)?)
}

/// Creates the chart of a plot: a line for each run and each combination of the other parameters.
fn chart(scenario: &Scenario, plot: &Plot, groups: &[Group<'_>]) -> Chart {
    let x = HorizontalAxis::of(scenario, plot);
    let groups: Vec<Group<'_>> = groups.iter().filter(|group| plot.shows(group)).cloned().collect();
    let lines = lines(plot, &groups, &x);
    let mut series = Vec::new();
    // Each measured value has its own colours; references have the colours of the first.
    let mut measured = 0;
    for name in &plot.y {
        let is_reference = plot.references.contains(name);
        let first = if is_reference { 0 } else { measured * lines.len() };
        measured += usize::from(!is_reference);
        let mut of_value: Vec<Series> = Vec::new();
        for (colour, line) in (first..).zip(&lines) {
            let mut points = line.points(name, &x);
            if points.is_empty() {
                continue;
            }
            if is_reference {
                // A reference has no spread.
                points.iter_mut().for_each(|point| point.spread = None);
            }
            // A reference common to several lines is drawn once, without a label of a line. Fewer
            // points of one reference are a subset of another's.
            let within = |other: &&mut Series| points.iter().all(|point| other.points.contains(point));
            if let Some(same) = of_value.iter_mut().filter(|_| is_reference).find(within) {
                (same.colour, same.name) = (NEUTRAL, label(plot, name));
                continue;
            }
            let mark = match is_reference || line.is_constant(&x) {
                true => Mark::Dashed,
                false if x.is_ordered && line.runs(name).all(|runs| runs > 1) => Mark::Measured,
                false => Mark::Separate,
            };
            of_value.push(Series { name: line.name_of(name, plot), colour, mark, points });
        }
        series.extend(of_value);
    }
    for (colour, published) in (measured * lines.len()..).zip(&plot.published) {
        series.push(x.series_of(published, colour));
    }
    // Draws measurements above references.
    series.sort_by_key(|series| matches!(series.mark, Mark::Measured | Mark::Separate));
    Chart {
        title: plot.title.clone(),
        note: note(&lines, &plot.y),
        x: x.axis,
        y: Axis { label: plot.y_label.clone(), unit: unit(unit_of(&plot.y[0])), scale: Scale::Linear },
        series,
    }
}

/// Says what points are, and which of them are of a path that this machine did not hold.
fn note(lines: &[Line<'_>], values: &[String]) -> String {
    let groups = || lines.iter().flat_map(|line| &line.groups);
    let is_marked = |group: &Group<'_>, value: &str| {
        group.spread(value).is_none() && group.marked_spread(value).is_some()
    };
    let drawn = groups().filter(|group| values.iter().any(|value| spread(group, value).is_some())).count();
    let marked = groups().filter(|group| values.iter().any(|value| is_marked(group, value))).count();
    let of_marked = match marked {
        0 => String::new(),
        marked => format!("; {marked} of {drawn} are marked: the path was not held"),
    };
    let runs = || lines.iter().flat_map(|line| values.iter().flat_map(|value| line.runs(value)));
    let of_runs = match (runs().min().unwrap_or(1), runs().max().unwrap_or(1)) {
        (_, 1) => "one run each".to_owned(),
        (least, most) if least == most => format!("median of {most} runs; bars from least to largest"),
        (least, most) => format!("median of {least} to {most} runs; bars from least to largest"),
    };
    format!("{of_runs}{of_marked}")
}

/// Returns the spread of the repetitions on a held path; of the marked ones if there are no others.
fn spread(group: &Group<'_>, value: &str) -> Option<Spread> {
    group.spread(value).or_else(|| group.marked_spread(value))
}

fn label(plot: &Plot, value: &str) -> String {
    plot.word(value, || unit_of(value).label_of(value))
}

fn unit(unit: UnitOf) -> Unit {
    match unit {
        UnitOf::BitsPerSecond => Unit::BitsPerSecond,
        UnitOf::Bytes => Unit::Bytes,
        UnitOf::Seconds => Unit::Seconds,
        UnitOf::Number => Unit::Number,
    }
}

/// The horizontal axis: positions of the swept values, or of the runs.
struct HorizontalAxis {
    /// The parameter's name, or [`RUN`].
    name: String,
    places: Vec<(String, f64)>,
    /// Whether the values are numbers or rise otherwise; runs do not.
    is_ordered: bool,
    axis: Axis,
}

impl HorizontalAxis {
    fn of(scenario: &Scenario, plot: &Plot) -> Self {
        let values: Vec<String> = match scenario.sweep.iter().find(|parameter| parameter.name == plot.x) {
            Some(parameter) => parameter.values.clone(),
            None => scenario.runs.iter().map(|run| run.name.clone()).collect(),
        };
        let measured = (plot.x != RUN).then(|| measures(&plot.x, &values)).flatten();
        let (numbers, kind, scale): (Vec<f64>, _, _) = match measured {
            Some((of, numbers)) => {
                let scale = scale(&numbers);
                (numbers, unit(of), scale)
            }
            None => {
                let numbers = (0..values.len()).map(|index| index as f64).collect();
                (numbers, Unit::Number, Scale::Names(values.clone()))
            }
        };
        let axis = Axis { label: plot.x_label.clone(), unit: kind, scale };
        let is_ordered = kind != Unit::Number || !matches!(axis.scale, Scale::Names(_));
        Self { name: plot.x.clone(), places: values.into_iter().zip(numbers).collect(), is_ordered, axis }
    }

    fn place(&self, group: &Group<'_>) -> Option<f64> {
        self.place_of(if self.name == RUN { group.name } else { group.parameter(&self.name)? })
    }

    fn place_of(&self, value: &str) -> Option<f64> {
        self.places.iter().find(|(own, _)| own == value).map(|(_, place)| *place)
    }

    /// Returns the points whose positions are swept: `--set` may leave some out.
    fn series_of(&self, published: &PublishedResults, colour: usize) -> Series {
        let points = published.points.iter();
        let points = points.filter_map(|(x, y)| Some(Point::from((self.place_of(x)?, *y))));
        let mut points: Vec<Point> = points.collect();
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        Series { name: published.name.clone(), colour, mark: Mark::Rings, points }
    }

    /// Returns whether a configuration belongs in the plot: it has a position, or it is a reference
    /// for one that has.
    ///
    /// A peer without the axis' parameter is a reference. A run that sweeps other parameters is
    /// not: each value would be a line.
    fn compares(&self, group: &Group<'_>, all: &[Group<'_>]) -> bool {
        let beside = |other: &Group<'_>| {
            self.place(other).is_some()
                && group.parameters.iter().all(|(name, _)| other.parameter(name).is_some())
        };
        self.place(group).is_some() || all.iter().any(beside)
    }

    fn ends(&self) -> [f64; 2] {
        let places = self.places.iter().map(|(_, place)| *place);
        [places.clone().fold(f64::INFINITY, f64::min), places.fold(f64::NEG_INFINITY, f64::max)]
    }
}

/// Chooses a logarithmic axis for values that differ by factors.
fn scale(numbers: &[f64]) -> Scale {
    const WIDE: f64 = 30.0;
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = numbers.iter().copied().fold(0.0, f64::max);
    if least > 0.0 && largest / least > WIDE { Scale::Logarithmic } else { Scale::Near }
}

/// The configurations of one line: equal except for the horizontal axis.
struct Line<'a> {
    groups: Vec<&'a Group<'a>>,
    /// Distinguishes the line from others.
    name: String,
}

fn lines<'a>(plot: &Plot, groups: &'a [Group<'a>], x: &HorizontalAxis) -> Vec<Line<'a>> {
    type Key<'a> = (Option<&'a str>, Vec<(&'a str, &'a str)>);
    let key = |group: &Group<'a>| -> Key<'a> {
        let others = group.parameters.iter().filter(|(name, _)| *name != x.name).copied();
        ((plot.x != RUN).then_some(group.name), others.collect())
    };
    let mut lines: Vec<(Key<'a>, Vec<&'a Group<'a>>)> = Vec::new();
    for group in groups.iter().filter(|group| x.compares(group, groups)) {
        match lines.iter_mut().find(|(own, _)| *own == key(group)) {
            Some((_, members)) => members.push(group),
            None => lines.push((key(group), vec![group])),
        }
    }
    let several_runs = lines.iter().any(|((run, _), _)| *run != lines[0].0.0);
    let varies = |name: &str| {
        let value =
            |parameters: &[(&'a str, &'a str)]| parameters.iter().find(|(own, _)| *own == name).copied();
        lines.iter().any(|((_, parameters), _)| value(parameters) != value(&lines[0].0.1))
    };
    let name = |(run, parameters): &Key<'a>| {
        let run = run.filter(|_| several_runs).map(|run| plot.word(run, || run.to_owned()));
        let values = parameters.iter().filter(|(name, _)| varies(name));
        let words = |(name, value): &(&str, &str)| {
            let usual = || format!("{} {value}", name.trim_start_matches("path.").replace('_', " "));
            plot.word(&format!("{name}={value}"), usual)
        };
        let parts = run.into_iter().chain(values.map(words)).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(" ")
    };
    let names: Vec<String> = lines.iter().map(|(key, _)| name(key)).collect();
    lines.into_iter().zip(names).map(|((_, groups), name)| Line { groups, name }).collect()
}

impl Line<'_> {
    /// Returns whether the line is independent of the horizontal axis: a reference.
    fn is_constant(&self, x: &HorizontalAxis) -> bool {
        self.groups.iter().all(|group| x.place(group).is_none())
    }

    /// Returns from how many runs each point of a value is drawn.
    fn runs(&self, value: &str) -> impl Iterator<Item = usize> {
        self.groups
            .iter()
            .map(move |group| {
                let is_held = group.spread(value).is_some();
                let drawn = |result: &&&RunResult| result.succeeded() && result.is_marked() != is_held;
                group.results.iter().filter(drawn).filter(|result| result.value(value).is_some()).count()
            })
            .filter(|runs| *runs > 0)
    }

    fn points(&self, value: &str, x: &HorizontalAxis) -> Vec<Point> {
        if self.is_constant(x) {
            let spread = self.groups.first().and_then(|group| spread(group, value));
            let ends = spread.map(|spread| x.ends().map(|end| Point::from((end, spread.median))));
            return ends.into_iter().flatten().collect();
        }
        let point = |group: &&Group<'_>| {
            let spread = spread(group, value)?;
            let range = (spread.min < spread.max).then_some((spread.min, spread.max));
            Some(Point { x: x.place(group)?, y: spread.median, spread: range })
        };
        let mut points: Vec<Point> = self.groups.iter().filter_map(point).collect();
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        points
    }

    fn name_of(&self, value: &str, plot: &Plot) -> String {
        // A single line needs a name only beside other marks.
        let names_value = plot.y.len() > 1 || self.name.is_empty() && !plot.published.is_empty();
        let parts = [Some(self.name.clone()), names_value.then(|| label(plot, value))];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

#[cfg(test)]
mod tests;
