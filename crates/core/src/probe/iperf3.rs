//! Parses the output of `iperf3 --json`.

use std::fmt::Display;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::failure::{Failure, FailureKind};
use crate::retry::Retry;
use crate::units::{Bytes, Rate};

use super::flow_rate::RateRange;
use super::packet_train::LossShare;
use super::report::{TcpRow, UdpRow};

/// The reason why the output of iperf3 cannot be used.
#[derive(Debug, Clone, Error)]
pub enum Iperf3Error {
    /// iperf3 or its server reported an error.
    #[error("iperf3: {0}")]
    Refused(String),
    /// iperf3 did not end: no data of the test arrives, or the server has stopped.
    #[error("iperf3 did not end within {:.1} s", .0.as_secs_f64())]
    Endless(Duration),
    /// The program cannot be run, or the output is not that of iperf3.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Iperf3Error {
    /// Returns whether a retry can help: the server is busy, or between two tests.
    pub fn retry(&self) -> Retry {
        const WORDS: [&str; 3] = ["reset by peer", "refused", "busy"];
        let is_passing = matches!(self, Self::Refused(why) if WORDS.iter().any(|words| why.contains(words)));
        Retry::Backoff.unless(!is_passing)
    }

    fn garbage(why: &dyn Display) -> Self {
        Failure::new(FailureKind::Protocol, format!("cannot understand what iperf3 printed: {why}")).into()
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Refused(_) | Self::Endless(_) => FailureKind::Unavailable,
            Self::Failed(failure) => failure.kind,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Output {
    error: Option<String>,
    #[serde(default)]
    end: End,
    #[serde(default)]
    intervals: Vec<Interval>,
}

#[derive(Debug, Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    sum: Option<Sum>,
    #[serde(default)]
    streams: Vec<EndStream>,
}

#[derive(Debug, Deserialize)]
struct EndStream {
    udp: Option<UdpStream>,
}

#[derive(Debug, Deserialize)]
struct UdpStream {
    #[serde(default)]
    out_of_order: u32,
}

#[derive(Debug, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Clone, Deserialize)]
struct Sum {
    #[serde(default)]
    end: f64,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    bytes: f64,
    #[serde(default)]
    bits_per_second: f64,
    retransmits: Option<u64>,
    lost_packets: Option<f64>,
    packets: Option<f64>,
    lost_percent: Option<f64>,
}

fn read(json: &str) -> Result<Output, Iperf3Error> {
    let output: Output = serde_json::from_str(json).map_err(|error| Iperf3Error::garbage(&error))?;
    match output.error {
        Some(error) => Err(Iperf3Error::Refused(error)),
        None => Ok(output),
    }
}

fn rate(bits: f64) -> Rate {
    Rate::bits_per_sec(bits.max(0.0) as u64)
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The least share of the sent bytes that must have arrived for the sender's buffer to be
/// negligible.
const RECEIVED: f64 = 0.9;

/// Parses the result of a test over TCP: the row of one connection with default settings, with the
/// bounds of its rate even if that is flat, and the payload passed to the sender's kernel, an upper
/// bound of the bytes sent.
///
/// # Errors
/// [`Iperf3Error`].
pub fn parse_tcp(json: &str) -> Result<(TcpRow, Bytes), Iperf3Error> {
    let output = read(json)?;
    let missing = || Iperf3Error::garbage(&"it has no results of TCP");
    let received = output.end.sum_received.or(output.end.sum_sent.clone()).ok_or_else(missing)?;
    let end = output.intervals.last().map_or(0.0, |interval| interval.sum.end);
    let late = || output.intervals.iter().filter(|interval| interval.sum.end > end * 0.5 + 1e-3);
    let (bytes, seconds) = late()
        .fold((0.0, 0.0), |(bytes, seconds), Interval { sum }| (bytes + sum.bytes, seconds + sum.seconds));
    let handed = output.end.sum_sent.as_ref().map_or(0.0, |sum| sum.bytes).max(received.bytes);
    // The sender's intervals count the bytes passed to its socket, most of which may still be in
    // the send buffer.
    let is_received = received.bytes > handed * RECEIVED && seconds > 0.0;
    let steady = if is_received { bytes * 8.0 / seconds } else { received.bits_per_second };
    let rates = late().map(|Interval { sum }| sum.bytes * 8.0 / sum.seconds).filter(|rate| rate.is_finite());
    let (slowest, fastest) =
        rates.fold((steady, steady), |(least, most), rate| (rate.min(least), rate.max(most)));
    let row = TcpRow {
        streams: 1,
        payload_bps: rate(steady),
        seconds: duration(received.seconds),
        is_flat: is_received && is_flat(&output.intervals),
        range: Some(RateRange { least_bps: rate(slowest), most_bps: rate(fastest) }),
        // Systems other than Linux and FreeBSD do not count them.
        out_of_order: output.end.sum_sent.and_then(|sum| sum.retransmits).unwrap_or_default(),
        ..TcpRow::default()
    };
    Ok((row, Bytes::new(handed.max(0.0) as u64)))
}

/// Returns whether the last two whole intervals had about the same rate; a shorter last interval is
/// ignored.
fn is_flat(intervals: &[Interval]) -> bool {
    const SAME: f64 = 0.15;
    let usual = intervals.iter().map(|interval| interval.sum.seconds).fold(0.0, f64::max);
    let mut whole = intervals.iter().rev().filter(|interval| interval.sum.seconds > usual / 2.0);
    let mut rate = || whole.next().map_or(0.0, |Interval { sum }| sum.bytes / sum.seconds);
    let (last, before) = (rate(), rate());
    before > 0.0 && (last / before - 1.0).abs() < SAME
}

/// Parses the result of a test over UDP with messages of `message` bytes: its row, whose limit is
/// left open, and the losses.
///
/// # Errors
/// [`Iperf3Error`].
pub fn parse_udp(json: &str, message: Bytes) -> Result<(UdpRow, LossShare), Iperf3Error> {
    let output = read(json)?;
    let missing = || Iperf3Error::garbage(&"it has no results of UDP");
    let sum = output.end.sum.or(output.end.sum_received).ok_or_else(missing)?;
    let packets = sum.packets.ok_or_else(missing)?.max(0.0);
    let lost = sum.lost_packets.or(sum.lost_percent.map(|percent| percent / 100.0 * packets)).unwrap_or(0.0);
    // iperf3 first counts late packets as lost, and may report a negative number of losses.
    let loss = LossShare::new(packets as u64, lost.clamp(0.0, packets) as u64);
    let sent = packets * message.get() as f64 * 8.0 / sum.seconds.max(1e-9);
    let out_of_order = output.end.streams.iter().filter_map(|stream| stream.udp.as_ref());
    let row = UdpRow {
        message,
        payload_bps: rate(sent * (1.0 - loss.share)),
        sent_bps: rate(sent),
        loss: loss.share,
        reordered: out_of_order.fold(0, |sum, udp| sum.saturating_add(udp.out_of_order)),
        is_path_limited: false,
    };
    Ok((row, loss))
}

#[cfg(test)]
mod tests;
