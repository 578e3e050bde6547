//! Measures an HTTP server: its capabilities, and the throughput of its connections.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use longhaul_core::probe::message::{MEASURE_PATH, PROBE_HEADER};
use longhaul_core::proto::http::{ContentRange, HeaderField, RangeRequest, ResponseHead};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::{Client, HttpError};

use super::ProbeError;
use super::endpoint;
use super::findings::Findings;
use super::rtt;
use super::sweep;
use super::target::{REACH, reach};
use super::tcp_flows::{BodySource, FlowPlan, FlowResult, receive};

/// The number of connections that a single one is compared with.
pub(super) const SEVERAL: u32 = 4;
/// A smaller file ends during slow start.
const MIN_FILE: Bytes = Bytes::mib(1);
/// The shares of the budget for one connection and for several; the rest covers bytes that arrive
/// after a measurement has ended.
const ONE_SHARE: f64 = 0.5;
const SEVERAL_SHARE: f64 = 0.4;
/// The timeout for the head of a response.
const HEAD: Duration = Duration::from_secs(5);

/// Measures the server; our own server by its measurement endpoint.
///
/// # Errors
/// [`ProbeError::Http`] if the server answers no request.
pub(super) fn measure(findings: &mut Findings<'_>, url: &Url) -> Result<(), ProbeError> {
    let mut config = findings.options.client.clone();
    config.requests.headers.push(probe_number()?);
    config.timeouts.connect = config.timeouts.connect.min(HEAD);
    config.timeouts.head = config.timeouts.head.min(HEAD);
    let client = Client::new(config)?;
    findings.begin("what the server can do");
    let cancel = Cancel::new();
    // One byte of the file shows whether ranges are supported, and the file's size.
    let range = RangeRequest::of(ByteRange::new(0, 1));
    let url = match client.open(url, range.as_ref(), &cancel) {
        Ok(opened) => {
            describe(findings, &opened.head);
            follow(findings, url, opened.target.url())?;
            opened.target.url().clone()
        }
        Err(HttpError::RangeNotSatisfiable { total, .. }) => {
            findings.report.server.ranges = Some(true);
            findings.report.server.size = total;
            url.clone()
        }
        Err(HttpError::Status { status, reason, .. }) => {
            findings.miss(format!(
                "the file: the server answers {status} {reason}; name one that can be fetched"
            ));
            url.clone()
        }
        Err(error) => return Err(error.into()),
    };
    findings.report.server.protocol = url.scheme().to_owned();
    if let Some(offer) = endpoint::find(findings, &client, &url.join(MEASURE_PATH).unwrap_or(url.clone()))? {
        return endpoint::measure(findings, &client, &url, &offer);
    }
    if findings.options.upload {
        findings.miss("upload: only `longhaul serve --measure` and iperf3 servers receive measurements");
        return Ok(());
    }
    findings.miss(
        "UDP and the path's queue and loss: only `longhaul serve --measure` and iperf3 servers answer with UDP; they would have shown what the path holds",
    );
    let has_ranges = findings.report.server.ranges == Some(true);
    throughput(findings, &client, &url, has_ranges)
}

/// Creates the header by which an endpoint distinguishes probes of one address.
fn probe_number() -> Result<HeaderField, HttpError> {
    // `RandomState` has random keys. Zero would mean no probe.
    let number = RandomState::new().hash_one(PROBE_HEADER) | 1;
    Ok(HeaderField::new(PROBE_HEADER, &format!("{number:x}"))?)
}

/// Measures one connection, several if a range of the file can be requested, and with `--full` the
/// sweeps.
///
/// # Errors
/// The error of the first connection.
pub(super) fn throughput(
    findings: &mut Findings<'_>,
    source: &dyn BodySource,
    url: &Url,
    has_ranges: bool,
) -> Result<(), ProbeError> {
    let Some(size) = findings.report.server.size.filter(|size| *size >= MIN_FILE) else {
        let has =
            findings.report.server.size.map_or_else(|| "an unknown size".to_owned(), |size| size.to_string());
        findings.miss(format!(
            "TCP throughput: the file has {has}, and slow start takes more than {MIN_FILE}; name a larger one"
        ));
        return Ok(());
    };
    let size = Some(size).filter(|_| has_ranges);
    findings.begin("TCP, one connection");
    let plan = |findings: &Findings<'_>, streams, share| FlowPlan {
        size,
        bytes: MIN_FILE,
        filling: Some(findings.budget.filling_time(share)),
        ..FlowPlan::new(findings, url.clone(), streams)
    };
    let one = receive(source, &plan(findings, 1, ONE_SHARE));
    let mut several = FlowResult::default();
    take(findings, &one, 1);
    if size.is_some() {
        findings.begin("TCP, several connections");
        several = receive(source, &plan(findings, SEVERAL, SEVERAL_SHARE));
        take(findings, &several, SEVERAL);
        findings.compare(one.window);
    }
    if findings.options.full {
        sweep::measure(findings, source, &plan(findings, 1, ONE_SHARE), None)?;
    }
    one.failure.or(several.failure).map_or(Ok(()), Err)
}

/// Measures the RTT to the host that a redirect led to, in place of the RTT to the first host.
fn follow(findings: &mut Findings<'_>, from: &Url, to: &Url) -> Result<(), ProbeError> {
    if from.host() == to.host() {
        return Ok(());
    }
    let address = reach(to, REACH)?;
    findings.move_to(to, address);
    rtt::measure(findings, address, rtt::HANDSHAKES)
}

fn describe(findings: &mut Findings<'_>, head: &ResponseHead) {
    let server = &mut findings.report.server;
    server.software = head.text("server").map(|name| name.escape_debug().to_string());
    server.ranges = Some(head.status() == 206);
    server.size = match head.content_range() {
        Some(ContentRange::Part { total, .. }) => total,
        _ => head.content_length().filter(|_| head.status() != 206),
    };
    if head.validator().is_some() {
        server.features.push("a strong validator".to_owned());
    }
    if head.keeps_alive() {
        server.features.push("keep-alive".to_owned());
    }
}

/// Records the result of `streams` connections.
pub(super) fn take(findings: &mut Findings<'_>, flows: &FlowResult, streams: u32) {
    findings.budget.used += flows.bytes();
    if findings.report.path.mtu.is_none() {
        findings.report.path.mtu = flows.mtu;
    }
    let row = flows.row(streams);
    if row.payload_bps > Rate::default() {
        findings.report.tcp.push(row);
        if let Some(silence) = flows.silence {
            findings.miss(format!(
                "the end of TCP with {streams} connections, which was cut short: nothing came in the last {silence:?}, as after heavy loss; its rate is a lower bound"
            ));
        } else {
            findings.take_burst(flows.burst(), flows.out_of_order);
        }
    } else if flows.failure.is_none() {
        findings.miss_rate(format!(
            "TCP with {streams} connections: too little arrived in the time that was left; see --full"
        ));
    }
}
