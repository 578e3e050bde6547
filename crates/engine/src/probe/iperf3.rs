//! Measures iperf3 servers by running the program iperf3.

mod program;

use std::time::Duration;

use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::iperf3::{Iperf3Error, Iperf3Tcp};
use longhaul_core::probe::packet_train::udp_headers;
use longhaul_core::probe::report::{
    CeilingSource, MeasuredRate, RateEvidence, TcpRow, UdpCeiling, UploadFindings,
};
use longhaul_core::probe::server_limits::{ConnectionRates, find_limit};
use longhaul_core::probe::train_search::loss_train;
use longhaul_core::units::{Bytes, Rate};

use super::error::ProbeError;
use super::findings::Findings;
use program::{Direction, Iperf3, WHOLE};

/// The length of a UDP test in seconds. A test bounded by bytes would not end if packets are lost.
const UDP_SECONDS: u32 = 1;
/// From this RTT on, TCP tests are bounded by time: slow start to 1 Gbit/s takes ten round trips,
/// 0.2 s.
const LONG_RTT: Duration = Duration::from_millis(20);
/// The bytes of the first TCP test, and the factor for each further test, within the budget.
const FIRST: Bytes = Bytes::kib(128);
const GROWTH: u64 = 4;
/// The round trips of a test beside its data: two connections, options, start, end, results.
const ROUND_TRIPS: u32 = 8;
/// The ceiling of UDP relative to TCP's best rate: high enough to reach the path's limit, low enough
/// not to flood it.
const UDP_SHARE: f64 = 1.05;
/// The minimum TCP rate for a UDP test: iperf3 takes a rate of zero for no limit.
const MIN_RATE: Rate = Rate::bits_per_sec(10_000);
/// The number of connections that a single one is compared with.
const SEVERAL: u32 = 4;

/// The message sizes, buffer sizes, numbers of streams and congestion controls of `--full`.
const MESSAGES: [u64; 2] = [64, 1024];
const BUFFERS: [Bytes; 4] = [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2)];
const STREAMS: [u32; 3] = [2, 8, 16];
const CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Measures the download (`-R`), then the upload.
///
/// # Errors
/// [`ProbeError::Failed`] if iperf3 cannot be run, [`ProbeError::Iperf3`] if it fails.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    host: &str,
    port: u16,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    "iperf3".clone_into(&mut findings.report.server.protocol);
    let iperf3 = Iperf3 { host, port };
    if findings.options.upload {
        return upload(findings, &iperf3, progress);
    }
    progress("TCP, one connection");
    let one = iperf3.one(findings, Direction::Download)?;
    findings.report.tcp.push(row(&one, 1, None, None));
    progress("TCP, several connections");
    let several = iperf3.several(findings, Direction::Download)?;
    findings.report.tcp.extend(several.iter().map(|several| row(several, SEVERAL, None, None)));
    findings.report.server.limit = several.as_ref().map(|several| {
        find_limit(&ConnectionRates {
            rtt: findings.min_rtt(),
            one: one.received,
            is_flat: one.is_flat,
            connections: SEVERAL,
            several: several.received,
            several_are_flat: several.is_flat,
            window: None,
            tcp_wmem_max: None,
            path: None,
            had_losses: one.retransmits.is_some_and(|count| count > 0),
        })
    });
    let best = several.map_or(one.received, |several| several.received.max(one.received));
    if best < MIN_RATE {
        findings.miss("UDP: TCP moved next to nothing, so there is no rate to pace it by; iperf3 takes a rate of 0 for none");
        return Ok(());
    }
    progress("UDP");
    let ceiling = ip_rate(best, findings.mtu()).scaled(UDP_SHARE);
    let ceiling = UdpCeiling::lower(findings.options.ceiling, ceiling, CeilingSource::Tcp);
    findings.report.udp_ceiling = Some(ceiling);
    let headers = udp_headers(findings.address().ip());
    let time = Duration::from_secs(u64::from(UDP_SECONDS));
    let mut passes_udp = true;
    if has_time(findings, UDP_SECONDS, "UDP") {
        let train = loss_train(best.min(ceiling.rate_bps), time, headers);
        let rate = Rate::over(train.bytes(headers), time).min(ceiling.rate_bps);
        passes_udp = iperf3.udp(findings, train.message, rate, true)?;
    }
    findings.miss("the queue: iperf3 does not report packet arrival times");
    // A failed upload does not invalidate the measurements of the download.
    if let Err(error) = upload(findings, &iperf3, progress) {
        findings.miss(format!("upload: {error}"));
    }
    if findings.options.full {
        if passes_udp {
            sweep_udp(findings, &iperf3, ceiling.rate_bps, progress)?;
        }
        sweep_tcp(findings, &iperf3, progress)?;
    }
    Ok(())
}

