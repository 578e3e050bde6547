//! The conclusions of a probe: the settings that `get` will use, the time of a transfer, and advice for both hosts.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::plan::{LARGEST_WINDOW, window_ceiling};
use crate::units::{Bytes, Rate, Rtt, seconds};

use super::flow_rate::{RateRange, payload_rate};
use super::packet_train::per_cent;
use super::report::{CeilingSource, PathFindings, TcpRow, UdpCeiling, UploadFindings};
use super::server_limits::ServerLimit;

/// The measurements from which the verdict is derived.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The RTT without queueing.
    pub rtt: Option<Rtt>,
    /// Properties of the path.
    pub path: &'a PathFindings,
    /// The highest rate of datagrams.
    pub udp_ceiling: Option<UdpCeiling>,
    /// The rates of TCP.
    pub tcp: &'a [TcpRow],
    /// The limit of the server's connections.
    pub limit: Option<ServerLimit>,
    /// Whether parts of a file can be requested; otherwise `get` uses one connection.
    pub ranges: bool,
    /// The largest receive buffer of this host's kernel (`tcp_rmem[2]`).
    pub tcp_rmem_max: Option<Bytes>,
    /// Properties of the upload direction.
    pub upload: Option<&'a UploadFindings>,
    /// The file's size.
    pub size: Bytes,
}

/// The conclusions of a probe.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Verdict {
    /// The number of streams with which `get` starts, if `remembered`.
    pub streams: u32,
    /// The total receive window that `get` needs.
    pub window: Option<Bytes>,
    /// The payload rate that `get` will reach.
    pub rate_bps: Option<Rate>,
    /// Whether the path's properties are stored for `get`.
    pub remembered: bool,
    /// The size of the file to which `seconds` applies.
    pub size: Bytes,
    /// The time to `get` the file.
    #[serde(serialize_with = "seconds::optional::serialize")]
    pub seconds: Option<Duration>,
    /// The bounds of `rate_bps` and of `seconds`, if no connection was steady.
    pub range: Option<ForecastRange>,
    /// The forecast of a `put`.
    #[serde(flatten)]
    pub put: PutForecast,
    /// The arithmetic behind the numbers, one sentence each.
    pub arithmetic: Vec<String>,
    /// Changes advised on this host or the other, one sentence each.
    pub advice: Vec<String>,
}

/// What a `put` of the file will reach with one stream, if the upload was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct PutForecast {
    /// The payload rate.
    #[serde(rename = "put_rate_bps")]
    pub rate_bps: Option<Rate>,
    /// The time.
    #[serde(rename = "put_seconds", serialize_with = "seconds::optional::serialize")]
    pub seconds: Option<Duration>,
    /// The bounds of both, if no connection was steady.
    #[serde(rename = "put_range")]
    pub range: Option<ForecastRange>,
}

/// The bounds of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ForecastRange {
    /// The bounds of the payload rate.
    #[serde(flatten)]
    pub rate: RateRange,
    /// The time at the higher rate.
    #[serde(with = "seconds")]
    pub least_seconds: Duration,
    /// The time at the lower rate, if that is known.
    #[serde(serialize_with = "seconds::optional::serialize")]
    pub most_seconds: Option<Duration>,
}

impl fmt::Display for ForecastRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = two_digits(self.least_seconds);
        match self.most_seconds.map(two_digits) {
            Some(most) => f.pad(&format!("{least} to {most} s")),
            None => f.pad(&format!("at least {least} s")),
        }
    }
}

/// Returns seconds with two significant digits.
pub(super) fn two_digits(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let unit = 10_f64.powf(seconds.max(1.0).log10().floor() - 1.0);
    format!("{:.*}", usize::from(unit < 1.0), (seconds / unit).round() * unit)
}

/// The largest number of streams advised: more overload servers (wdt#68: 20 to 30 are enough).
const MAX_ADVISED_STREAMS: u64 = 16;
/// The segment size of Mathis' formula, in bytes.
const MSS: u64 = 1448;
/// The window relative to the BDP, as in the plan of the receive buffer; leaves room for bursts.
const SLACK: f64 = 1.5;
/// The share of the path's payload rate that a transfer reaches after its ramp-up.
const REACHED: f64 = 0.95;
/// The first window of slow start in bytes: ten segments (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0 * MSS as f64;

