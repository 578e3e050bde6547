//! `--full`: TCP by number of connections, by size of the socket buffer, by congestion control.

use longhaul_core::probe::message::MeasureOffer;
use longhaul_core::units::Bytes;

use super::error::ProbeError;
use super::findings::Findings;
use super::tcp_flows::{BodySource, FlowPlan, receive};

/// Numbers of connections; one and four are part of every probe.
const STREAMS: [u32; 3] = [2, 8, 16];
/// Socket buffer sizes: those of the paper's figure, and larger ones for today's paths.
const BUFFERS: [Bytes; 6] =
    [Bytes::kib(64), Bytes::kib(256), Bytes::mib(1), Bytes::mib(2), Bytes::mib(8), Bytes::mib(64)];

/// Sweeps the settings of the client alone: number of connections (if the server supports ranges)
/// and receive buffer.
///
/// # Errors
/// [`ProbeError::Http`] if a client cannot be created.
pub(super) fn plain_server(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    plan: &FlowPlan,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    if plan.size.is_some() {
        by_streams(findings, source, plan, progress);
    }
    for buffer in BUFFERS {
        progress(&format!("TCP with a buffer of {buffer}"));
        row(findings, &*source.with_buffer(buffer)?, plan, Some(buffer), None);
    }
    Ok(())
}

/// Sweeps also the settings of the measurement endpoint: its send buffer and congestion control.
///
/// # Errors
/// [`ProbeError::Http`] if a client cannot be created.
pub(super) fn own_server(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    offer: &MeasureOffer,
    plan: impl Fn(&Findings<'_>) -> FlowPlan,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    let base = plan(findings);
    by_streams(findings, source, &base, progress);
    for buffer in BUFFERS {
        progress(&format!("TCP with buffers of {buffer}"));
        row(
            findings,
            &*source.with_buffer(buffer)?,
            &with(&base, "send_buffer", &buffer.get().to_string()),
            Some(buffer),
            None,
        );
    }
    for name in &offer.congestion {
        progress(&format!("TCP with {name}"));
        row(findings, source, &with(&base, "congestion", name), None, Some(name));
    }
    Ok(())
}

fn with(plan: &FlowPlan, name: &str, value: &str) -> FlowPlan {
    let mut plan = plan.clone();
    plan.url.query_pairs_mut().append_pair(name, value);
    plan
}

fn by_streams(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    plan: &FlowPlan,
    progress: &dyn Fn(&str),
) {
    for streams in STREAMS {
        progress(&format!("TCP, {streams} connections"));
        row(findings, source, &FlowPlan { streams, ..plan.clone() }, None, None);
    }
    findings.report.tcp.sort_by_key(|row| row.streams);
}

fn row(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    plan: &FlowPlan,
    buffer: Option<Bytes>,
    congestion: Option<&str>,
) {
    let result = receive(source, plan);
    findings.budget.spend(result.bytes());
    match result.failure {
        Some(ref error) => findings.miss(format!("TCP, {} connections: {error}", plan.streams)),
        None => findings.report.tcp.push(result.row(plan.streams, buffer, congestion)),
    }
}
