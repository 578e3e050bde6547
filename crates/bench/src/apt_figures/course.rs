//! Figures 7, 13 and 14: throughput and the number of connections over time.

use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::Aqm;
use longhaul_lab::model::session::Record;
use longhaul_scope::chart::{Axis, Chart, Mark, Point, Scale, Series, Unit};

use super::Effort;
use super::trial::{Controls, Method, PUBLISHED, Path, Trial, on_all_cores};
use crate::table;

/// Never fetched whole: its course is what is looked at.
const ENDLESS: Bytes = Bytes::gib(1 << 20);
const SESSIONS: u64 = 4;
/// Between the begins of two sessions.
const APART: Duration = Duration::from_secs(100);
const SHARED_FOR: Duration = Duration::from_secs(600);
/// Over which the fairness of sessions is told.
const LAST: Duration = Duration::from_secs(100);

/// Draws figure 7: one session at 50 ms, with two values of Delta.
pub(crate) fn alone() -> Vec<Chart> {
    const UNTIL: Duration = Duration::from_secs(150);
    let methods = [
        ("APT, Delta = 3 s", Method::Apt(PUBLISHED)),
        ("APT, Delta = 10 s", Method::Apt(Controls { delta_s: 10.0, ..PUBLISHED })),
        ("streams auto", Method::Auto),
    ];
    let trials =
        methods.map(|(_, method)| Trial { until: UNTIL, ..Trial::alone(Path::new(50, 1), method, ENDLESS) });
    let records = on_all_cores(&trials, Trial::run);
    let named: Vec<(String, &Record)> = methods
        .iter()
        .zip(&records)
        .filter_map(|((name, _), records)| Some(((*name).to_owned(), records.first()?)))
        .collect();
    vec![
        chart("Figure 7: tau = 50 ms", throughput(&named, 1), throughput_axis()),
        chart("", connections(&named), connections_axis()),
    ]
}

/// What four sessions that begin one after the other got, by method.
pub(crate) struct Fairness {
    aqm: &'static str,
    figure: u8,
    /// By seed, what became of each session.
    of: Vec<(Method, Vec<Vec<Record>>)>,
}

impl Fairness {
    /// Lets four sessions share a bottleneck at 10 ms.
    pub(crate) fn measure(aqm: (&'static str, Aqm), figure: u8, effort: &Effort) -> Self {
        let methods = [Method::Apt(PUBLISHED), Method::Auto];
        let of = methods.map(|method| {
            let trial = |seed| Trial {
                path: Path { aqm: aqm.1, ..Path::new(10, seed) },
                method,
                file: ENDLESS,
                begins: (0..SESSIONS).map(|session| APART * session as u32).collect(),
                until: SHARED_FOR,
            };
            let trials: Vec<Trial> = (1..=effort.seeds).map(trial).collect();
            (method, on_all_cores(&trials, Trial::run))
        });
        Self { aqm: aqm.0, figure, of: of.into() }
    }

    /// Draws the first of each method's runs.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for (method, runs) in &self.of {
            let Some(records) = runs.first() else { continue };
            let named: Vec<(String, &Record)> = records
                .iter()
                .zip(1..)
                .map(|(record, number)| (format!("session {number}"), record))
                .collect();
            let title = format!("Figure {}: {method}, {}", self.figure, self.aqm);
            charts.push(chart(&title, throughput(&named, 5), throughput_axis()));
            charts.push(chart("", connections(&named), connections_axis()));
        }
        charts
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(method, runs): &(Method, Vec<Vec<Record>>)| {
            let shares: Vec<Vec<f64>> =
                runs.iter().map(|records| records.iter().map(last_share).collect()).collect();
            let indices = || shares.iter().map(|shares| jain(shares));
            let sum = super::median(shares.iter().map(|shares| shares.iter().sum()));
            let first = shares.first().into_iter().flatten().map(|share| format!("{:.0}", share / 1e6));
            vec![
                self.aqm.to_owned(),
                method.to_string(),
                format!("{:.3}", super::median(indices())),
                format!("{:.3}", indices().fold(f64::INFINITY, f64::min)),
                format!("{:.1}", sum / 1e6),
                first.collect::<Vec<_>>().join(", "),
            ]
        };
        self.of.iter().map(row).collect()
    }
}

/// Returns a table of who got how much in the last 100 s.
pub(crate) fn fairness_table(all: &[Fairness]) -> String {
    let head = ["queue", "method", "Jain: median", "least", "sum, Mbit/s", "each, of the first run"];
    let rows: Vec<_> = all.iter().flat_map(Fairness::rows).collect();
    table::markdown(&head, &rows)
}

fn last_share(record: &Record) -> f64 {
    record.goodput(SHARED_FOR.saturating_sub(LAST), SHARED_FOR).as_bits_per_sec() as f64
}

/// Jain's index: 1 where all shares are equal, 1/n where one has all.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

fn throughput(records: &[(String, &Record)], seconds: usize) -> Vec<Series> {
    lines(
        records,
        |record| {
            let mean = |chunk: &[longhaul_lab::model::session::Second]| {
                let sum: f64 = chunk.iter().map(|second| second.goodput.as_bits_per_sec() as f64).sum();
                Some(Point::from((chunk.last()?.at.as_secs_f64(), sum / chunk.len() as f64)))
            };
            record.seconds.chunks(seconds).filter_map(mean).collect()
        },
        Mark::Line,
    )
}

fn connections(records: &[(String, &Record)]) -> Vec<Series> {
    let points = |record: &Record| {
        record
            .seconds
            .iter()
            .map(|second| Point::from((second.at.as_secs_f64(), second.streams as f64)))
            .collect()
    };
    lines(records, points, Mark::Steps)
}

fn lines(records: &[(String, &Record)], points: impl Fn(&Record) -> Vec<Point>, mark: Mark) -> Vec<Series> {
    let line = |(colour, (name, record)): (usize, &(String, &Record))| Series {
        name: name.clone(),
        colour,
        mark,
        points: points(record),
    };
    records.iter().enumerate().map(line).collect()
}

fn throughput_axis() -> Axis {
    Axis { label: "Throughput".to_owned(), unit: Unit::BitsPerSecond, scale: Scale::Linear }
}

fn connections_axis() -> Axis {
    Axis { label: "Connections N".to_owned(), unit: Unit::Number, scale: Scale::Linear }
}

fn chart(title: &str, series: Vec<Series>, y: Axis) -> Chart {
    let x = Axis { label: "Time".to_owned(), unit: Unit::Seconds, scale: Scale::Linear };
    Chart { title: title.to_owned(), note: String::new(), x, y, series }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_tells_how_equal_shares_are() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }
}