/// Returns whether a TCP test lasts [`TCP_SECONDS`]. From [`LONG_RTT`] on, slow start takes a tenth
/// of the path's traffic, and a test bounded by bytes shows far too low a rate.
fn takes_seconds(findings: &Findings<'_>) -> bool {
    findings.options.full || findings.min_rtt().get() >= LONG_RTT
}

/// Returns whether another test of `seconds` ends in time; records a missing measurement if not.
fn has_time(findings: &mut Findings<'_>, seconds: u32, what: &str) -> bool {
    let needed = findings.min_rtt().get() * ROUND_TRIPS + Duration::from_secs(u64::from(seconds));
    let has_time = findings.budget.time_left() > needed;
    if !has_time {
        findings.miss_rate(format!("{what}: no time was left; see --full"));
    }
    has_time
}

/// Measures the upload; also with several connections if the upload has all of the time.
fn upload(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    progress("TCP upload");
    if !has_time(findings, 0, "upload") {
        return Ok(());
    }
    let mut upload = UploadFindings::default();
    let is_thorough = findings.options.upload || findings.options.full;
    let one = iperf3.one(findings, Direction::Upload)?;
    upload.tcp.push(row(&one, 1, None, None));
    if is_thorough {
        let several = iperf3.several(findings, Direction::Upload)?;
        upload.tcp.extend(several.map(|several| row(&several, SEVERAL, None, None)));
    }
    let best = upload.tcp.iter().map(|row| row.payload_bps).max().unwrap_or_default();
    let rate_bps = ip_rate(best, findings.mtu());
    upload.rate = Some(MeasuredRate::new(rate_bps, RateEvidence::TcpSteady, true));
    findings.report.upload = Some(upload);
    Ok(())
}

/// Sweeps message sizes, including that of the path's MTU.
fn sweep_udp(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    rate: Rate,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    let largest = findings.mtu().saturating_sub(udp_headers(findings.address().ip()));
    for message in MESSAGES.map(Bytes::new).into_iter().chain([largest]) {
        progress(&format!("UDP with messages of {} bytes", message.get()));
        if !iperf3.udp(findings, message, rate, false)? {
            break;
        }
    }
    Ok(())
}

/// Sweeps numbers of streams, sizes of buffers and congestion controls.
fn sweep_tcp(
    findings: &mut Findings<'_>,
    iperf3: &Iperf3<'_>,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    for streams in STREAMS {
        progress(&format!("TCP, {streams} connections"));
        let result = iperf3.tcp(findings, WHOLE, Direction::Download, &["-P", &streams.to_string()])?;
        findings.report.tcp.push(row(&result, streams, None, None));
    }
    for buffer in BUFFERS {
        progress(&format!("TCP with buffers of {buffer}"));
        let result = iperf3.tcp(findings, WHOLE, Direction::Download, &["-w", &buffer.get().to_string()])?;
        findings.report.tcp.push(row(&result, 1, Some(buffer), None));
    }
    for name in CONTROLS {
        progress(&format!("TCP with {name}"));
        match iperf3.tcp(findings, WHOLE, Direction::Download, &["-C", name]) {
            Ok(result) => findings.report.tcp.push(row(&result, 1, None, Some(name))),
            Err(ProbeError::Iperf3 { source: Iperf3Error::Refused(why), .. }) => {
                findings.miss(format!("TCP with {name}: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn row(result: &Iperf3Tcp, streams: u32, buffer: Option<Bytes>, name: Option<&str>) -> TcpRow {
    TcpRow {
        streams,
        buffer,
        congestion: name.map(str::to_owned),
        payload_bps: result.received,
        seconds: result.time,
        is_flat: result.is_flat,
        range: (!result.is_flat).then_some(result.range),
        out_of_order: result.retransmits.unwrap_or(0),
    }
}

/// Returns a share of `left`, but at least [`FIRST`] bytes.
fn part(left: Bytes, share: f64) -> Bytes {
    FIRST.max(Bytes::new((left.get() as f64 * share) as u64))
}
