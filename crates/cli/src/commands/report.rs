//! `longhaul report RECORD...`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_scope::capture::{Flow, Keep};
use longhaul_scope::chart::{Mark, PALE, Series, Sheet};
use longhaul_scope::draw;
use longhaul_scope::figures;
use longhaul_scope::record::Record;
use serde_json::{Value, json};

use crate::{say, stdout};

use super::explain::{is_capture, load_capture, load_jobs};

/// Which records or captures, drawn into what.
///
/// Several records are compared in the same charts. A capture (pcap, pcapng) counts as a record of
/// each of its largest connections.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// What --record of `get`, `put` or `serve` has written, or captured packets
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,

    /// Write the charts to a file: an interactive page (.html), or a picture (.svg, .png); may be
    /// given several times [default: the first record's name with .html]
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Give the records these names in the charts, in their order [default: the names of their
    /// files]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// Draw only the charts whose titles begin so, such as "throughput" or "receive window"; may be
    /// given several times
    #[arg(long = "chart", value_name = "TITLE")]
    charts: Vec<String>,

    /// Draw a value of another source, such as a paper, into a chart: the begin of its title, a
    /// name, and X,Y for a point or Y for a line, in seconds, bytes and bits/s; may be given
    /// several times
    #[arg(long, value_name = "CHART;NAME;[X,]Y", value_parser = Published::parse)]
    published: Vec<Published>,

    /// Print the records' numbers, one JSON object for each; draw only what -o names
    #[arg(long)]
    json: bool,
}

/// Draws the records and captures, and prints the paths of the written files.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let usage = |message: String| Failure::new(FailureKind::Usage, message);
    let beside = [args.records[0].with_extension("html")];
    let outputs = if args.output.is_empty() && !args.json { &beside[..] } else { &args.output };
    for output in outputs {
        draw::check_name(output)?;
        if args.records.iter().any(|record| is_same(record, output)) {
            return Err(usage(format!("{} is a record: name another file with -o", output.display())).into());
        }
    }
    let mut records = Vec::new();
    for (name, path) in names(args)?.into_iter().zip(&args.records) {
        let (part, jobs) =
            if is_capture(path) { ("connection", flows(path)?) } else { ("job", load_jobs(path)?) };
        let several = jobs.len() > 1;
        for (number, record) in (1..).zip(jobs) {
            let name = if several { format!("{name}: {part} {number}") } else { name.clone() };
            records.push((name, record));
        }
    }
    if args.json {
        records.iter().for_each(|(name, record)| stdout::line(numbers(name, record)));
    }
    if outputs.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut sheet = figures::of_records(&records);
    for published in &args.published {
        published.draw(&mut sheet).map_err(usage)?;
    }
    let titles: Vec<_> = sheet.charts.iter().map(|chart| chart.title.clone()).collect();
    sheet.keep(&args.charts).map_err(|unknown| {
        usage(format!("--chart {unknown:?}: no chart has that title: {}", titles.join("; ")))
    })?;
    for output in outputs {
        draw::write(&sheet, output, "-o")?;
        if !args.json {
            stdout::line(output.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the largest connections of a capture.
fn flows(path: &Path) -> Result<Vec<Record>, Failure> {
    /// The most connections of a capture, the largest: more lines in a chart cannot be told apart.
    const MAX_DRAWN: usize = 8;
    /// The least bytes of a connection, as a share of those of the largest one.
    const MIN_SHARE: u64 = 100;
    let flows = load_capture(path, Keep::Readings)?.flows;
    let least = flows.first().map_or(0, |largest| largest.bytes.get() / MIN_SHARE);
    let drawn: Vec<_> = flows.iter().filter(|flow| flow.bytes.get() >= least).take(MAX_DRAWN).collect();
    if drawn.len() < flows.len() {
        say::line(format_args!(
            "{}: the largest {} of {} connections; `longhaul explain` lists all",
            path.display(),
            drawn.len(),
            flows.len()
        ));
    }
    Ok(drawn.into_iter().map(Flow::record).collect())
}

/// A value of another source in a chart.
#[derive(Debug, Clone, PartialEq)]
struct Published {
    /// The begin of the chart's title.
    chart: String,
    name: String,
    /// The position on the horizontal axis; `None` for a line.
    x: Option<f64>,
    y: f64,
}

impl Published {
    fn parse(text: &str) -> Result<Self, String> {
        let usage = || "write CHART;NAME;X,Y for a point, or CHART;NAME;Y for a line".to_owned();
        let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(usage);
        let [chart, name, value] = text.split(';').collect::<Vec<_>>()[..] else { return Err(usage()) };
        let (x, y) = match value.split_once(',') {
            Some((x, y)) => (Some(number(x)?), number(y)?),
            None => (None, number(value)?),
        };
        Ok(Self { chart: chart.to_owned(), name: name.to_owned(), x, y })
    }

    fn draw(&self, sheet: &mut Sheet) -> Result<(), String> {
        let begin = self.chart.to_lowercase();
        let chart = sheet.charts.iter_mut().find(|chart| chart.title.to_lowercase().starts_with(&begin));
        let chart = chart.ok_or_else(|| format!("--published {:?}: no chart has that title", self.chart))?;
        let colour = chart.series.iter().map(|series| series.colour).filter(|colour| *colour < PALE).max();
        let x = self.x.or(chart.series.first().and_then(|series| series.points.first()).map(|point| point.x));
        chart.series.push(Series {
            name: self.name.clone(),
            colour: colour.map_or(0, |colour| colour + 1),
            mark: if self.x.is_some() { Mark::Rings } else { Mark::Dashed },
            points: vec![(x.unwrap_or_default(), self.y).into()],
        });
        Ok(())
    }
}

/// Returns the numbers of a record.
fn numbers(name: &str, record: &Record) -> Value {
    let mut object = json!({ "record": name });
    for (name, value) in figures::values(record) {
        object[name] = value.into();
    }
    object
}

fn is_same(record: &Path, output: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(record).is_some_and(|record| real(output) == Some(record))
}

/// Returns a unique name for each record.
fn names(args: &ReportArgs) -> Result<Vec<String>, Failure> {
    if args.names.len() > args.records.len() {
        let message = "there are more names than records: give --name once for each";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let stem = |path: &PathBuf| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let given = args.names.iter().cloned().map(Some).chain(std::iter::repeat(None));
    let wanted = args.records.iter().zip(given).map(|(path, name)| name.unwrap_or_else(|| stem(path)));
    let mut taken = HashSet::new();
    let mut unique = |name: String| {
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        let free = candidates.find(|name| !taken.contains(name)).unwrap_or(name);
        taken.insert(free.clone());
        free
    };
    Ok(wanted.map(&mut unique).collect())
}
