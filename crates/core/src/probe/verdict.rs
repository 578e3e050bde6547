//! The conclusions of a probe: the settings that `get` will use, the time of a transfer, and advice
//! for both hosts.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::buffer_plan::{LARGEST_WINDOW, window_ceiling};
use crate::units::{Bytes, Rate, Rtt, seconds};

use super::flow_rate::{RateRange, payload_rate};
use super::packet_train::per_cent;
use super::report::{CeilingSource, ProbeReport, TcpRow, UdpCeiling};
use super::server_limits::ServerLimit;

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

/// Returns the rate to which random loss limits one Reno connection: MSS / RTT x sqrt(3/2) /
/// sqrt(p) (Mathis et al., 1997).
pub fn loss_ceiling(rtt: Rtt, loss: f64) -> Option<Rate> {
    let seconds = rtt.get().as_secs_f64();
    (loss > 0.0 && seconds > 0.0)
        .then(|| Rate::bits_per_sec((MSS as f64 * 8.0 / seconds * 1.5_f64.sqrt() / loss.sqrt()) as u64))
}

/// Derives the verdict on transfers of `size`. `tcp_rmem_max` is the largest receive buffer of this
/// host's kernel (`tcp_rmem[2]`).
pub fn conclude(report: &ProbeReport, tcp_rmem_max: Option<Bytes>, size: Bytes) -> Verdict {
    let mut verdict = Verdict { streams: 1, size, ..Verdict::default() };
    // Without ranges, `get` uses one connection.
    let has_ranges = report.server.ranges != Some(false);
    let path = report.path.rate.map(|found| payload_rate(found.rate_bps, report.mtu()));
    if let (Some(path), Some(rtt)) = (path, report.min_rtt()) {
        let bdp = path.bdp(rtt);
        verdict.arithmetic.push(format!("BDP: {path} x {rtt} = {bdp} in flight fill the path"));
        let window = Bytes::new((bdp.get() as f64 * SLACK) as u64);
        verdict.window = Some(window);
        verdict.advice.extend(advise_window(tcp_rmem_max, window));
    }
    let single = limit_of_one(report, path, &mut verdict);
    let best = report.tcp.iter().filter(|row| row.buffer.is_none()).max_by_key(|row| row.payload_bps);
    let reachable = path.map(|path| match report.server.limit {
        Some(ServerLimit::AllConnections { rate }) => rate,
        _ => path.scaled(REACHED),
    });
    match (single, reachable) {
        (Some(single), Some(path)) if single < path && has_ranges => {
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
            verdict.streams = best.map_or(1, |row| if has_ranges { row.streams } else { 1 });
        }
    }
    if !has_ranges {
        verdict.arithmetic.push("without ranges a file comes over one connection".to_owned());
    }
    advise_path(report, &mut verdict);
    advise_ceiling(report.udp_ceiling, &mut verdict);
    forecast_get(report, &mut verdict);
    forecast_put(report, &mut verdict);
    verdict
}

