//! Figures 3 to 6, 8, 9 and 11: the mean transfer rate over a parameter of APT, or over what others send.

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::Spread;
use longhaul_scope::chart::{Axis, Chart, Mark, NEUTRAL, Point, Scale, Series, Unit};

use super::Effort;
use super::trial::{Controls, LINE, Method, PUBLISHED, Path, Trial, on_all_cores};
use crate::table;

/// A parameter, and what it changes.
pub(crate) struct Sweep {
    /// Of the picture's file.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    label: &'static str,
    unit: Unit,
    values: &'static [f64],
    /// tau, in milliseconds, with the paper's figure.
    delays: &'static [(u64, u8)],
    changes: Changes,
}

enum Changes {
    /// APT itself; Longhaul's tuner has no such knob.
    Apt(fn(f64) -> Controls),
    /// The path, in whose background this much is sent.
    Background,
}

pub(crate) const SWEEPS: [Sweep; 4] = [
    Sweep {
        name: "apt-alpha",
        title: "Mean transfer rate by alpha",
        label: "alpha",
        unit: Unit::Number,
        values: &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
        delays: &[(10, 3), (50, 4)],
        changes: Changes::Apt(|alpha| Controls { alpha, ..PUBLISHED }),
    },
    Sweep {
        name: "apt-delta",
        title: "Mean transfer rate by Delta, the time that a chunk is to take",
        label: "Delta",
        unit: Unit::Seconds,
        values: &[1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0],
        delays: &[(10, 5), (50, 6)],
        changes: Changes::Apt(|delta_s| Controls { delta_s, ..PUBLISHED }),
    },
    Sweep {
        name: "apt-n0",
        title: "Mean transfer rate by N0, the first number of connections",
        label: "N0",
        unit: Unit::Number,
        values: &[1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 25.0],
        delays: &[(10, 8), (50, 9)],
        changes: Changes::Apt(|n0| Controls { n0: n0 as usize, ..PUBLISHED }),
    },
    Sweep {
        name: "apt-background",
        title: "Mean transfer rate by the rate of UDP beside",
        label: "UDP",
        unit: Unit::BitsPerSecond,
        values: &[0.0, 10e6, 20e6, 30e6, 40e6, 50e6],
        delays: &[(50, 11)],
        changes: Changes::Background,
    },
];

/// What a sweep has shown on one path for one size of file.
pub(crate) struct Measured {
    delay_ms: u64,
    figure: u8,
    file: Bytes,
    /// Rates in bits a second, by value and seed.
    apt: Vec<Vec<f64>>,
    auto: Vec<Vec<f64>>,
}

impl Sweep {
    /// Runs all of it.
    pub(crate) fn measure(&self, effort: &Effort) -> Vec<Measured> {
        let mut all = Vec::new();
        for &(delay_ms, figure) in self.delays {
            for &file in effort.files {
                let (apt, auto) = self.measure_one(delay_ms, file, effort.seeds);
                all.push(Measured { delay_ms, figure, file, apt, auto });
            }
        }
        all
    }

