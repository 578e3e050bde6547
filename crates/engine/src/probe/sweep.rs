//! `--full`: TCP by number of connections, by size of the socket buffer, by congestion control.

use longhaul_core::probe::message::MeasureOffer;
use longhaul_core::probe::report::TcpRow;
use longhaul_core::units::Bytes;

use super::ProbeError;
use super::findings::Findings;
use super::tcp_flows::{BodySource, FlowPlan, receive};

/// Numbers of connections; one and four are part of every probe.
const STREAMS: [u32; 3] = [2, 8, 16];
/// Socket buffer sizes: those of the paper's figure, and larger ones for today's paths.
const BUFFERS: [Bytes; 6] =
    [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2), Bytes::mib(8), Bytes::mib(64)];

/// Sweeps the settings of the client: number of connections (if the server supports ranges) and
/// receive buffer; with the `offer` of a measurement endpoint also its send buffer and congestion
/// control.
///
/// # Errors
/// [`ProbeError::Http`] if a client cannot be created.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    plan: &FlowPlan,
    offer: Option<&MeasureOffer>,
) -> Result<(), ProbeError> {
    if plan.size.is_some() || offer.is_some() {
        for streams in STREAMS {
            findings.begin(&format!("TCP, {streams} connections"));
            row(findings, source, &FlowPlan { streams, ..plan.clone() }, None, None);
        }
        findings.report.tcp.sort_by_key(|row| row.streams);
    }
    let with = |name, value: &str| {
        let mut plan = plan.clone();
        plan.url.query_pairs_mut().append_pair(name, value);
        plan
    };
    for buffer in BUFFERS {
        findings.begin(&format!("TCP with a buffer of {buffer}"));
        let requested = offer.map(|_| with("send_buffer", &buffer.get().to_string()));
        row(findings, &*source.with_buffer(buffer)?, requested.as_ref().unwrap_or(plan), Some(buffer), None);
    }
    for name in offer.into_iter().flat_map(|offer| &offer.congestion) {
        findings.begin(&format!("TCP with {name}"));
        row(findings, source, &with("congestion", name), None, Some(name));
    }
    Ok(())
}

fn row(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    plan: &FlowPlan,
    buffer: Option<Bytes>,
    congestion: Option<&str>,
) {
    let result = receive(source, plan);
    findings.budget.used += result.bytes();
    match result.failure {
        Some(ref error) => findings.miss(format!("TCP, {} connections: {error}", plan.streams)),
        None => findings.report.tcp.push(TcpRow {
            buffer,
            congestion: congestion.map(str::to_owned),
            ..result.row(plan.streams)
        }),
    }
}