/// Returns the rate to which a limit other than the path restricts one connection, and explains the
/// limit.
fn limit_of_one(report: &ProbeReport, path: Option<Rate>, verdict: &mut Verdict) -> Option<Rate> {
    let single = report.tcp.iter().find(|row| row.streams == 1 && row.buffer.is_none());
    let single = single.map(|row| row.payload_bps);
    let rtt = report.min_rtt();
    let (arithmetic, advice, rate) = match report.server.limit? {
        ServerLimit::SendBuffer { in_flight } => {
            let rate = single?;
            let needed = path.zip(rtt).map(|(path, rtt)| path.bdp(rtt));
            let size = needed.map_or_else(|| "the path's BDP".to_owned(), |needed| needed.to_string());
            let arithmetic = format!(
                "one connection: {rate} x RTT = {in_flight} in flight, flat and without loss: the server's send buffer"
            );
            let advice = format!(
                "server: raise net.ipv4.tcp_wmem's maximum to twice {size} (and let its program set no SO_SNDBUF): one stream then fills the path"
            );
            (arithmetic, advice, Some(rate))
        }
        ServerLimit::SendBufferOrRate { in_flight, rate } => (
            format!(
                "one connection: {rate} x RTT = {in_flight} in flight, flat and without loss: the server's send buffer, or a rate limit of each connection"
            ),
            "server: raise its rate limit of a connection (as nginx's limit_rate) or, where it has none, net.ipv4.tcp_wmem's maximum; or use streams".to_owned(),
            Some(rate),
        ),
        ServerLimit::PerConnection { rate } => (
            format!("each connection holds {rate}, several hold several times that"),
            "server: it limits the rate of each connection (as nginx's limit_rate does): raise that, or use streams".to_owned(),
            Some(rate),
        ),
        ServerLimit::Ceiling { rate } => (
            format!(
                "the server allows measurements {rate} now, all of their clients share its ceiling: the path may hold more"
            ),
            "server: raise the ceiling of serve --measure=RATE, or probe when no other client does".to_owned(),
            None,
        ),
        ServerLimit::AllConnections { rate } => (
            format!("all connections together hold {rate}, and the path far more: more streams gain nothing"),
            "server: something that all connections share limits them: a rate limit, its disk or its CPU, or this host's CPU".to_owned(),
            None,
        ),
        ServerLimit::ReceiveWindow { window } => {
            let rtt = rtt?;
            let rate = window_ceiling(window, rtt);
            verdict.arithmetic.push(format!("this host's window: {window} / {rtt} = {rate} a stream"));
            return Some(rate);
        }
        ServerLimit::Loss => return single,
        ServerLimit::Shared | ServerLimit::Growing => return None,
    };
    verdict.arithmetic.push(arithmetic);
    verdict.advice.push(advice);
    rate
}

/// Returns why a window does not fit, if it does not.
fn advise_window(tcp_rmem_max: Option<Bytes>, window: Bytes) -> Option<String> {
    if window > LARGEST_WINDOW {
        return Some(format!(
            "path: TCP announces at most {LARGEST_WINDOW} of window (RFC 7323): one stream cannot fill it"
        ));
    }
    // With small packets, half of a receive buffer is window (tcp_adv_win_scale = 1).
    let buffer = window * 2;
    tcp_rmem_max.filter(|most| *most < buffer).map(|most| {
        format!(
            "this host: tcp_rmem's maximum is {most}, a window of {window} needs {buffer}: sysctl -w net.ipv4.tcp_rmem='4096 131072 {}'",
            buffer.get()
        )
    })
}

/// Explains the loss and the queue of the path.
fn advise_path(report: &ProbeReport, verdict: &mut Verdict) {
    /// The least loss that slows a modern congestion control on ordinary paths.
    const NOTABLE: f64 = 1e-5;
    /// The least delay of a full queue, if longer than the RTT, that counts as bufferbloat.
    const BLOATED: Duration = Duration::from_millis(200);
    let (path, Some(rtt)) = (&report.path, report.min_rtt()) else { return };
    if let Some(loss) = path.loss.filter(|loss| loss.share > NOTABLE && loss.lost > 0)
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
    if let (Some(queue), Some(found)) = (path.queue.filter(|queue| !queue.is_lower_bound), path.rate) {
        let bdp = found.rate_bps.bdp(rtt);
        let delay_ms = queue.delay.as_secs_f64() * 1e3;
        verdict.arithmetic.push(format!(
            "queue: {} hold {delay_ms:.1} ms of the path's rate, {:.2} BDP",
            queue.bytes,
            queue.bytes.get() as f64 / bdp.get().max(1) as f64
        ));
        if queue.bytes.get() * 2 < bdp.get() {
            verdict.advice.push(
                "server: the queue is short of half a BDP: pace the sender (serve --pace auto), or bursts are lost".to_owned(),
            );
        } else if queue.delay > BLOATED && queue.delay > rtt.get() {
            verdict.advice.push(format!(
                "path: a full queue adds {delay_ms:.0} ms to every connection; pacing below the path's rate keeps it empty"
            ));
        }
    }
}

/// Adds that the user's ceiling of UDP, and not the path, set the rate that was found.
fn advise_ceiling(ceiling: Option<UdpCeiling>, verdict: &mut Verdict) {
    let is_set = |ceiling: &UdpCeiling| ceiling.is_reached && ceiling.set_by == CeilingSource::Option;
    if let Some(UdpCeiling { rate_bps: rate, .. }) = ceiling.filter(is_set) {
        verdict.arithmetic.push(format!("UDP reached {rate}, its --ceiling: the path may hold more"));
        let advice = format!("this host: raise or leave out --ceiling (now {rate}), to find the path's rate");
        verdict.advice.push(advice);
    }
}