    fn measure_one(&self, delay_ms: u64, file: Bytes, seeds: u64) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let trials = |is_auto: bool| {
            let values = self.values.iter().map(move |&value| {
                let (controls, background) = match self.changes {
                    Changes::Apt(controls) => (controls(value), 0.0),
                    Changes::Background => (PUBLISHED, value),
                };
                (if is_auto { Method::Auto } else { Method::Apt(controls) }, background)
            });
            let distinct =
                if is_auto && matches!(self.changes, Changes::Apt(_)) { 1 } else { self.values.len() };
            values.take(distinct).flat_map(move |(method, background)| {
                (1..=seeds).map(move |seed| {
                    let path = Path {
                        background: Rate::bits_per_sec(background as u64),
                        ..Path::new(delay_ms, seed)
                    };
                    Trial::alone(path, method, file)
                })
            })
        };
        let apt: Vec<Trial> = trials(false).collect();
        let all: Vec<Trial> = apt.iter().cloned().chain(trials(true)).collect();
        let rates = on_all_cores(&all, Trial::rate);
        let (apt, auto) = rates.split_at(apt.len());
        let by_value = |rates: &[f64]| rates.chunks(seeds.max(1) as usize).map(<[f64]>::to_vec).collect();
        (by_value(apt), by_value(auto))
    }

    /// Makes a chart for each path.
    pub(crate) fn charts(&self, measured: &[Measured]) -> Vec<Chart> {
        let on = |delay_ms| measured.iter().filter(move |own| own.delay_ms == delay_ms);
        let chart = |&(delay_ms, figure): &(u64, u8)| {
            let mut series: Vec<Series> =
                on(delay_ms).enumerate().flat_map(|(colour, own)| self.series(own, colour)).collect();
            if let Changes::Background = self.changes {
                let left = |&value: &f64| Point::from((value, LINE * (1.0 - value / 100e6)));
                let points = self.values.iter().map(left).collect();
                series.push(Series {
                    name: "what is left".to_owned(),
                    colour: NEUTRAL,
                    mark: Mark::Dashed,
                    points,
                });
            }
            Chart {
                title: format!("Figure {figure}: tau = {delay_ms} ms"),
                note: "median; bars from least to largest".to_owned(),
                x: Axis { label: self.label.to_owned(), unit: self.unit, scale: Scale::Linear },
                y: Axis { label: "Mean rate".to_owned(), unit: Unit::BitsPerSecond, scale: Scale::Linear },
                series,
            }
        };
        self.delays.iter().map(chart).collect()
    }

    fn series(&self, measured: &Measured, colour: usize) -> [Series; 2] {
        let gigabytes = measured.file.get() as f64 / 1e9;
        let ends = [self.values.first(), self.values.last()].into_iter().flatten().copied();
        let auto_at = if measured.auto.len() == 1 { ends.collect() } else { self.values.to_vec() };
        let auto =
            auto_at.into_iter().zip(measured.auto.iter().cycle()).filter_map(|(x, rates)| point(x, rates));
        let apt = self.values.iter().zip(&measured.apt).filter_map(|(&x, rates)| point(x, rates));
        [
            Series {
                name: format!("streams auto, {gigabytes} GB"),
                colour,
                mark: Mark::Dashed,
                points: auto.map(|point| Point { spread: None, ..point }).collect(),
            },
            Series {
                name: format!("APT, {gigabytes} GB"),
                colour,
                mark: Mark::Measured,
                points: apt.collect(),
            },
        ]
    }

    /// Returns a table of the medians, in Mbit/s.
    pub(crate) fn table(&self, measured: &[Measured]) -> String {
        let head: Vec<String> = measured
            .iter()
            .map(|own| {
                format!("figure {}: {} ms, {} GB", own.figure, own.delay_ms, own.file.get() as f64 / 1e9)
            })
            .collect();
        let head: Vec<&str> = [self.label].into_iter().chain(head.iter().map(String::as_str)).collect();
        let value = |value: f64| match self.unit {
            Unit::BitsPerSecond => format!("{} Mbit/s", value / 1e6),
            Unit::Seconds => format!("{value} s"),
            _ => value.to_string(),
        };
        let cell = |rates: Option<&Vec<f64>>| {
            rates
                .and_then(|rates| Spread::of(rates.iter().copied()))
                .map_or("-".to_owned(), |rate| format!("{:.1}", rate.median / 1e6))
        };
        let mut rows = Vec::new();
        for (index, &own) in self.values.iter().enumerate() {
            let name = if matches!(self.changes, Changes::Background) {
                format!("APT, {}", value(own))
            } else {
                value(own)
            };
            rows.push(
                [name].into_iter().chain(measured.iter().map(|own| cell(own.apt.get(index)))).collect(),
            );
        }
        let autos = measured.iter().map(|own| own.auto.len()).max().unwrap_or(0);
        for index in 0..autos {
            let name = if autos == 1 {
                "**streams auto**".to_owned()
            } else {
                format!("**streams auto**, {}", value(self.values[index]))
            };
            rows.push(
                [name].into_iter().chain(measured.iter().map(|own| cell(own.auto.get(index)))).collect(),
            );
        }
        table::markdown(&head, &rows)
    }
}

fn point(x: f64, rates: &[f64]) -> Option<Point> {
    let spread = Spread::of(rates.iter().copied())?;
    Some(Point { x, y: spread.median, spread: Some((spread.min, spread.max)) })
}
