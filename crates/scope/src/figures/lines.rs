//! The charts of a record, and the lines of each.

use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::chart::{Mark, Point, Unit};
use crate::record::Record;
use crate::record::schema::Sample;

use super::curves::receives;
use super::flow::{BIN, Counter};
use super::values::{largest_bdp, least_rtt};
use Points::{Counted, Of, Pages, Received, Sampled, Sent};

/// One line of a chart; no points if the record has no data for it.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) mark: Mark,
    pub(super) points: Points,
}

/// How the points of a line are made.
pub(super) enum Points {
    /// Of the whole record.
    Of(fn(&Record) -> Vec<Point>),
    /// One value of each sample that has it.
    Sampled(fn(&Sample) -> Option<f64>),
    /// Like `Sampled`, for a value that exists at a receiver only.
    Received(fn(&Sample) -> Option<f64>),
    /// Like `Sampled`, for a value that exists at a sender only.
    Sent(fn(&Sample) -> Option<f64>),
    /// Like `Sampled`, unless all values are zero.
    Pages(fn(&Sample) -> Option<Bytes>),
    /// The growth of a counter, per bin.
    Counted(fn(&Sample) -> u64),
}

impl Points {
    /// Returns the points of a record; none if it has no data for them.
    pub(super) fn of(&self, record: &Record) -> Vec<Point> {
        match *self {
            Self::Of(points) => points(record),
            Self::Sampled(value) => sampled(record, value),
            Self::Received(value) if receives(record) => sampled(record, value),
            Self::Sent(value) if !receives(record) => sampled(record, value),
            Self::Received(_) | Self::Sent(_) => Vec::new(),
            Self::Pages(pages) => {
                let points = sampled(record, |sample| pages(sample).map(bytes));
                if points.iter().any(|point| point.y != 0.0) { points } else { Vec::new() }
            }
            Self::Counted(count) => counted(record, count),
        }
    }
}

/// A chart that any record may fill.
pub(super) struct Figure {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) y: (&'static str, Unit),
    /// Whether the note names the largest value.
    pub(super) with_peak: bool,
    pub(super) lines: &'static [Line],
}

const fn line(name: &'static str, mark: Mark, points: Points) -> Line {
    Line { name, mark, points }
}

/// A chart without a note.
const PLAIN: Figure = Figure { title: "", note: "", y: ("", Unit::Number), with_peak: false, lines: &[] };

/// All charts, in the order of a sheet.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        title: "Throughput",
        note: "Means over 0.5 s.",
        y: ("Throughput", Unit::BitsPerSecond),
        lines: &[line("", Mark::Steps, Of(throughput))],
        ..PLAIN
    },
    Figure {
        title: "Socket buffer in use",
        note: "Received by the kernel and not yet read (rcv_nxt \u{2212} copied_seq).",
        y: ("Socket buffer", Unit::Bytes),
        with_peak: true,
        lines: &[line("", Mark::Line, Received(|sample| Some(bytes(sample.sockets.unread))))],
    },
    Figure {
        title: "Application buffer in use",
        note: "Read and not yet written to the file.",
        y: ("Application buffer", Unit::Bytes),
        with_peak: true,
        lines: &[
            line(
                "capacity",
                Mark::Dashed,
                Of(|record| constant(record, |sample| Some(bytes(sample.segments?.capacity())))),
            ),
            line("in use", Mark::Line, Sampled(|sample| Some(bytes(sample.segments?.bytes())))),
        ],
    },
    Figure {
        title: "Page cache: on the way to the disk",
        note: "The host's pages are those of all programs. The file's are counted the more seldom the more there are.",
        y: ("Page cache", Unit::Bytes),
        lines: &[
            line("host: dirty", Mark::Line, Pages(|sample| Some(sample.host_pages?.dirty))),
            line("host: writeback", Mark::Line, Pages(|sample| Some(sample.host_pages?.writeback))),
            // Counts of the file's pages are sparse; a line would interpolate.
            line("file: dirty", Mark::Dots, Pages(|sample| Some(sample.page_cache?.dirty))),
            line("file: writeback", Mark::Dots, Pages(|sample| Some(sample.page_cache?.writeback))),
        ],
        ..PLAIN
    },
    Figure {
        title: "Page cache: all of the file's pages",
        y: ("Page cache", Unit::Bytes),
        lines: &[line("", Mark::Dots, Pages(|sample| Some(sample.page_cache?.cached)))],
        ..PLAIN
    },
    Figure {
        title: "Receive window",
        note: "What the receiver lets the sender have in flight. The BDP is the fastest 0.5 s times the least RTT.",
        y: ("RWIN", Unit::Bytes),
        lines: &[
            line("BDP", Mark::Dashed, Of(bdp)),
            line("RWIN", Mark::Line, Received(|sample| sample.sockets.windows.rwin.map(bytes))),
        ],
        ..PLAIN
    },
    Figure {
        title: "Congestion window",
        y: ("cwnd", Unit::Bytes),
        lines: &[line("", Mark::Line, Sent(|sample| sample.sockets.windows.cwnd.map(bytes)))],
        ..PLAIN
    },
    Figure {
        title: "Rates of the sender",
        y: ("Rate", Unit::BitsPerSecond),
        lines: &[
            line("pacing", Mark::Line, Sent(|sample| sample.sockets.rates.pacing.map(rate))),
            line("delivery", Mark::Line, Sent(|sample| sample.sockets.rates.delivery.map(rate))),
        ],
        ..PLAIN
    },
    Figure {
        title: "Round-trip time",
        y: ("RTT", Unit::Seconds),
        lines: &[
            line("least", Mark::Dashed, Of(min_rtt)),
            line("smoothed", Mark::Line, Sampled(|sample| sample.sockets.times.rtt.map(time))),
            line(
                "as the data saw it",
                Mark::Line,
                Received(|sample| sample.sockets.times.data_rtt.map(time)),
            ),
        ],
        ..PLAIN
    },
    Figure {
        title: "Packets out of order",
        note: "In each 0.5 s.",
        y: ("Packets", Unit::Number),
        lines: &[line("", Mark::Steps, Counted(|sample| sample.sockets.counters.out_of_order))],
        ..PLAIN
    },
    Figure {
        title: "Packets sent again",
        note: "In each 0.5 s.",
        y: ("Packets", Unit::Number),
        lines: &[line("", Mark::Steps, Counted(|sample| sample.sockets.counters.retransmits))],
        ..PLAIN
    },
];

