//! Measures the upload: sends to the measurement endpoint over TCP, and records acknowledged bytes
//! over time.

use std::io::ErrorKind;
use std::time::Duration;

use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::message::{MeasureOffer, STREAM_PATH};
use longhaul_core::probe::report::{MeasuredRate, RateEvidence, UploadFindings};
use longhaul_core::proto::http::RequestMethod;
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp_info;
use socket2::SockRef;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::{Client, Connection};

use super::ProbeError;
use super::endpoint::endpoint_url;
use super::findings::{Findings, unsteady_path};
use super::http::SEVERAL;
use super::tcp_flows::{FlowPlan, FlowResult, FlowWatch, MeasurementState, together};

/// The minimum sent: 50 ms at 10 Mbit/s.
const FIRST_UPLOAD: Bytes = Bytes::kib(64);
/// Sent before the rate is known, if only the upload is measured: slow start takes four flights to
/// show a rate.
const FIRST_ALONE: Bytes = Bytes::kib(256);
/// The interval between readings of the acknowledged bytes.
const READING: Duration = Duration::from_millis(1);
/// The timeout for the server's interim answer to the request.
const CONSENT: Duration = Duration::from_secs(2);
/// Bytes per write.
const WRITE: usize = 256 << 10;
/// The minimum number of round trips that show a rate: connection, request, and the first of slow
/// start.
const UPLOAD_ROUND_TRIPS: u32 = 6;

/// Measures the upload rate of one connection, and of several if there is time for both directions
/// or only the upload is measured.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
    offer: &MeasureOffer,
) -> Result<(), ProbeError> {
    if !offer.receives {
        findings.miss("upload: the server's version receives no measurements");
        return Ok(());
    }
    let rtt = findings.min_rtt();
    if findings.budget.time_left() < rtt.get() * UPLOAD_ROUND_TRIPS + Duration::from_millis(300) {
        findings.miss_rate("upload: no time was left; see --upload".to_owned());
        return Ok(());
    }
    let url = endpoint_url(url, STREAM_PATH);
    let mut upload = UploadFindings::default();
    let mut burst: Option<Rate> = None;
    let is_thorough = findings.options.upload || findings.options.full;
    let numbers: &[u32] = if is_thorough { &[1, SEVERAL] } else { &[1] };
    let mut failure = None;
    for &streams in numbers {
        findings.begin("TCP upload");
        // Half of the budget for each number of connections, if only the upload is measured.
        let left = findings.budget.bytes_left();
        let filling = left.is_none().then(|| findings.budget.filling_time(0.5));
        let bytes = left.map_or(FIRST_ALONE, |left| left.max(FIRST_UPLOAD));
        let plan = FlowPlan { bytes, filling, ..FlowPlan::new(findings, url.clone(), streams) };
        let most = Bytes::new(offer.stream_bytes);
        let sent = together(&plan, |_, shared, cancel| send(client, &plan, most, shared, cancel));
        findings.budget.used += sent.bytes();
        let row = sent.row(streams);
        if row.payload_bps > Rate::default() {
            upload.tcp.push(row);
            burst = burst.max(sent.burst());
            if filling.is_some() {
                let supported = ip_rate(sent.supported(rtt), findings.mtu());
                findings.budget.set_rate(supported);
            }
        }
        failure = failure.or(sent.failure);
    }
    upload.rate = choose_rate(&upload, burst, findings.mtu());
    if upload.tcp.is_empty() && failure.is_none() {
        findings
            .miss_rate("upload: nothing was acknowledged in the time that was left; see --upload".to_owned());
    } else {
        findings.report.upload = Some(upload).filter(|upload| !upload.tcp.is_empty());
    }
    failure.map_or(Ok(()), Err)
}

/// Chooses the highest rate measured: within bursts, or the steady rate of several connections.
fn choose_rate(upload: &UploadFindings, burst: Option<Rate>, mtu: Bytes) -> Option<MeasuredRate> {
    let steady = upload.tcp.iter().map(|row| row.payload_bps).max()?;
    let burst = burst.filter(|burst| *burst >= steady);
    let evidence = if burst.is_some() { RateEvidence::TcpBursts } else { RateEvidence::TcpSteady };
    let rate_bps = ip_rate(burst.unwrap_or(steady), mtu);
    // Retransmits that depressed a row also make a burst's rate doubtful.
    let had_losses = upload.tcp.iter().any(|row| row.out_of_order > 0 && !row.is_flat);
    let range = burst.and_then(|_| unsteady_path(&upload.tcp, rate_bps, mtu));
    Some(MeasuredRate { rate_bps, evidence, is_lower_bound: burst.is_none() || had_losses, range })
}

/// Sends over one connection until the connections together have shown enough; nothing if the
/// server does not consent in time.
fn send(
    client: &Client,
    plan: &FlowPlan,
    most: Bytes,
    shared: &MeasurementState,
    cancel: &Cancel,
) -> Result<FlowResult, ProbeError> {
    let mut target = client.target(&plan.url)?;
    let mut connection = client.connect(&mut target, cancel)?;
    connection.send(RequestMethod::Put { length: most, expects: true })?;
    if connection.await_continue(CONSENT)? {
        return Ok(fill(connection, plan, shared, cancel));
    }
    let head = connection.read_head()?;
    connection.check_status(&head)?;
    Ok(FlowResult::default())
}

/// Keeps the connection full, and records acknowledged bytes.
fn fill(
    mut connection: Connection,
    plan: &FlowPlan,
    shared: &MeasurementState,
    cancel: &Cancel,
) -> FlowResult {
    let mut result = FlowResult::default();
    let Ok(socket) = connection.socket().try_clone() else { return result };
    let acknowledged =
        || tcp_info::read(&socket).ok().and_then(|info| info.bytes_acked()).unwrap_or_default();
    let (before, mut seen) = (acknowledged(), Bytes::ZERO);
    let mut watch = FlowWatch::new(plan, shared);
    let is_over = || shared.is_stopped() || cancel.is_cancelled();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&mut connection, plan, &is_over));
        while !is_over() && !writer.is_finished() {
            let now = acknowledged().saturating_sub(before);
            watch.record(now.saturating_sub(seen).get());
            seen = now;
            std::thread::sleep(READING);
        }
        // Discards the send queue and ends the writer's wait.
        let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    });
    if let Ok(info) = tcp_info::read(&socket) {
        let sent = info.tcpi_bytes_sent().map_or(Bytes::ZERO, Bytes::new);
        result.unacknowledged = sent.saturating_sub(before + seen);
        result.out_of_order = info.tcpi_total_retrans().unwrap_or(0);
        result.mtu = info.tcpi_pmtu().map(Bytes::new);
    }
    result.flows.push(watch.finish());
    result
}

/// Writes the plan's bytes, or without end while the rate is unknown; a failure shows as an end of
/// acknowledgements.
fn write(connection: &mut Connection, plan: &FlowPlan, is_over: &dyn Fn() -> bool) {
    let bytes = vec![0x5a; WRITE];
    // While the rate is unknown, the measurement ends by `is_over`, not by a byte count.
    let mut left = if plan.filling.is_some() { usize::MAX } else { plan.bytes.as_usize() };
    let mut pending: &[u8] = &[];
    while !is_over() {
        if pending.is_empty() {
            pending = &bytes[..left.min(WRITE)];
            left -= pending.len();
        }
        if pending.is_empty() {
            // The measurement ends once all is acknowledged.
            std::thread::sleep(READING);
            continue;
        }
        match connection.send_body(&mut pending) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::debug!("the upload of a measurement ended: {error}");
                return;
            }
        }
    }
}
