//! Measures iperf3 servers by running the program iperf3.

mod program;

use std::time::Duration;

use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::iperf3::Iperf3Error;
use longhaul_core::probe::packet_train::udp_headers;
use longhaul_core::probe::report::{
    CeilingSource, MeasuredRate, RateEvidence, TcpRow, UdpCeiling, UploadFindings,
};
use longhaul_core::probe::train_search::loss_train;
use longhaul_core::units::{Bytes, Rate};
use url::Url;

use super::ProbeError;
use super::findings::Findings;
use program::{Iperf3, TestDirection, WHOLE};

/// The length of a UDP test in seconds. A test bounded by bytes would not end if packets are lost.
const UDP_SECONDS: u32 = 1;
/// From this RTT on, TCP tests are bounded by time: slow start to 1 Gbit/s takes ten round trips,
/// 0.2 s.
const MIN_TIMED_RTT: Duration = Duration::from_millis(20);
/// The bytes of the first TCP test, and the factor for each further test, within the budget.
const FIRST_TEST: Bytes = Bytes::kib(128);
const GROWTH: u64 = 4;
/// The round trips of a test beside its data: two connections, options, start, end, results.
const TEST_ROUND_TRIPS: u32 = 8;
/// The ceiling of UDP relative to TCP's best rate: high enough to reach the path's limit, low
/// enough not to flood it.
const UDP_SHARE: f64 = 1.05;
/// The minimum TCP rate for a UDP test: iperf3 takes a rate of zero for no limit.
const MIN_UDP_RATE: Rate = Rate::bits_per_sec(10_000);

/// The message sizes, buffer sizes, numbers of streams and congestion controls of `--full`.
const MESSAGES: [u64; 2] = [64, 1024];
const BUFFERS: [Bytes; 4] = [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2)];
const STREAMS: [u32; 3] = [2, 8, 16];
const CONTROLS: [&str; 3] = ["cubic", "bbr", "reno"];

/// Measures the download (`-R`), then the upload.
///
/// # Errors
/// [`ProbeError::Failed`] if iperf3 cannot be run, or fails.
pub(super) fn measure(findings: &mut Findings<'_>, url: &Url) -> Result<(), ProbeError> {
    "iperf3".clone_into(&mut findings.report.server.protocol);
    let iperf3 = Iperf3 { host: url.host_str().unwrap_or_default(), port: url.port().unwrap_or_default() };
    let measured =
        if findings.options.upload { upload(findings, &iperf3) } else { measure_both(findings, &iperf3) };
    Ok(measured.map_err(|error| iperf3.failure(&error))?)
}

fn measure_both(findings: &mut Findings<'_>, iperf3: &Iperf3<'_>) -> Result<(), Iperf3Error> {
    findings.begin("TCP, one connection");
    let one = iperf3.one(findings, TestDirection::Download)?;
    let mut best = one.payload_bps;
    findings.report.tcp.push(one);
    findings.begin("TCP, several connections");
    if let Some(several) = iperf3.several(findings, TestDirection::Download)? {
        best = best.max(several.payload_bps);
        findings.report.tcp.push(several);
        findings.compare(None);
    }
    if best < MIN_UDP_RATE {
        findings.miss("UDP: TCP moved next to nothing, so there is no rate to pace it by; iperf3 takes a rate of 0 for none");
        return Ok(());
    }
    findings.begin("UDP");
    let ceiling = ip_rate(best, findings.mtu()).scaled(UDP_SHARE);
    let ceiling = UdpCeiling::lower(findings.options.ceiling, ceiling, CeilingSource::Tcp);
    findings.report.udp_ceiling = Some(ceiling);
    let headers = udp_headers(findings.address.ip());
    let time = Duration::from_secs(u64::from(UDP_SECONDS));
    let mut passes_udp = true;
    if has_time(findings, UDP_SECONDS, "UDP") {
        let train = loss_train(best.min(ceiling.rate_bps), time, headers);
        let rate = Rate::over(train.bytes(headers), time).min(ceiling.rate_bps);
        passes_udp = iperf3.udp(findings, train.message, rate, true)?;
    }
    findings.miss("the queue: iperf3 does not report packet arrival times");
    // A failed upload does not invalidate the measurements of the download.
    if let Err(error) = upload(findings, iperf3) {
        findings.miss(format!("upload: {}", iperf3.failure(&error)));
    }
    if findings.options.full {
        if passes_udp {
            sweep_udp(findings, iperf3, ceiling.rate_bps)?;
        }
        sweep_tcp(findings, iperf3)?;
    }
    Ok(())
}