/// Returns the rate to which random loss limits one Reno connection: MSS / RTT x sqrt(3/2) / sqrt(p) (Mathis et al.,
/// 1997).
pub fn loss_ceiling(rtt: Rtt, loss: f64) -> Option<Rate> {
    let seconds = rtt.get().as_secs_f64();
    (loss > 0.0 && seconds > 0.0)
        .then(|| Rate::bits_per_sec((MSS as f64 * 8.0 / seconds * 1.5_f64.sqrt() / loss.sqrt()) as u64))
}

/// Derives the verdict.
pub fn conclude(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict { streams: 1, size: evidence.size, ..Verdict::default() };
    let mtu = evidence.path.mtu.unwrap_or(Bytes::new(1500));
    let path = evidence.path.rate.map(|found| payload_rate(found.rate_bps, mtu));
    if let (Some(path), Some(rtt)) = (path, evidence.rtt) {
        let bdp = path.bdp(rtt);
        verdict.arithmetic.push(format!("BDP: {path} x {rtt} = {bdp} in flight fill the path"));
        let window = Bytes::new((bdp.get() as f64 * SLACK) as u64);
        verdict.window = Some(window);
        advise_window(evidence, window, &mut verdict);
    }
    let single = limit_of_one(evidence, path, &mut verdict);
    let best = evidence.tcp.iter().filter(|row| row.buffer.is_none()).max_by_key(|row| row.payload_bps);
    let reachable = path.map(|path| match evidence.limit {
        Some(ServerLimit::AllConnections { rate }) => rate,
        _ => path.scaled(REACHED),
    });
    match (single, reachable) {
        (Some(single), Some(path)) if single < path && evidence.ranges => {
            let wanted = path.as_bits_per_sec().div_ceil(single.as_bits_per_sec().max(1));
            let streams = wanted.clamp(1, MAX_ADVISED_STREAMS);
            verdict.streams = u32::try_from(streams).unwrap_or(1);
            let reached = path.min(single.scaled(streams as f64));
            verdict.arithmetic.push(format!("{path} / {single} a stream: {streams} streams, {reached}"));
            verdict.rate_bps = Some(reached);
        }
        (Some(single), path) => verdict.rate_bps = Some(path.map_or(single, |path| path.min(single))),
        (None, Some(path)) => verdict.rate_bps = Some(path),
        (None, None) => {
            verdict.rate_bps = best.map(|row| row.payload_bps).filter(|rate| rate.as_bits_per_sec() > 0);
            verdict.streams = best.map_or(1, |row| if evidence.ranges { row.streams } else { 1 });
        }
    }
    if !evidence.ranges {
        verdict.arithmetic.push("without ranges a file comes over one connection".to_owned());
    }
    advise_path(evidence, &mut verdict);
    advise_ceiling(evidence, &mut verdict);
    finish(evidence, &mut verdict);
    forecast_put(evidence, &mut verdict);
    verdict
}

/// Returns the rate to which a limit other than the path restricts one connection.
fn limit_of_one(evidence: &Evidence<'_>, path: Option<Rate>, verdict: &mut Verdict) -> Option<Rate> {
    let single = evidence.tcp.iter().find(|row| row.streams == 1 && row.buffer.is_none());
    let needed = path.zip(evidence.rtt).map(|(path, rtt)| path.bdp(rtt));
    match evidence.limit? {
        ServerLimit::SendBuffer { in_flight } => {
            let rate = single?.payload_bps;
            verdict.arithmetic.push(format!(
                "one connection: {rate} x RTT = {in_flight} in flight, flat and without loss: the server's send buffer"
            ));
            let size = needed.map_or_else(|| "the path's BDP".to_owned(), |needed| needed.to_string());
            verdict.advice.push(format!(
                "server: raise net.ipv4.tcp_wmem's maximum to twice {size} (and let its program set no SO_SNDBUF): one stream then fills the path"
            ));
            Some(rate)
        }
        ServerLimit::SendBufferOrRate { in_flight, rate } => {
            verdict.arithmetic.push(format!(
                "one connection: {rate} x RTT = {in_flight} in flight, flat and without loss: the server's send buffer, or a rate limit of each connection"
            ));
            verdict.advice.push(
                "server: raise its rate limit of a connection (as nginx's limit_rate) or, where it has none, net.ipv4.tcp_wmem's maximum; or use streams"
                    .to_owned(),
            );
            Some(rate)
        }
        ServerLimit::PerConnection { rate } => {
            verdict.arithmetic.push(format!("each connection holds {rate}, several hold several times that"));
            verdict.advice.push(
                "server: it limits the rate of each connection (as nginx's limit_rate does): raise that, or use streams"
                    .to_owned(),
            );
            Some(rate)
        }
        ServerLimit::ReceiveWindow { window } => {
            let rate = evidence.rtt.map(|rtt| window_ceiling(window, rtt));
            if let (Some(rate), Some(rtt)) = (rate, evidence.rtt) {
                verdict.arithmetic.push(format!("this host's window: {window} / {rtt} = {rate} a stream"));
            }
            rate
        }
        ServerLimit::Ceiling { rate } => {
            verdict.arithmetic.push(format!(
                "the server allows measurements {rate} now, all of their clients share its ceiling: the path may hold more"
            ));
            verdict.advice.push(
                "server: raise the ceiling of serve --measure=RATE, or probe when no other client does"
                    .to_owned(),
            );
            None
        }
        ServerLimit::AllConnections { rate } => {
            verdict.arithmetic.push(format!(
                "all connections together hold {rate}, and the path far more: more streams gain nothing"
            ));
            verdict.advice.push(
                "server: something that all connections share limits them: a rate limit, its disk or its CPU, or this host's CPU".to_owned(),
            );
            None
        }
        ServerLimit::Loss => single.map(|row| row.payload_bps),
        ServerLimit::Shared | ServerLimit::Growing => None,
    }
}