/// Adds the forecast of a `get`.
fn forecast_get(report: &ProbeReport, verdict: &mut Verdict) {
    let Some(rate) = verdict.rate_bps else { return };
    let bounds = unsteady_rate(rate, report);
    if let Some(forecast) = Forecast::of(rate, bounds, report, (verdict.size, verdict.streams)) {
        (verdict.seconds, verdict.range) = (Some(forecast.total), forecast.range);
        verdict.arithmetic.push(forecast.arithmetic);
    }
}

/// Returns the bounds of the rate of a `get` if no connection was steady: the highest rate of TCP,
/// and the path's.
fn unsteady_rate(rate: Rate, report: &ProbeReport) -> Option<RateRange> {
    let plain = || report.tcp.iter().filter(|row| row.is_plain());
    let reached = plain().map(|row| row.payload_bps).max()?;
    let path = report.path.rate.map(|found| found.range.map_or(found.rate_bps, |range| range.most_bps));
    let most = path
        .map(|path| payload_rate(path, report.mtu()))
        .or(plain().filter_map(|row| row.range).map(|range| range.most_bps).max());
    let is_steady = plain().any(|row| row.is_flat);
    most.filter(|_| !is_steady)
        .map(|most| RateRange { least_bps: reached.min(rate), most_bps: most.max(rate) })
}

/// Adds the forecast of a `put`: at the rate of one connection if that was steady or had losses,
/// else at its burst rate.
fn forecast_put(report: &ProbeReport, verdict: &mut Verdict) {
    let Some(upload) = &report.upload else { return };
    let single = upload.tcp.iter().find(|row| row.streams == 1);
    let payload = |rate| payload_rate(rate, report.mtu());
    let path = upload.rate.map(|found| payload(found.rate_bps).scaled(REACHED));
    let is_steady = |row: &&TcpRow| row.is_flat || row.out_of_order > 0 || path.is_none();
    let steady = single.filter(is_steady).map(|row| row.payload_bps);
    let Some(rate) = steady.or(path) else { return };
    let of_path = upload
        .rate
        .and_then(|found| found.range)
        .map(|range| RateRange { least_bps: rate, most_bps: payload(range.most_bps) });
    let of_single = single.and_then(|row| row.range);
    let bounds = if steady.is_some() { of_single } else { of_path.or(of_single) };
    if let Some(forecast) = Forecast::of(rate, bounds, report, (verdict.size, 1)) {
        let seconds = Some(forecast.total);
        verdict.put = PutForecast { rate_bps: Some(rate), seconds, range: forecast.range };
        verdict.arithmetic.push(format!("put, {}", forecast.arithmetic));
    }
}

/// The time of a file: ramp-up, then the rate.
struct Forecast {
    total: Duration,
    range: Option<ForecastRange>,
    arithmetic: String,
}

impl Forecast {
    /// Computes the time of a file of `size` over `streams` at a rate that has these bounds if it
    /// was not steady; `None` for a rate of zero.
    fn of(
        rate: Rate,
        bounds: Option<RateRange>,
        report: &ProbeReport,
        (size, streams): (Bytes, u32),
    ) -> Option<Self> {
        if rate == Rate::default() {
            return None;
        }
        let rtt = report.min_rtt().unwrap_or_default();
        let doublings = (rate.bdp(rtt).get() as f64 / INITIAL_WINDOW / f64::from(streams)).max(1.0).log2();
        // Each round of slow start sends half of the next, so all rounds together send about one
        // BDP, as one RTT at the full rate does.
        let round_trips = doublings.ceil() + 1.0;
        let ramp = rtt.get().mul_f64(round_trips);
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
            "{size}: {size} / {rate} + {:.1} s of connecting and slow start ({round_trips:.0} round trips) = {time}",
            ramp.as_secs_f64(),
        );
        Some(Self { total, range, arithmetic })
    }
}

#[cfg(test)]
mod tests;