fn bytes(size: Bytes) -> f64 {
    size.get() as f64
}

fn rate(rate: Rate) -> f64 {
    rate.as_bits_per_sec() as f64
}

fn time(rtt: Rtt) -> f64 {
    rtt.get().as_secs_f64()
}

/// Returns one value of each sample that has it.
fn sampled(record: &Record, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    let known = record.samples.iter().filter_map(|(at, sample)| Some((*at, value(sample)?)));
    known.map(Point::from).collect()
}

/// Throughput in bits per second, by bin.
fn throughput(record: &Record) -> Vec<Point> {
    rates(&Counter::moved(record))
}

/// Bits per second of a counter by bin, as steps.
fn rates(counter: &Counter) -> Vec<Point> {
    steps(counter, |bin| counter.rate(bin) * 8.0)
}

/// One value per bin; a final point ends the last bin.
fn steps(counter: &Counter, value: impl Fn((f64, f64)) -> f64) -> Vec<Point> {
    let bins = counter.bins();
    let end = bins.last().map(|bin| Point::from((bin.1, value(*bin))));
    bins.into_iter().map(|bin| Point::from((bin.0, value(bin)))).chain(end).collect()
}

/// Throughput of each stream that moved bytes, by its number; empty for a single one, and for more
/// streams than `most`.
pub(super) fn streams(record: &Record, most: usize) -> Vec<(usize, Vec<Point>)> {
    let received = receives(record);
    let mut readings: std::collections::BTreeMap<usize, Vec<(f64, u64)>> = Default::default();
    for (at, sample) in &record.samples {
        for stream in &sample.streams {
            let Some(tcp) = &stream.tcp else { continue };
            let counted = if received { tcp.tcpi_bytes_received } else { tcp.tcpi_bytes_acked };
            readings.entry(stream.stream).or_default().push((*at, counted));
            if readings.len() > most {
                return Vec::new();
            }
        }
    }
    // Zero throughout is a field that the record lacks, or a stream that moved nothing.
    readings.retain(|_, readings| readings.iter().any(|(_, counted)| *counted > 0));
    if readings.len() < 2 {
        return Vec::new();
    }
    let line = |readings: Vec<(f64, u64)>| {
        let start = readings.first().map_or(0.0, |(at, _)| *at);
        rates(&Counter::new(start, readings.into_iter()))
    };
    readings.into_iter().map(|(number, readings)| (number, line(readings))).collect()
}

/// A constant line over the whole record.
fn constant(record: &Record, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    let (Some(first), Some(last)) = (record.samples.first(), record.samples.last()) else {
        return Vec::new();
    };
    let Some(value) = record.samples.iter().rev().find_map(|(_, sample)| value(sample)) else {
        return Vec::new();
    };
    [first.0, last.0].map(|at| Point::from((at, value))).to_vec()
}

/// BDP of the fastest bin.
fn bdp(record: &Record) -> Vec<Point> {
    match largest_bdp(record) {
        Some(bdp) if receives(record) => constant(record, |_| Some(bdp.get() as f64)),
        _ => Vec::new(),
    }
}

/// Minimum RTT.
fn min_rtt(record: &Record) -> Vec<Point> {
    let least = least_rtt(record);
    constant(record, |_| least)
}

fn counted(record: &Record, of: fn(&Sample) -> u64) -> Vec<Point> {
    let counter = Counter::new(0.0, record.samples.iter().map(|(at, sample)| (*at, of(sample))));
    if counter.total() == 0.0 {
        return Vec::new();
    }
    // Fractions come from interpolation between readings: round them away, except in a wide bin,
    // which holds a mean.
    steps(&counter, |bin| {
        let width = bin.1 - bin.0;
        (counter.rate(bin) * width).round() * (BIN / width).min(1.0)
    })
}