fn advise_window(evidence: &Evidence<'_>, window: Bytes, verdict: &mut Verdict) {
    // With small packets, half of a receive buffer is window (tcp_adv_win_scale = 1).
    let buffer = window * 2;
    if window > LARGEST_WINDOW {
        verdict.advice.push(format!(
            "path: TCP announces at most {LARGEST_WINDOW} of window (RFC 7323): one stream cannot fill it"
        ));
    } else if let Some(most) = evidence.tcp_rmem_max.filter(|most| *most < buffer) {
        verdict.advice.push(format!(
            "this host: tcp_rmem's maximum is {most}, a window of {window} needs {buffer}: sysctl -w net.ipv4.tcp_rmem='4096 131072 {}'",
            buffer.get()
        ));
    }
}

fn advise_path(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    /// The least loss that slows a modern congestion control on ordinary paths.
    const NOTABLE: f64 = 1e-5;
    /// The least delay of a full queue, if longer than the RTT, that counts as bufferbloat.
    const BLOATED: Duration = Duration::from_millis(200);
    if let (Some(loss), Some(rtt)) = (evidence.path.loss.filter(|loss| loss.share > NOTABLE), evidence.rtt)
        && loss.lost > 0
        && let Some(ceiling) = loss_ceiling(rtt, loss.share)
    {
        verdict.arithmetic.push(format!(
            "loss of {} without a queue holds a Reno connection to {ceiling} (MSS / RTT x 1.22 / sqrt(loss))",
            per_cent(loss.share)
        ));
        verdict.advice.push(
            "server: packets are lost although the path is not full; find the faulty link, or serve with --congestion bbr"
                .to_owned(),
        );
    }
    if let Some(queue) = evidence.path.queue
        && !queue.is_lower_bound
        && let (Some(found), Some(rtt)) = (evidence.path.rate, evidence.rtt)
    {
        let bdp = found.rate_bps.bdp(rtt);
        verdict.arithmetic.push(format!(
            "queue: {} hold {:.1} ms of the path's rate, {:.2} BDP",
            queue.bytes,
            queue.delay.as_secs_f64() * 1e3,
            queue.bytes.get() as f64 / bdp.get().max(1) as f64
        ));
        if queue.bytes.get() * 2 < bdp.get() {
            verdict.advice.push(
                "server: the queue is short of half a BDP: pace the sender (serve --pace auto), or bursts are lost".to_owned(),
            );
        } else if queue.delay > BLOATED && queue.delay > rtt.get() {
            verdict.advice.push(format!(
                "path: a full queue adds {:.0} ms to every connection; pacing below the path's rate keeps it empty",
                queue.delay.as_secs_f64() * 1e3
            ));
        }
    }
}

/// Adds that the user's ceiling of UDP, and not the path, set the rate that was found.
fn advise_ceiling(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let is_set = |ceiling: &UdpCeiling| ceiling.is_reached && ceiling.set_by == CeilingSource::Option;
    if let Some(ceiling) = evidence.udp_ceiling.filter(is_set) {
        let rate = ceiling.rate_bps;
        verdict.arithmetic.push(format!("UDP reached {rate}, its --ceiling: the path may hold more"));
        let advice = format!("this host: raise or leave out --ceiling (now {rate}), to find the path's rate");
        verdict.advice.push(advice);
    }
}

