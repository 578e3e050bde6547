//! Figures 3 to 6, 8, 9 and 11: the mean transfer rate over a parameter of APT, or over background
//! traffic.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::BackgroundSteps;
use longhaul_lab::scenario::markdown_table;
use longhaul_scope::chart::{Axis, Chart, Mark, NEUTRAL, PALE, Point, Scale, Series, Unit};

use super::statistics::Mean;
use super::trial::{Controls, LINE, Method, PUBLISHED, SessionResult, Trial, on_all_cores, paper_path};
use super::{Effort, bounded, millis};

/// A swept parameter.
pub(crate) struct Sweep {
    /// Name of the picture's file.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    label: &'static str,
    unit: Unit,
    /// The values, equal to those of the scenario with this name.
    values: &'static [f64],
    /// tau, and the paper's figure for it.
    delays: &'static [(Duration, u8)],
    /// The values that the paper finds best, with what it says of them.
    best: Option<(&'static str, [f64; 2])>,
    changes: Changes,
}

const SHORT_DELAY: Duration = Duration::from_millis(10);
const LONG_DELAY: Duration = Duration::from_millis(50);

enum Changes {
    /// A parameter of APT; Longhaul's tuner has no counterpart.
    Apt(fn(f64) -> Controls),
    /// The rate of background traffic.
    Background,
}

pub(crate) const SWEEPS: [Sweep; 4] = [
    Sweep {
        name: "apt-alpha",
        title: "Mean transfer rate by alpha",
        label: "alpha",
        unit: Unit::Number,
        values: &[1.1, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
        delays: &[(SHORT_DELAY, 3), (LONG_DELAY, 4)],
        best: Some(("the paper: best alpha", [2.0, 3.0])),
        changes: Changes::Apt(|alpha| Controls { alpha, ..PUBLISHED }),
    },
    Sweep {
        name: "apt-delta",
        title: "Mean transfer rate by Delta, the time that a chunk is to take",
        label: "Delta",
        unit: Unit::Seconds,
        values: &[1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0],
        delays: &[(SHORT_DELAY, 5), (LONG_DELAY, 6)],
        best: Some(("the paper: best, 3 s", [2.5, 3.5])),
        changes: Changes::Apt(|delta| Controls { delta: Duration::from_secs_f64(delta), ..PUBLISHED }),
    },
    Sweep {
        name: "apt-n0",
        title: "Mean transfer rate by N0, the first number of connections",
        label: "N0",
        unit: Unit::Number,
        values: &[1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 25.0],
        delays: &[(SHORT_DELAY, 8), (LONG_DELAY, 9)],
        best: Some(("the paper: good N0", [4.0, 8.0])),
        changes: Changes::Apt(|n0| Controls { n0: n0 as usize, ..PUBLISHED }),
    },
    Sweep {
        name: "apt-background",
        title: "Mean transfer rate by the rate of UDP beside",
        label: "UDP",
        unit: Unit::BitsPerSecond,
        values: &[0.0, 10e6, 20e6, 30e6, 40e6, 50e6],
        delays: &[(LONG_DELAY, 11)],
        best: None,
        changes: Changes::Background,
    },
];

/// Results of a sweep on one path for one file size.
pub(crate) struct SweepResult {
    delay: Duration,
    figure: u8,
    file: Bytes,
    /// Results by value and seed.
    apt: Vec<Vec<SessionResult>>,
    longhaul: Vec<Vec<SessionResult>>,
}

impl Sweep {
    /// Runs the sweep on all paths and file sizes.
    pub(crate) fn measure(&self, effort: &Effort) -> Vec<SweepResult> {
        let mut all = Vec::new();
        for &(delay, figure) in self.delays {
            for &file in effort.files {
                let [apt, longhaul] = self.measure_one(delay, file, effort);
                all.push(SweepResult { delay, figure, file, apt, longhaul });
            }
        }
        all
    }

    /// Returns the results of APT and Longhaul.
    fn measure_one(&self, delay: Duration, file: Bytes, effort: &Effort) -> [Vec<Vec<SessionResult>>; 2] {
        let trials = |is_longhaul: bool| {
            let values = self.values.iter().map(move |&value| {
                let (controls, background) = match self.changes {
                    Changes::Apt(controls) => (controls(value), 0.0),
                    Changes::Background => (PUBLISHED, value),
                };
                (if is_longhaul { Method::Longhaul } else { Method::Apt(controls) }, background)
            });
            let distinct =
                if is_longhaul && matches!(self.changes, Changes::Apt(_)) { 1 } else { self.values.len() };
            values.take(distinct).flat_map(move |(method, background)| {
                let background = Rate::bits_per_sec(background as u64);
                effort.seeds().map(move |seed| {
                    let mut path = paper_path(delay, seed);
                    path.traffic.background = BackgroundSteps::steady(background);
                    Trial::alone(path, method, file)
                })
            })
        };
        let apt: Vec<Trial> = trials(false).collect();
        let all: Vec<Trial> = apt.iter().cloned().chain(trials(true)).collect();
        let reached = on_all_cores(&all, Trial::reached);
        let (apt, longhaul) = reached.split_at(apt.len());
        [apt, longhaul].map(|own| own.chunks(effort.runs as usize).map(<[SessionResult]>::to_vec).collect())
    }

    /// Returns a chart for each path.
    pub(crate) fn charts(&self, measured: &[SweepResult]) -> Vec<Chart> {
        let chart = |&(delay, figure): &(Duration, u8)| {
            let own: Vec<_> = measured.iter().filter(|own| own.delay == delay).collect();
            let mut series: Vec<Series> =
                own.iter().enumerate().flat_map(|(colour, own)| self.series(own, colour)).collect();
            if let Changes::Background = self.changes {
                let left = |&value: &f64| Point::from((value, LINE * (1.0 - value / 100e6)));
                let points = self.values.iter().map(left).collect();
                let name = "payload that UDP leaves".to_owned();
                series.push(Series { name, colour: NEUTRAL, mark: Mark::Dashed, points });
            }
            if let Some((name, ends)) = self.best {
                let points = ends.map(|end| Point::from((end, LINE))).to_vec();
                series.insert(0, Series { name: name.to_owned(), colour: PALE, mark: Mark::Band, points });
            }
            let all = || own.iter().flat_map(|own| own.apt.iter().chain(&own.longhaul)).flatten();
            let bounded = all().filter(|own| own.is_bounded).count();
            let mut notes = Vec::new();
            if bounded > 0 {
                notes.push(format!("{bounded} of {} runs met the bound of connections", all().count()));
            }
            // Rates on the short path differ little.
            let scale = if delay == SHORT_DELAY { Scale::Near } else { Scale::Linear };
            if scale == Scale::Near {
                notes.push("the vertical axis does not begin at zero".to_owned());
            }
            Chart {
                title: format!("As figure {figure} of Ito et al.: tau = {}", millis(delay)),
                note: notes.join("; "),
                x: Axis::new(self.label, self.unit, Scale::Near),
                y: Axis::new("Mean rate", Unit::BitsPerSecond, scale),
                series,
            }
        };
        self.delays.iter().map(chart).collect()
    }

    fn series(&self, measured: &SweepResult, colour: usize) -> [Series; 2] {
        let ends = [self.values.first(), self.values.last()].into_iter().flatten().copied();
        let longhaul_at = if measured.longhaul.len() == 1 { ends.collect() } else { self.values.to_vec() };
        let longhaul = longhaul_at.into_iter().zip(measured.longhaul.iter().cycle());
        let longhaul = longhaul.filter_map(|(x, reached)| point(x, reached));
        let apt = self.values.iter().zip(&measured.apt).filter_map(|(&x, reached)| point(x, reached));
        let size = gigabytes(measured.file);
        [
            Series {
                name: format!("Longhaul, {size}"),
                colour,
                mark: Mark::Dashed,
                points: longhaul.map(|point| Point { spread: None, ..point }).collect(),
            },
            Series { name: format!("APT, {size}"), colour, mark: Mark::Measured, points: apt.collect() },
        ]
    }

    /// Returns the table of mean rates in Mbit/s.
    pub(crate) fn table(&self, measured: &[SweepResult]) -> String {
        let column = |own: &SweepResult| {
            format!("figure {}: {}, {}", own.figure, millis(own.delay), gigabytes(own.file))
        };
        let head: Vec<String> = measured.iter().map(column).collect();
        let head: Vec<&str> = [self.label].into_iter().chain(head.iter().map(String::as_str)).collect();
        let value = |value: f64| match self.unit {
            Unit::BitsPerSecond => format!("{} Mbit/s", value / 1e6),
            Unit::Seconds => format!("{value} s"),
            _ => value.to_string(),
        };
        let rows_of = |name: &dyn Fn(usize) -> String, of: fn(&SweepResult) -> &Vec<Vec<SessionResult>>| {
            let cells = |index: usize| {
                measured.iter().map(move |own| of(own).get(index).map_or(String::new(), |own| cell(own)))
            };
            let count = measured.iter().map(|own| of(own).len()).max().unwrap_or(0);
            (0..count)
                .map(|index| [name(index)].into_iter().chain(cells(index)).collect())
                .collect::<Vec<Vec<_>>>()
        };
        let apt = rows_of(&|index| format!("APT, {}", value(self.values[index])), |own| &own.apt);
        let longhaul = rows_of(
            &|index| match self.changes {
                Changes::Apt(_) => "**Longhaul**".to_owned(),
                Changes::Background => format!("**Longhaul**, {}", value(self.values[index])),
            },
            |own| &own.longhaul,
        );
        markdown_table(&head, &[apt, longhaul].concat())
    }
}

fn gigabytes(file: Bytes) -> String {
    format!("{} GB", file.get() as f64 / 1e9)
}

fn mean(reached: &[SessionResult]) -> Option<Mean> {
    Mean::of(reached.iter().map(|own| own.rate))
}

fn point(x: f64, reached: &[SessionResult]) -> Option<Point> {
    let rate = mean(reached)?;
    Some(Point { x, y: rate.mean, spread: rate.interval() })
}

fn cell(reached: &[SessionResult]) -> String {
    let rate = mean(reached).map(|rate| rate.scaled(1e-6).to_string());
    rate.unwrap_or_default() + bounded(reached.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_lab::scenario::Scenario;

    use super::super::trial::{QUEUE, RATE};
    use super::*;

    /// Simulated and emulated sweeps have equal values.
    #[test]
    fn values_are_those_of_the_scenarios() {
        let parameters = ["alpha", "delta", "n0", "path.background"];
        for (sweep, parameter) in SWEEPS.iter().zip(parameters) {
            let file = format!("{}/../../scenarios/{}.toml", env!("CARGO_MANIFEST_DIR"), sweep.name);
            let scenario = Scenario::load(Path::new(&file), &[]).unwrap();
            assert_eq!((scenario.path.rate, scenario.path.queue), (Some(RATE), Some(QUEUE)), "{file}");
            let swept = scenario.sweep.iter().find(|own| own.name == parameter).unwrap();
            let number = |text: &String| match sweep.unit {
                Unit::BitsPerSecond => text.parse::<Rate>().unwrap().as_bits_per_sec() as f64,
                _ => text.trim_end_matches('s').parse().unwrap(),
            };
            assert_eq!(swept.values.iter().map(number).collect::<Vec<_>>(), sweep.values, "{file}");
        }
    }
}
