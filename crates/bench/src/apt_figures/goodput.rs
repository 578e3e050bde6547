//! G(N): goodput over the number of connections, and how soon each method approaches the best.

use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_lab::model::session::SessionRecord;
use longhaul_lab::scenario::markdown_table;
use longhaul_scope::chart::{Axis, Chart, Mark, Point, Scale, Series, Unit};

use super::statistics::Mean;
use super::trial::{Method, PUBLISHED, SessionResult, Trial, on_all_cores, paper_path};
use super::{Effort, millis};

const NUMBERS: [usize; 26] =
    [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112, 128];
const FILE: Bytes = Bytes::new(1_000_000_000);
/// Window of mean goodput for the first time near the best.
const FIRST_CHUNK: Duration = Duration::from_secs(3);
/// Window of mean goodput for the time from which it stays near the best.
const STAYS: Duration = Duration::from_secs(10);
/// Ratio to the best fixed number's goodput that counts as near.
const NEAR: f64 = 0.95;

/// The G(N) curve of a path, and the tuners' results.
pub(crate) struct Curve {
    delay: Duration,
    /// Mean rate by N: for the whole file at once, and for consecutive chunks.
    whole: Vec<(usize, Mean)>,
    in_chunks: Vec<(usize, Mean)>,
    /// Results of each method by seed; the best fixed number is first.
    tried: Vec<(Method, Vec<MethodResult>)>,
    /// Record of APT's first run.
    course: Option<SessionRecord>,
}

/// A method's result with a file of 1 GB.
struct MethodResult {
    reached: SessionResult,
    /// When goodput was near the best for the first time, and its minimum afterwards.
    first: Option<(Duration, f64)>,
    /// From when goodput stayed near the best: the end of the last window of [`STAYS`] below, or
    /// `first`.
    ///
    /// `convergence` reports an earlier time for real transfers: it uses a shorter window and its
    /// start, and ignores the last seconds. In virtual time only the tuner makes a second slow, so
    /// a slow end counts.
    stays: Option<Duration>,
    streams: usize,
}

impl Curve {
    /// Simulates one path.
    pub(crate) fn measure(delay: Duration, effort: &Effort) -> Self {
        let seeds: Vec<u64> = effort.seeds().collect();
        let curve = |method: fn(usize) -> Method| {
            let trial = |number| {
                seeds.iter().map(move |&seed| Trial::alone(paper_path(delay, seed), method(number), FILE))
            };
            let trials: Vec<Trial> = NUMBERS.into_iter().flat_map(trial).collect();
            let rates: Vec<f64> = on_all_cores(&trials, |trial| trial.reached().rate);
            let means = rates.chunks(seeds.len()).filter_map(|rates| Mean::of(rates.iter().copied()));
            NUMBERS.into_iter().zip(means).collect::<Vec<_>>()
        };
        let (whole, in_chunks) = (curve(Method::Fixed), curve(Method::FixedInChunks));
        let mut curve = Self { delay, whole, in_chunks, tried: Vec::new(), course: None };
        let best = Method::Fixed(curve.best().0);
        for method in [best, Method::Apt(PUBLISHED), Method::AptReconnecting(PUBLISHED), Method::Longhaul] {
            let records =
                on_all_cores(&seeds, |&seed| Trial::alone(paper_path(delay, seed), method, FILE).run());
            let records: Vec<SessionRecord> =
                records.into_iter().filter_map(|own| own.into_iter().next()).collect();
            let outcomes = records.iter().map(|record| curve.outcome(record)).collect();
            if let Method::Apt(_) = method {
                curve.course = records.into_iter().next();
            }
            curve.tried.push((method, outcomes));
        }
        curve
    }

    /// Returns the best fixed number: the smallest within 0.5 % of the highest rate.
    fn best(&self) -> (usize, f64) {
        let highest = self.whole.iter().map(|(_, rate)| rate.mean).fold(0.0, f64::max);
        let enough = self.whole.iter().find(|(_, rate)| rate.mean >= 0.995 * highest);
        enough.map_or((1, 0.0), |&(number, rate)| (number, rate.mean))
    }

    fn outcome(&self, record: &SessionRecord) -> MethodResult {
        let goal = NEAR * self.best().1;
        let over = |time: Duration| {
            let ends = record.seconds.iter().map(|second| second.at).filter(move |&at| at >= time);
            ends.map(move |at| (at, record.goodput(at.saturating_sub(time), at).as_bits_per_sec() as f64))
        };
        let first = over(FIRST_CHUNK).find(|&(_, rate)| rate >= goal).map(|(at, _)| at);
        let least = |from| {
            over(FIRST_CHUNK).filter(|&(at, _)| at > from).map(|(_, rate)| rate).fold(f64::MAX, f64::min)
        };
        // End of the last window below the goal.
        let off = over(STAYS).rfind(|&(_, rate)| rate < goal).map(|(at, _)| at);
        let ends = record.seconds.last().map(|second| second.at);
        let stays = if off.is_some() && off == ends { None } else { off.or(first) };
        MethodResult {
            reached: SessionResult::of(record, FILE),
            first: first.map(|at| (at, least(at))),
            stays,
            streams: record.seconds.last().map_or(0, |second| second.streams),
        }
    }