/// Adds the time of a `get`: ramp-up, then the rate.
fn finish(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let Some(rate) = verdict.rate_bps else { return };
    let forecast = transfer_time(rate, unsteady_rate(rate, evidence), evidence, verdict.streams);
    verdict.arithmetic.extend(forecast.arithmetic);
    (verdict.seconds, verdict.range) = (forecast.total, forecast.range);
}

/// Returns the bounds of the rate of a `get` if no connection was steady: the highest rate of TCP, and the path's.
fn unsteady_rate(rate: Rate, evidence: &Evidence<'_>) -> Option<RateRange> {
    let plain = || evidence.tcp.iter().filter(|row| row.buffer.is_none() && row.congestion.is_none());
    let reached = plain().map(|row| row.payload_bps).max()?;
    let mtu = evidence.path.mtu.unwrap_or(Bytes::new(1500));
    let path = evidence.path.rate.map(|found| found.range.map_or(found.rate_bps, |range| range.most_bps));
    let most = path
        .map(|path| payload_rate(path, mtu))
        .or(plain().filter_map(|row| row.range).map(|range| range.most_bps).max());
    let is_steady = plain().any(|row| row.is_flat);
    most.filter(|_| !is_steady)
        .map(|most| RateRange { least_bps: reached.min(rate), most_bps: most.max(rate) })
}

/// Adds the forecast of a `put`: at the rate of one connection if that was steady or had losses, else at its burst
/// rate.
fn forecast_put(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let Some(upload) = evidence.upload else { return };
    let single = upload.tcp.iter().find(|row| row.streams == 1);
    let mtu = evidence.path.mtu.unwrap_or(Bytes::new(1500));
    let path = upload.rate.map(|found| payload_rate(found.rate_bps, mtu).scaled(REACHED));
    let steady =
        single.filter(|row| row.is_flat || row.out_of_order > 0 || path.is_none()).map(|row| row.payload_bps);
    let Some(rate) = steady.or(path) else { return };
    let of_path = upload
        .rate
        .and_then(|found| found.range)
        .map(|range| RateRange { least_bps: rate, most_bps: payload_rate(range.most_bps, mtu) });
    let of_single = single.and_then(|row| row.range);
    let range = if steady.is_some() { of_single } else { of_path.or(of_single) };
    let forecast = transfer_time(rate, range, evidence, 1);
    verdict.put = PutForecast {
        rate_bps: Some(rate).filter(|_| forecast.total.is_some()),
        seconds: forecast.total,
        range: forecast.range,
    };
    verdict.arithmetic.extend(forecast.arithmetic.map(|line| format!("put, {line}")));
}

/// The time of the file, and its arithmetic.
#[derive(Default)]
struct Forecast {
    total: Option<Duration>,
    range: Option<ForecastRange>,
    arithmetic: Option<String>,
}

/// Returns the time of the file at a rate that has these bounds if it was not steady.
fn transfer_time(rate: Rate, bounds: Option<RateRange>, evidence: &Evidence<'_>, streams: u32) -> Forecast {
    if rate.as_bits_per_sec() == 0 {
        return Forecast::default();
    }
    let (rtt, size) = (evidence.rtt.unwrap_or_default(), evidence.size);
    let doublings = (rate.bdp(rtt).get() as f64 / INITIAL_WINDOW / f64::from(streams)).max(1.0).log2();
    // Each round of slow start sends half of the next, so all rounds together send about one BDP, as one RTT at the
    // full rate does.
    let ramp = rtt.get().mul_f64(doublings.ceil() + 1.0);
    let total = ramp + rate.time_for(size);
    let range = bounds.map(|rate| ForecastRange {
        rate,
        least_seconds: ramp.saturating_add(rate.most_bps.time_for(size)),
        most_seconds: (rate.least_bps > Rate::default())
            .then(|| ramp.saturating_add(rate.least_bps.time_for(size))),
    });
    let (rate, time) = match range {
        Some(range) => (format!("({})", range.rate), range.to_string()),
        None => (rate.to_string(), format!("{:.1} s", total.as_secs_f64())),
    };
    let arithmetic = format!(
        "{size}: {size} / {rate} + {:.1} s of connecting and slow start ({:.0} round trips) = {time}",
        ramp.as_secs_f64(),
        doublings.ceil() + 1.0,
    );
    Forecast { total: Some(total), range, arithmetic: Some(arithmetic) }
}

#[cfg(test)]
mod tests;