/// Returns whether a TCP test lasts [`TCP_SECONDS`]. From [`MIN_TIMED_RTT`] on, slow start takes a
/// tenth of the path's traffic, and a test bounded by bytes shows far too low a rate.
fn takes_seconds(findings: &Findings<'_>) -> bool {
    findings.options.full || findings.min_rtt().get() >= MIN_TIMED_RTT
}

/// Returns whether another test of `seconds` ends in time; records a missing measurement if not.
fn has_time(findings: &mut Findings<'_>, seconds: u32, what: &str) -> bool {
    let needed = findings.min_rtt().get() * TEST_ROUND_TRIPS + Duration::from_secs(u64::from(seconds));
    let has_time = findings.budget.time_left() > needed;
    if !has_time {
        findings.miss_rate(format!("{what}: no time was left; see --full"));
    }
    has_time
}

/// Measures the upload; also with several connections if the upload has all of the time.
fn upload(findings: &mut Findings<'_>, iperf3: &Iperf3<'_>) -> Result<(), Iperf3Error> {
    findings.begin("TCP upload");
    if !has_time(findings, 0, "upload") {
        return Ok(());
    }
    let mut tcp = vec![iperf3.one(findings, TestDirection::Upload)?];
    if findings.options.upload || findings.options.full {
        tcp.extend(iperf3.several(findings, TestDirection::Upload)?);
    }
    let best = tcp.iter().map(|row| row.payload_bps).max().unwrap_or_default();
    let rate_bps = ip_rate(best, findings.mtu());
    let rate = Some(MeasuredRate::new(rate_bps, RateEvidence::TcpSteady, true));
    findings.report.upload = Some(UploadFindings { tcp, rate });
    Ok(())
}

/// Sweeps message sizes, including that of the path's MTU.
fn sweep_udp(findings: &mut Findings<'_>, iperf3: &Iperf3<'_>, rate: Rate) -> Result<(), Iperf3Error> {
    let largest = findings.mtu().saturating_sub(udp_headers(findings.address.ip()));
    for message in MESSAGES.map(Bytes::new).into_iter().chain([largest]) {
        findings.begin(&format!("UDP with messages of {} bytes", message.get()));
        if !iperf3.udp(findings, message, rate, false)? {
            break;
        }
    }
    Ok(())
}

/// Sweeps numbers of streams, sizes of buffers and congestion controls.
fn sweep_tcp(findings: &mut Findings<'_>, iperf3: &Iperf3<'_>) -> Result<(), Iperf3Error> {
    for streams in STREAMS {
        findings.begin(&format!("TCP, {streams} connections"));
        let row = iperf3.tcp(findings, WHOLE, TestDirection::Download, &["-P", &streams.to_string()])?;
        findings.report.tcp.push(TcpRow { streams, ..row });
    }
    for buffer in BUFFERS {
        findings.begin(&format!("TCP with buffers of {buffer}"));
        let row = iperf3.tcp(findings, WHOLE, TestDirection::Download, &["-w", &buffer.get().to_string()])?;
        findings.report.tcp.push(TcpRow { buffer: Some(buffer), ..row });
    }
    for name in CONTROLS {
        findings.begin(&format!("TCP with {name}"));
        match iperf3.tcp(findings, WHOLE, TestDirection::Download, &["-C", name]) {
            Ok(row) => findings.report.tcp.push(TcpRow { congestion: Some(name.to_owned()), ..row }),
            Err(Iperf3Error::Refused(why)) => findings.miss(format!("TCP with {name}: {why}")),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
