//! Figures 7, 13 and 14: throughput and the number of connections over time.

use std::time::Duration;

use longhaul_core::tune::fairness::jain_index;
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::model::session::{SecondRecord, SessionRecord};
use longhaul_lab::scenario::markdown_table;
use longhaul_lab::{Aqm, PathSpec};
use longhaul_scope::chart::{Axis, Chart, Mark, Point, Scale, Series, Unit};

use super::statistics::Mean;
use super::trial::{Controls, Method, PUBLISHED, SessionResult, Trial, on_all_cores, paper_path};
use super::{Effort, bounded};

/// A file that no session completes: only the course of the transfer is of interest.
const ENDLESS: Bytes = Bytes::gib(1 << 20);
const SESSIONS: u64 = 4;
/// Time between the starts of two sessions.
const APART: Duration = Duration::from_secs(100);
/// The last session settles for 100 s; fairness is measured over another 100 s, as in the scenarios
/// (tools/sessions).
const SHARED_FOR: Duration = Duration::from_secs(500);
const LAST: Duration = Duration::from_secs(100);
/// Seconds over which throughput without chunks is averaged.
const AVERAGED: usize = 5;

/// Draws figure 7: one session at 50 ms, with two values of Delta.
pub(crate) fn alone() -> Vec<Chart> {
    const UNTIL: Duration = Duration::from_secs(150);
    let methods = [
        ("APT, Delta = 3 s", Method::Apt(PUBLISHED)),
        ("APT, Delta = 10 s", Method::Apt(Controls { delta: Duration::from_secs(10), ..PUBLISHED })),
        ("Longhaul", Method::Longhaul),
    ];
    let trials = methods.map(|(_, method)| Trial {
        until: UNTIL,
        ..Trial::alone(paper_path(Duration::from_millis(50), 1), method, ENDLESS)
    });
    let records = on_all_cores(&trials, Trial::run);
    let named: Vec<(String, &SessionRecord)> = methods
        .iter()
        .zip(&records)
        .filter_map(|((name, _), records)| Some(((*name).to_owned(), records.first()?)))
        .collect();
    charts("As figure 7 of Ito et al.: tau = 50 ms", &named).into()
}

/// Results of four sessions with staggered starts, by method.
pub(crate) struct Fairness {
    aqm: &'static str,
    figure: u8,
    /// The session records of each method's runs, one run per seed.
    of: Vec<(Method, Vec<Vec<SessionRecord>>)>,
}

impl Fairness {
    /// Simulates four sessions that share a bottleneck at 10 ms.
    pub(crate) fn measure(aqm: (&'static str, Aqm), figure: u8, effort: &Effort) -> Self {
        let methods = [Method::Apt(PUBLISHED), Method::Longhaul];
        let of = methods.map(|method| {
            let trial = |seed| Trial {
                path: PathSpec { aqm: aqm.1, ..paper_path(Duration::from_millis(10), seed) },
                method,
                file: ENDLESS,
                begins: (0..SESSIONS).map(|session| APART * session as u32).collect(),
                until: SHARED_FOR,
            };
            let trials: Vec<Trial> = effort.seeds().map(trial).collect();
            (method, on_all_cores(&trials, Trial::run))
        });
        Self { aqm: aqm.0, figure, of: of.into() }
    }

    /// Draws the first run of each method.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for (method, runs) in &self.of {
            let Some(records) = runs.first() else { continue };
            let named: Vec<(String, &SessionRecord)> = records
                .iter()
                .zip(1..)
                .map(|(record, number)| (format!("session {number}"), record))
                .collect();
            let title = format!("As figure {} of Ito et al.: {method}, {}", self.figure, self.aqm);
            charts.extend(self::charts(&title, &named));
        }
        charts
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(method, runs): &(Method, Vec<Vec<SessionRecord>>)| {
            let shares: Vec<Vec<f64>> =
                runs.iter().map(|records| records.iter().map(last_share).collect()).collect();
            let indices = || shares.iter().map(|shares| jain_index(shares));
            let sums = shares.iter().map(|shares| shares.iter().sum());
            let first = shares.first().into_iter().flatten().map(|share| format!("{:.0}", share / 1e6));
            let reached = || runs.iter().flatten().map(|record| SessionResult::of(record, ENDLESS));
            let streams = runs.iter().flatten().filter_map(last_streams);
            vec![
                self.aqm.to_owned(),
                method.to_string(),
                Mean::of(indices()).map_or(String::new(), |jain| format!("{jain:.3}")),
                format!("{:.3}", indices().fold(f64::INFINITY, f64::min)),
                Mean::of(sums).map_or(String::new(), |sum| sum.scaled(1e-6).to_string()),
                first.collect::<Vec<_>>().join(", "),
                Mean::of(streams).map_or(String::new(), |mean| mean.to_string()) + bounded(reached()),
            ]
        };
        self.of.iter().map(row).collect()
    }
}

