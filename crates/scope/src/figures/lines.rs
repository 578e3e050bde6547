//! The lines that charts draw of a record.

use longhaul_core::telemetry::{HostPages, PageCache};
use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::chart::Point;
use crate::record::Record;
use crate::record::schema::Sample;

use super::curves::receives;
use super::flow::{BIN, Counter};
use super::values::{largest_bdp, least_rtt};

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

/// Like [`sampled`], but empty if all values are zero.
fn sampled_unless_zero(record: &Record, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    let points = sampled(record, value);
    if points.iter().any(|point| point.y != 0.0) { points } else { Vec::new() }
}

/// Throughput in bits per second, by bin.
pub(super) fn throughput(record: &Record) -> Vec<Point> {
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

/// Throughput of each stream, by its number; empty for a single stream or more than `most`.
pub(super) fn streams(record: &Record, most: usize) -> Vec<(usize, Vec<Point>)> {
    let counted = if receives(record) { "tcpi_bytes_received" } else { "tcpi_bytes_acked" };
    let mut readings: std::collections::BTreeMap<usize, Vec<(f64, u64)>> = Default::default();
    for (at, sample) in &record.samples {
        for stream in &sample.streams {
            let Some(bytes) = stream.tcp.as_ref().and_then(|tcp| tcp.get(counted)) else { continue };
            readings.entry(stream.stream).or_default().push((*at, bytes));
            if readings.len() > most {
                return Vec::new();
            }
        }
    }
    if readings.len() < 2 {
        return Vec::new();
    }
    let line = |readings: Vec<(f64, u64)>| {
        let start = readings.first().map_or(0.0, |(at, _)| *at);
        rates(&Counter::new(start, readings.into_iter()))
    };
    readings.into_iter().map(|(number, readings)| (number, line(readings))).collect()
}

/// Received and unread bytes; of a receiver only.
pub(super) fn socket_buffer(record: &Record) -> Vec<Point> {
    of_receiver(record, |sample| Some(bytes(sample.sockets.unread)))
}

/// Bytes in use of the application buffer.
pub(super) fn application_buffer(record: &Record) -> Vec<Point> {
    sampled(record, |sample| Some(bytes(sample.segments?.bytes())))
}

/// Capacity of the application buffer in bytes.
pub(super) fn capacity(record: &Record) -> Vec<Point> {
    constant(record, |sample| Some(bytes(sample.segments?.capacity())))
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

fn pages(record: &Record, of: fn(&PageCache) -> Bytes) -> Vec<Point> {
    sampled_unless_zero(record, |sample| Some(bytes(of(sample.page_cache.as_ref()?))))
}

/// Cached pages of the output file, in bytes.
pub(super) fn cached(record: &Record) -> Vec<Point> {
    pages(record, |pages| pages.cached)
}

/// Dirty pages of the output file not yet under writeback, in bytes.
pub(super) fn dirty(record: &Record) -> Vec<Point> {
    pages(record, |pages| pages.dirty)
}

/// Pages of the output file under writeback, in bytes.
pub(super) fn writeback(record: &Record) -> Vec<Point> {
    pages(record, |pages| pages.writeback)
}

/// Dirty pages of the host not yet under writeback, in bytes.
pub(super) fn host_dirty(record: &Record) -> Vec<Point> {
    host_pages(record, |pages| pages.dirty)
}

/// Pages of the host under writeback, in bytes.
pub(super) fn host_writeback(record: &Record) -> Vec<Point> {
    host_pages(record, |pages| pages.writeback)
}

fn host_pages(record: &Record, of: fn(&HostPages) -> Bytes) -> Vec<Point> {
    sampled_unless_zero(record, |sample| Some(bytes(of(sample.host_pages.as_ref()?))))
}

/// Receive window of a receiver.
pub(super) fn rwin(record: &Record) -> Vec<Point> {
    of_receiver(record, |sample| sample.sockets.rwin.map(bytes))
}

/// BDP of the fastest bin.
pub(super) fn bdp(record: &Record) -> Vec<Point> {
    match largest_bdp(record) {
        Some(bdp) if receives(record) => constant(record, |_| Some(bdp.get() as f64)),
        _ => Vec::new(),
    }
}

/// RTT measured by TCP.
pub(super) fn rtt(record: &Record) -> Vec<Point> {
    sampled(record, |sample| sample.sockets.rtt.map(time))
}

/// RTT measured on received data.
pub(super) fn data_rtt(record: &Record) -> Vec<Point> {
    of_receiver(record, |sample| sample.sockets.data_rtt.map(time))
}

/// Minimum RTT.
pub(super) fn min_rtt(record: &Record) -> Vec<Point> {
    let least = least_rtt(record);
    constant(record, |_| least)
}

/// Congestion window of a sender.
pub(super) fn cwnd(record: &Record) -> Vec<Point> {
    of_sender(record, |sample| sample.sockets.cwnd.map(bytes))
}

/// Pacing rate of a sender.
pub(super) fn pacing(record: &Record) -> Vec<Point> {
    of_sender(record, |sample| sample.sockets.pacing_rate.map(rate))
}

/// Delivery rate of a sender.
pub(super) fn delivery(record: &Record) -> Vec<Point> {
    of_sender(record, |sample| sample.sockets.delivery_rate.map(rate))
}

/// Samples a value that exists at a receiver only.
fn of_receiver(record: &Record, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    if receives(record) { sampled(record, value) } else { Vec::new() }
}

/// Samples a value that exists at a sender only.
fn of_sender(record: &Record, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
    if receives(record) { Vec::new() } else { sampled(record, value) }
}

/// Packets received out of order, per bin.
pub(super) fn out_of_order(record: &Record) -> Vec<Point> {
    counted(record, |sample| sample.sockets.counters.out_of_order)
}

/// Retransmitted packets, per bin.
pub(super) fn retransmits(record: &Record) -> Vec<Point> {
    counted(record, |sample| sample.sockets.counters.retransmits)
}

fn counted(record: &Record, of: fn(&Sample) -> u64) -> Vec<Point> {
    let counter = Counter::new(0.0, record.samples.iter().map(|(at, sample)| (*at, of(sample))));
    if counter.total() == 0.0 {
        return Vec::new();
    }
    // Fractions come from interpolation between readings: round them away, except in a wide bin, which holds a mean.
    steps(&counter, |bin| {
        let width = bin.1 - bin.0;
        (counter.rate(bin) * width).round() * (BIN / width).min(1.0)
    })
}
