//! Our own server's measurement endpoint: UDP trains for rate, queue and loss, TCP streams of any
//! setting.

mod tcp_streams;
mod udp_trains;

use std::fmt::Display;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::message::{MEASURE_PATH, MeasureOffer, STREAM_PATH, VERSION};
use longhaul_core::units::Bytes;
use serde::de::DeserializeOwned;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::{Client, HttpError};

use super::ProbeError;
use super::findings::Findings;
use super::http::{SEVERAL, take};
use super::sweep;
use super::tcp_flows::receive;
use super::udp_session::UdpSession;
use super::upload;
use tcp_streams::{StreamPlans, beside_echoes, record_loaded_rtt};
use udp_trains::{TrainFindings, measure_losses, measure_rate, open_session, over_udp};

/// The most bytes of a document of the endpoint.
const MAX_ENDPOINT_DOCUMENT: Bytes = Bytes::kib(64);

/// Looks for the endpoint on a server of ours.
pub(super) fn find(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
) -> Result<Option<MeasureOffer>, ProbeError> {
    if findings.report.server.software.as_deref().is_none_or(|name| name != "longhaul") {
        return Ok(None);
    }
    match request::<MeasureOffer>(client, url) {
        Ok(offer) if offer.version == VERSION => Ok(Some(offer)),
        Ok(offer) => {
            let why = format!("its messages have version {}, not {VERSION}", offer.version);
            Err(unusable(url, &why))
        }
        Err(ProbeError::Http(HttpError::Status { status: 404 | 405, .. })) => {
            findings.miss("the measurement endpoint: start the server with `serve --measure`");
            Ok(None)
        }
        Err(ProbeError::Http(HttpError::Status { status: 401 | 403, .. })) => {
            findings.miss("the measurement endpoint: the server requires a token (--token FILE)");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Measures by the endpoint: UDP trains, then TCP streams, then the upload.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
    offer: &MeasureOffer,
) -> Result<(), ProbeError> {
    findings.report.server.measures = true;
    findings.report.server.tcp_wmem_max = offer.tcp_wmem_max.map(Bytes::new);
    findings.report.server.ceiling_bps = Some(offer.ceiling_bps);
    findings.allow(offer.allowed_bps);
    if findings.options.upload {
        let measured = upload::measure(findings, client, url, offer);
        refresh_allowance(findings, client, url);
        return measured;
    }
    let (mut udp, idle) = open_session(findings, client, url, offer.ceiling_bps)?.unzip();
    let mut trains = TrainFindings::default();
    if let Some(session) = &mut udp {
        trains = over_udp(findings, session, measure_rate);
    }
    refresh_allowance(findings, client, url);
    let streams = StreamPlans { url: endpoint_url(url, STREAM_PATH), most: Bytes::new(offer.stream_bytes) };
    // A path that is faster than the trains shows its rate by TCP alone, which then is measured
    // before the losses.
    let is_fast = trains.rate.is_some_and(|found| !found.is_path_limited());
    let run_one = |findings: &mut Findings<'_>, udp: Option<&mut UdpSession>| {
        findings.begin("TCP, one connection");
        let plan = streams.single(findings, trains.rate);
        let (flow, loaded) = beside_echoes(udp, || receive(client, &plan));
        take(findings, &flow, 1);
        record_loaded_rtt(findings, &flow, idle.as_ref(), loaded);
        flow
    };
    let mut first = None;
    if is_fast || trains.rate.is_none() {
        let one = run_one(findings, udp.as_mut());
        let supported = ip_rate(one.supported(findings.min_rtt()), findings.mtu());
        findings.budget.set_rate(trains.rate.map_or(supported, |found| found.rate.max(supported)));
        first = Some(one);
    }
    if let (Some(session), Some(found)) = (&mut udp, trains.rate) {
        over_udp(findings, session, |findings, session| {
            measure_losses(findings, session, found, &trains.sent)
        });
    }
    let one = first.unwrap_or_else(|| run_one(findings, udp.as_mut()));
    // Frees the server's UDP port for other probes.
    drop(udp);
    findings.begin("TCP, several connections");
    let together = receive(client, &streams.several(findings));
    take(findings, &together, SEVERAL);
    findings.compare(one.window);
    refresh_allowance(findings, client, url);
    if findings.options.full {
        sweep::measure(findings, client, &streams.plan(findings, 1, 1.0), Some(offer))?;
    }
    let upload = upload::measure(findings, client, url, offer);
    refresh_allowance(findings, client, url);
    one.failure.or(together.failure).map_or(upload, Err)
}

/// Requests again what the server allows: other clients may have begun to share its ceiling.
fn refresh_allowance(findings: &mut Findings<'_>, client: &Client, url: &Url) {
    if findings.report.server.allowed_bps.is_some() {
        // Without an answer the earlier ones stand.
        let now = request::<MeasureOffer>(client, &endpoint_url(url, MEASURE_PATH));
        findings.allow(now.ok().and_then(|offer| offer.allowed_bps));
    }
}

/// Requests a small JSON document.
fn request<T: DeserializeOwned>(client: &Client, url: &Url) -> Result<T, ProbeError> {
    let mut connection = client.open(url, None, &Cancel::new())?.connection;
    let (body, _) = connection.read_all(MAX_ENDPOINT_DOCUMENT, Duration::from_secs(5))?;
    client.keep(connection);
    serde_json::from_slice(&body).map_err(|error| unusable(url, &error))
}

/// Creates the error of an endpoint whose answer is invalid.
fn unusable(url: &Url, why: &dyn Display) -> ProbeError {
    let message = format!(
        "cannot use the measurement endpoint of {url}: {why}; its version of longhaul may be another"
    );
    Failure::new(FailureKind::Protocol, message).into()
}

/// Returns the URL of `path` on the server of `url`.
pub(super) fn endpoint_url(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url
}
