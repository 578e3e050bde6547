//! G(N): goodput by the number of connections, and how soon each method comes near its best.

use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::session::Record;
use longhaul_scope::chart::{Axis, Chart, Mark, Point, Scale, Series, Unit};

use super::Effort;
use super::trial::{Method, PUBLISHED, Path, Trial, on_all_cores, rate};
use crate::table;

const NUMBERS: [usize; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48];
const FILE: Bytes = Bytes::new(1_000_000_000);
/// Over this time goodput is averaged to say when it has come near the best.
const STEADY: Duration = Duration::from_secs(3);
/// Of the best fixed number's goodput.
const NEAR: f64 = 0.95;

/// What a path's curve is, and what the tuners make of it.
pub(crate) struct Curve {
    delay_ms: u64,
    points: Vec<(usize, f64)>,
    tuned: Vec<(Method, Vec<Outcome>)>,
}

/// What a tuner reached with a file of 1 GB.
struct Outcome {
    rate: f64,
    /// When goodput was first near the best; none where it never was.
    near: Option<f64>,
    streams: usize,
}

impl Curve {
    /// Measures one path.
    pub(crate) fn measure(delay_ms: u64, effort: &Effort) -> Self {
        let fixed = NUMBERS.map(|number| Trial::alone(Path::new(delay_ms, 1), Method::Fixed(number), FILE));
        let rates = on_all_cores(&fixed, Trial::rate);
        let points: Vec<(usize, f64)> = NUMBERS.into_iter().zip(rates).collect();
        let mut curve = Self { delay_ms, points, tuned: Vec::new() };
        for method in [Method::Apt(PUBLISHED), Method::AptAnew(PUBLISHED), Method::Auto] {
            let seeds: Vec<u64> = (1..=effort.seeds).collect();
            let outcomes = on_all_cores(&seeds, |&seed| {
                let records = Trial::alone(Path::new(delay_ms, seed), method, FILE).run();
                records.first().map(|record| curve.outcome(record))
            });
            curve.tuned.push((method, outcomes.into_iter().flatten().collect()));
        }
        curve
    }

    fn best(&self) -> (usize, f64) {
        self.points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0))
    }

    fn outcome(&self, record: &Record) -> Outcome {
        let goal = NEAR * self.best().1;
        let reached = |to: Duration| {
            to >= STEADY && record.goodput(to.saturating_sub(STEADY), to).as_bits_per_sec() as f64 >= goal
        };
        let near = record.seconds.iter().map(|second| second.at).find(|&at| reached(at));
        Outcome {
            rate: rate(record, FILE),
            near: near.map(|at| at.as_secs_f64()),
            streams: record.seconds.last().map_or(0, |second| second.streams),
        }
    }

    /// Draws the curve.
    pub(crate) fn chart(&self) -> Chart {
        let points = self.points.iter().map(|&(number, rate)| Point::from((number as f64, rate))).collect();
        let mut series = vec![Series { name: "fixed N".to_owned(), colour: 0, mark: Mark::Measured, points }];
        for (index, (method, outcomes)) in self.tuned.iter().enumerate() {
            let points = outcomes.iter().map(|own| Point::from((own.streams as f64, own.rate))).collect();
            series.push(Series {
                name: format!("{method}, and the N it ended with"),
                colour: index + 1,
                mark: Mark::Dots,
                points,
            });
        }
        Chart {
            title: format!("tau = {} ms", self.delay_ms),
            note: String::new(),
            x: Axis { label: "Connections N".to_owned(), unit: Unit::Number, scale: Scale::Linear },
            y: Axis {
                label: "Mean rate of 1 GB".to_owned(),
                unit: Unit::BitsPerSecond,
                scale: Scale::Linear,
            },
            series,
        }
    }
}

/// Returns a table of what the tuners reached.
pub(crate) fn table(curves: &[Curve]) -> String {
    let head = [
        "tau",
        "best fixed N",
        "method",
        "1 GB at, Mbit/s",
        "of the best fixed N",
        "near it after, s",
        "ends with N",
    ];
    let mut rows = Vec::new();
    for curve in curves {
        let (best, best_rate) = curve.best();
        for (method, outcomes) in &curve.tuned {
            let median = |of: &dyn Fn(&Outcome) -> f64| super::median(outcomes.iter().map(of));
            let rate = median(&|own| own.rate);
            let near = median(&|own| own.near.unwrap_or(f64::INFINITY));
            rows.push(vec![
                format!("{} ms", curve.delay_ms),
                format!("{best}: {:.1} Mbit/s", best_rate / 1e6),
                method.to_string(),
                format!("{:.1}", rate / 1e6),
                format!("{:.2}", rate / best_rate),
                if near.is_finite() { format!("{near:.0}") } else { "never".to_owned() },
                format!("{:.0}", median(&|own| own.streams as f64)),
            ]);
        }
    }
    table::markdown(&head, &rows)
}