    /// Draws the curve.
    pub(crate) fn chart(&self) -> Chart {
        let curve = |name: &str, colour, of: &[(usize, Mean)]| Series {
            name: name.to_owned(),
            colour,
            mark: Mark::Measured,
            points: of
                .iter()
                .map(|&(number, rate)| Point { x: number as f64, y: rate.mean, spread: rate.interval() })
                .collect(),
        };
        let mut series =
            vec![curve("fixed N", 0, &self.whole), curve("fixed N, in chunks of 3 s", 1, &self.in_chunks)];
        for (index, (method, outcomes)) in self.tried.iter().skip(1).enumerate() {
            let points =
                outcomes.iter().map(|own| Point::from((own.streams as f64, own.reached.rate))).collect();
            series.push(Series { name: method.to_string(), colour: index + 2, mark: Mark::Rings, points });
        }
        Chart {
            title: format!("tau = {}", millis(self.delay)),
            note: "rings: each run of a tuner, where it ended".to_owned(),
            x: Axis::new("Connections N", Unit::Number, Scale::Linear),
            y: Axis::new("Mean rate of 1 GB", Unit::BitsPerSecond, Scale::Linear),
            series,
        }
    }

    /// Returns a table of the chunks of APT's first run.
    pub(crate) fn chunks(&self) -> String {
        let row = |chunk: &longhaul_lab::model::session::ChunkRecord| {
            vec![
                format!("{:.1}", chunk.from.as_secs_f64()),
                format!("{:.1}", (chunk.to - chunk.from).as_secs_f64()),
                chunk.streams.to_string(),
                format!("{:.1}", chunk.goodput.as_bits_per_sec() as f64 / 1e6),
            ]
        };
        let rows: Vec<_> = self.course.iter().flat_map(|course| course.chunks.iter().map(row)).collect();
        markdown_table(&["from, s", "takes, s", "N", "G(N), Mbit/s"], &rows)
    }
}

/// Returns the table of G(N).
pub(crate) fn curve_table(curves: &[Curve]) -> String {
    let cell = |rate: &Mean| format!("{:.1}", rate.scaled(1e-6));
    let head: Vec<String> = curves
        .iter()
        .flat_map(|curve| ["", ", in chunks"].map(|kind| format!("{}{kind}", millis(curve.delay))))
        .collect();
    let head: Vec<&str> = ["N"].into_iter().chain(head.iter().map(String::as_str)).collect();
    let row = |index: usize| {
        let cells = curves.iter().flat_map(|curve| [&curve.whole[index].1, &curve.in_chunks[index].1]);
        [NUMBERS[index].to_string()].into_iter().chain(cells.map(cell)).collect()
    };
    markdown_table(&head, &(0..NUMBERS.len()).map(row).collect::<Vec<_>>())
}

/// Returns the table of the tuners' results beside the best fixed number.
pub(crate) fn table(curves: &[Curve]) -> String {
    let head = [
        "tau",
        "method",
        "1 GB at, Mbit/s",
        "of the best fixed N",
        "first near it after, s",
        "least of 3 s afterwards, Mbit/s",
        "stays near from, s",
        "ends with N",
    ];
    let mut rows = Vec::new();
    for curve in curves {
        let (_, best) = curve.best();
        for (method, outcomes) in &curve.tried {
            let mean = |values: Vec<f64>| Mean::of(values).map_or("-".to_owned(), |mean| mean.to_string());
            let seconds = |times: Vec<Option<Duration>>| {
                let reached: Vec<f64> = times.iter().flatten().map(Duration::as_secs_f64).collect();
                let never = times.len() - reached.len();
                let share = format!("{never} of {} never", times.len());
                match (reached.is_empty(), never) {
                    (true, _) => "never".to_owned(),
                    (_, 0) => mean(reached),
                    _ => format!("{}; {share}", mean(reached)),
                }
            };
            let rates: Vec<f64> = outcomes.iter().map(|own| own.reached.rate / 1e6).collect();
            let share = Mean::of(rates.iter().copied()).map_or(0.0, |rate| rate.mean * 1e6 / best);
            rows.push(vec![
                millis(curve.delay),
                method.to_string(),
                mean(rates) + super::bounded(outcomes.iter().map(|own| own.reached)),
                format!("{share:.3}"),
                seconds(outcomes.iter().map(|own| own.first.map(|(at, _)| at)).collect()),
                mean(outcomes.iter().filter_map(|own| own.first).map(|(_, least)| least / 1e6).collect()),
                seconds(outcomes.iter().map(|own| own.stays).collect()),
                mean(outcomes.iter().map(|own| own.streams as f64).collect()),
            ]);
        }
    }
    markdown_table(&head, &rows)
}