/// Returns a table of the sessions' throughput in the last 100 s.
pub(crate) fn fairness_table(all: &[Fairness]) -> String {
    let head = [
        "queue",
        "method",
        "Jain's index",
        "least",
        "sum, Mbit/s",
        "each, of the first run",
        "N of a session",
    ];
    let rows: Vec<_> = all.iter().flat_map(Fairness::rows).collect();
    markdown_table(&head, &rows)
}

fn last_share(record: &SessionRecord) -> f64 {
    record.goodput(SHARED_FOR.saturating_sub(LAST), SHARED_FOR).as_bits_per_sec() as f64
}

/// Returns the mean number of connections in the last 100 s.
fn last_streams(record: &SessionRecord) -> Option<f64> {
    let last = record.seconds.iter().filter(|second| second.at > SHARED_FOR.saturating_sub(LAST));
    Mean::of(last.map(|second| second.streams as f64)).map(|mean| mean.mean)
}

/// Draws each record's throughput, by chunk if it has chunks, and its connections.
fn charts(title: &str, records: &[(String, &SessionRecord)]) -> [Chart; 2] {
    const NOTE: &str = "APT: of each chunk, as in the paper; Longhaul, which has none: means of 5 s";
    let by_chunk = |record: &SessionRecord| {
        let begins = record.chunks.iter().map(|chunk| (chunk.from, chunk.goodput));
        let end = record.chunks.last().map(|chunk| (chunk.to, chunk.goodput));
        let point =
            |(at, rate): (Duration, Rate)| Point::from((at.as_secs_f64(), rate.as_bits_per_sec() as f64));
        begins.chain(end).map(point).collect::<Vec<_>>()
    };
    let by_time = |record: &SessionRecord| {
        let mean = |some: &[SecondRecord]| {
            let sum: f64 = some.iter().map(|second| second.goodput.as_bits_per_sec() as f64).sum();
            Some(Point::from((some.first()?.at.as_secs_f64() - 1.0, sum / some.len() as f64)))
        };
        record.seconds.chunks(AVERAGED).filter_map(mean).collect()
    };
    let throughput =
        |record: &SessionRecord| if record.chunks.is_empty() { by_time(record) } else { by_chunk(record) };
    let connections = |record: &SessionRecord| {
        let point = |second: &SecondRecord| Point::from((second.at.as_secs_f64(), second.streams as f64));
        record.seconds.iter().map(point).collect()
    };
    let lines = |points: &dyn Fn(&SessionRecord) -> Vec<Point>| {
        let line = |(colour, (name, record)): (usize, &(String, &SessionRecord))| Series {
            name: name.clone(),
            colour,
            mark: Mark::Steps,
            points: points(record),
        };
        records.iter().enumerate().map(line).collect()
    };
    let chart = |title: &str, note: &str, (label, unit), series| Chart {
        title: title.to_owned(),
        note: note.to_owned(),
        x: Axis::time(),
        y: Axis::new(label, unit, Scale::Linear),
        series,
    };
    [
        chart(title, NOTE, ("Throughput", Unit::BitsPerSecond), lines(&throughput)),
        chart("", "", ("Connections N", Unit::Number), lines(&connections)),
    ]
}
