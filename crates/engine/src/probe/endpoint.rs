//! Our own server's measurement endpoint: UDP trains for rate, queue and loss, TCP streams of any setting.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::message::{MEASURE_PATH, MeasureOffer, STREAM_PATH, UDP_PATH, UdpOffer, VERSION};
use longhaul_core::probe::packet_train::{PacketTrain, usual_longest_delay};
use longhaul_core::probe::report::{MeasuredQueue, MeasuredRate, RateEvidence, UdpRow};
use longhaul_core::probe::rtt::{RttMethod, RttSummary};
use longhaul_core::probe::train_search::{
    QueueSearch, TrainPlan, TrainRate, TrainSearch, loss_of, loss_train,
};
use longhaul_core::units::{Bytes, Rate, Rtt};
use serde::de::DeserializeOwned;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::{Client, HttpError, Read};

use super::error::ProbeError;
use super::findings::Findings;
use super::http::{SEVERAL, compare, flow_time, take};
use super::sweep;
use super::tcp_flows::{FlowPlan, FlowResult, receive};
use super::udp_session::{ENOUGH_BUFFER, Echoes, UdpSession};
use super::upload;

/// For how long echoes are sent before the first train, and their interval.
const ECHO_TIME: Duration = Duration::from_millis(80);
const ECHO_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of echoes beside a TCP connection.
const LOADED_INTERVAL: Duration = Duration::from_millis(5);
/// The sizes of messages in the paper's table; the path's MTU is added.
const MESSAGES: [u64; 3] = [64, 1024, 1472];
/// How long a train of the table takes at the path's rate.
const TABLE_TIME: Duration = Duration::from_millis(25);
/// How long losses are counted.
const LOSS_TIME: Duration = Duration::from_millis(1500);
/// The share of the budget that is left for a single connection.
const ONE_SHARE: f64 = 0.6;
/// The share of the budget for a single connection where the trains were slower than the path: loss, queue and the table by message
/// size, which follow it, take a third.
const FAST_SHARE: f64 = 0.35;
/// The share of what is then left for several connections; the others are for the upload.
const SEVERAL_SHARE: f64 = 0.6;
/// The share of the budget's bytes for finding the queue; the others are for TCP.
const QUEUE_SHARE: f64 = 0.45;
/// What the answers of the endpoint have at most.
const LARGEST_ANSWER: usize = 64 << 10;

/// Looks for the endpoint on a server of ours.
pub(super) fn find(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
) -> Result<Option<MeasureOffer>, ProbeError> {
    if findings.server.software.as_deref().is_none_or(|name| name != "longhaul") {
        return Ok(None);
    }
    match request::<MeasureOffer>(client, url) {
        Ok(offer) if offer.version == VERSION => Ok(Some(offer)),
        Ok(offer) => {
            let why = format!("its messages have version {}, not {VERSION}", offer.version);
            Err(ProbeError::Endpoint { at: url.to_string(), why })
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

/// Requests a small JSON document.
fn request<T: DeserializeOwned>(client: &Client, url: &Url) -> Result<T, ProbeError> {
    let mut connection = client.open(url, None, &Cancel::new())?.connection;
    let mut body = Vec::new();
    let mut buffer = [0; 4096];
    let until = Instant::now() + Duration::from_secs(5);
    while body.len() < LARGEST_ANSWER && Instant::now() < until {
        match connection.read_body(&mut buffer)? {
            Read::Data(more) => body.extend_from_slice(&buffer[..more]),
            Read::Idle => {}
            Read::End => break,
        }
    }
    client.keep(connection);
    serde_json::from_slice(&body)
        .map_err(|error| ProbeError::Endpoint { at: url.to_string(), why: error.to_string() })
}

/// Measures by the endpoint.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
    offer: &MeasureOffer,
    progress: &dyn Fn(&str),
) -> Result<(), ProbeError> {
    findings.server.measures = true;
    findings.server.tcp_wmem_max = offer.tcp_wmem_max.map(Bytes::new);
    findings.server.ceiling_bps = Some(offer.ceiling_bps);
    findings.allow(offer.allowed_bps);
    if findings.options.upload {
        let measured = upload::measure(findings, client, url, offer, progress);
        ask_allowed(findings, client, url);
        return measured;
    }
    let (mut udp, idle) = open_udp(findings, client, url)?.unzip();
    let mut trains = TrainFindings::default();
    if let Some(session) = &mut udp {
        trains = by_udp(findings, session, progress, |findings, session| {
            measure_rate(findings, session, progress)
        });
    }
    ask_allowed(findings, client, url);
    let streams = StreamPlans { url: join(url, STREAM_PATH), most: Bytes::new(offer.stream_bytes) };
    // Where trains are slower than the path, TCP alone shows it, and takes its time for that.
    let is_fast = trains.rate.is_some_and(|found| !found.is_path_limited);
    let run_one = |findings: &mut Findings<'_>, udp: Option<&mut UdpSession>| {
        progress("TCP, one connection");
        let plan = match trains.rate {
            Some(found) if found.is_path_limited => streams.plan(findings, 1, ONE_SHARE),
            _ => streams.filling(findings, is_fast),
        };
        let (flow, loaded) = beside_echoes(udp, || receive(client, &plan));
        take(findings, &flow, 1);
        take_loaded(findings, &flow, idle.as_ref(), loaded);
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
        by_udp(findings, session, progress, |findings, session| {
            measure_losses(findings, session, found, &trains.sent, progress)
        });
    }
    let one = first.unwrap_or_else(|| run_one(findings, udp.as_mut()));
    // Others can have the port while this probe uses TCP.
    drop(udp);
    progress("TCP, several connections");
    let together = receive(client, &streams.plan(findings, SEVERAL, SEVERAL_SHARE));
    take(findings, &together, SEVERAL);
    compare(findings, &one, &together);
    ask_allowed(findings, client, url);
    if findings.options.full {
        sweep::own_server(findings, client, offer, |findings| streams.plan(findings, 1, 1.0), progress)?;
    }
    let upload = upload::measure(findings, client, url, offer, progress);
    ask_allowed(findings, client, url);
    one.failure.or(together.failure).map_or(upload, Err)
}

/// Asks again what the server allows: other clients may have begun to share its ceiling.
fn ask_allowed(findings: &mut Findings<'_>, client: &Client, url: &Url) {
    if findings.server.allowed_bps.is_some() {
        // Its answers so far stand where it gives none now.
        let now = request::<MeasureOffer>(client, &join(url, MEASURE_PATH));
        findings.allow(now.ok().and_then(|offer| offer.allowed_bps));
    }
}

/// What the search for the rate came to.
#[derive(Default)]
struct TrainFindings {
    rate: Option<TrainRate>,
    sent: Vec<PacketTrain>,
}

/// Runs a measurement by UDP, counts its bytes, and notes its failure.
fn by_udp<T: Default>(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    progress: &dyn Fn(&str),
    measure: impl FnOnce(&mut Findings<'_>, &mut UdpSession) -> io::Result<T>,
) -> T {
    progress("UDP");
    let measured = measure(findings, session);
    findings.budget.spend(std::mem::take(&mut session.received));
    measured.unwrap_or_else(|error| {
        findings.withdraw_losses();
        findings.miss(format!("UDP: {error}; it would have shown the path's rate, queue and loss"));
        T::default()
    })
}

/// Of fewer bytes no rate can be read: a tenth of a second of 10 Mbit/s.
const LEAST: Bytes = Bytes::kib(128);

/// Makes the plans of streams from the endpoint.
struct StreamPlans {
    url: Url,
    most: Bytes,
}

impl StreamPlans {
    /// Plans so many streams with a share of what the budget has left.
    fn plan(&self, findings: &Findings<'_>, streams: u32, share: f64) -> FlowPlan {
        let left = findings.budget.bytes_left().unwrap_or(self.most);
        let bytes = Bytes::new((left.get() as f64 * share) as u64).clamp(LEAST, self.most.max(LEAST));
        let mut url = self.url.clone();
        url.set_query(Some(&format!("bytes={}", bytes.get())));
        let rtt = findings.min_rtt();
        let time = flow_time(rtt).min(findings.budget.time_left());
        FlowPlan { url, size: None, streams, time, bytes, filling: None, rtt }
    }

    /// Plans one stream over a path of unknown rate: as much as the rate that it supports allows.
    fn filling(&self, findings: &Findings<'_>, losses_follow: bool) -> FlowPlan {
        let mut url = self.url.clone();
        url.set_query(Some(&format!("bytes={}", self.most.get())));
        let left = findings.budget.time_left();
        let (time, share) = match losses_follow {
            true => (left.saturating_sub(LOSS_TIME), FAST_SHARE),
            false => (left / 2, ONE_SHARE),
        };
        FlowPlan {
            url,
            time,
            bytes: LEAST,
            filling: Some(findings.budget.filling_time(share)),
            ..self.plan(findings, 1, ONE_SHARE)
        }
    }
}

pub(super) fn join(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url
}

/// Asks the endpoint for a UDP port; `None`, noted, where UDP does not get through.
fn open_udp(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
) -> Result<Option<(UdpSession, Echoes)>, ProbeError> {
    let would = "it would have shown the path's rate, queue and loss";
    let offer: UdpOffer = match request(client, &join(url, UDP_PATH)) {
        Ok(offer) => offer,
        Err(ProbeError::Http(error @ HttpError::Status { .. })) => {
            findings.miss(format!("UDP: {error}; {would}"));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let rtt = findings.min_rtt();
    let ceiling = findings.server.ceiling_bps;
    let mut session = UdpSession::open(findings.address().ip(), &offer, rtt, ceiling)
        .map_err(|source| ProbeError::Local { what: "open a UDP socket".to_owned(), source })?;
    let mut idle = Echoes::default();
    // Two tries: the first echoes may be lost by chance.
    for _ in 0..2 {
        let started = Instant::now();
        match session.echoes(ECHO_INTERVAL, &|| started.elapsed() < ECHO_TIME) {
            Ok(echoes) => idle = echoes,
            // ICMP's "port unreachable" of a firewall.
            Err(error) => tracing::debug!("a UDP echo failed: {error}"),
        }
        if idle.answered() > 0 {
            break;
        }
    }
    if idle.answered() == 0 {
        findings.miss(format!("UDP: blocked on the way, port {}; {would}", offer.port));
        return Ok(None);
    }
    findings.rtt.extend(RttSummary::of(RttMethod::UdpEcho, &idle.round_trips, idle.sent));
    let buffer = session.buffer();
    if buffer < ENOUGH_BUFFER {
        findings.miss(format!(
            "fast trains as a whole: the receive buffer is {buffer}, net.core.rmem_max permits no more without CAP_NET_ADMIN; packets dropped here are not counted as the path's"
        ));
    }
    Ok(Some((session, idle)))
}

fn measure_rate(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    progress: &dyn Fn(&str),
) -> io::Result<TrainFindings> {
    progress("path MTU");
    findings.path.mtu = path_mtu(session)?;
    let message = findings.mtu().saturating_sub(session.headers);
    progress("the path's rate, by UDP trains");
    let (search, sent) = find_rate(session, message)?;
    let Some(found) = search.rate() else {
        findings.miss("UDP: no train arrived; it would have shown the path's rate, queue and loss");
        return Ok(TrainFindings { rate: None, sent });
    };
    findings.path.rate = Some(MeasuredRate {
        rate_bps: found.rate,
        evidence: RateEvidence::UdpTrains,
        is_lower_bound: !found.is_path_limited,
    });
    findings.budget.set_rate(found.rate);
    Ok(TrainFindings { rate: Some(found), sent })
}

fn measure_losses(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: TrainRate,
    trains: &[PacketTrain],
    progress: &dyn Fn(&str),
) -> io::Result<()> {
    progress("loss");
    let thin = count_loss(findings, session, found)?;
    progress("the queue");
    find_queue(findings, session, found, (trains, &thin))?;
    progress("UDP by size of message");
    table(findings, session, found)
}

/// Finds the largest packet that arrives, both ways, by echoes that no router may cut.
fn path_mtu(session: &mut UdpSession) -> io::Result<Option<Bytes>> {
    /// The least that every IPv6 path carries (RFC 8200, section 5).
    const LEAST: u64 = 1280;
    let Some(known) = session.known_mtu() else { return Ok(None) };
    let fits = |session: &mut UdpSession, mtu: u64| {
        // Two tries: the first may be lost by chance.
        for _ in 0..2 {
            if session.echo(Bytes::new(mtu).saturating_sub(session.headers))?.is_some() {
                return Ok::<_, io::Error>(true);
            }
        }
        Ok(false)
    };
    // The buffers of both sides hold jumbo frames; loopback's 64 KiB are no path's.
    let mut high = known.get().min(9000);
    if fits(session, high)? {
        return Ok(Some(Bytes::new(high)));
    }
    let mut low = LEAST.min(high);
    while low + 8 < high {
        let middle = low.midpoint(high);
        if fits(session, middle)? { low = middle } else { high = middle }
    }
    Ok(Some(Bytes::new(low)))
}

fn find_rate(session: &mut UdpSession, message: Bytes) -> io::Result<(TrainSearch, Vec<PacketTrain>)> {
    let mut search = TrainSearch::new(message);
    let mut trains = Vec::new();
    while let Some(plan) = search.next_train() {
        let train = session.train(plan)?;
        search.record(&train);
        trains.push(train);
    }
    Ok((search, trains))
}

/// Counts the losses of a thin train; returns it.
fn count_loss(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: TrainRate,
) -> io::Result<PacketTrain> {
    let time = LOSS_TIME.min(findings.budget.time_left() / 3);
    let train = session.train(loss_train(found.rate, time, session.headers))?;
    findings.path.loss = Some(loss_of([&train]));
    findings.path.reordered = Some(train.reordered());
    Ok(train)
}

/// Sends a short train of each size, back to back.
fn table(findings: &mut Findings<'_>, session: &mut UdpSession, found: TrainRate) -> io::Result<()> {
    let largest = findings.mtu().saturating_sub(session.headers).get();
    let mut messages: Vec<u64> = MESSAGES.into_iter().filter(|message| *message < largest).collect();
    messages.push(largest);
    for message in messages.into_iter().map(Bytes::new) {
        // A round trip, the train, and the silence after it.
        let needed = findings.min_rtt().get() + Duration::from_millis(200);
        if findings.budget.time_left() < needed + flow_time(findings.min_rtt()) {
            findings.miss(format!("UDP with messages of {} bytes: no time left; see --full", message.get()));
            continue;
        }
        let packet = message + session.headers;
        let count = found.rate.bytes_in(TABLE_TIME).get() / packet.get();
        let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(16, 20_000);
        let train = session.train(TrainPlan { count, message, rate: None })?;
        let Some(spread) = train.dispersion() else { continue };
        let payload = |rate: Rate| rate.scaled(message.get() as f64 / packet.get() as f64);
        findings.udp.push(UdpRow {
            message,
            payload_bps: payload(spread.rate),
            sent_bps: payload(spread.sent_at),
            loss: train.loss(),
            reordered: train.reordered(),
            is_path_limited: spread.is_path_limited(),
        });
    }
    Ok(())
}

/// Fills the queue. Some of the `trains` that found the rate may have filled it already; the `thin` train, of the loss, left it empty.
fn find_queue(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: TrainRate,
    (trains, thin): (&[PacketTrain], &PacketTrain),
) -> io::Result<()> {
    let message = findings.mtu().saturating_sub(session.headers);
    if !found.is_path_limited {
        findings.miss("the queue by UDP: this program sends no faster than the path; TCP may show it");
        return Ok(());
    }
    let left = findings.budget.bytes_left().unwrap_or_default().saturating_sub(session.received);
    let budget = Bytes::new((left.get() as f64 * QUEUE_SHARE) as u64);
    let base = findings.path.loss.map_or(0.0, |loss| loss.share);
    let mut search = QueueSearch::new(message, session.headers, found.rate, thin, budget);
    trains.iter().for_each(|train| search.observe(train, base));
    while let Some(plan) = search.next_train() {
        // Further trains make the size surer; TCP needs its time too.
        if search.has_overflowed() && findings.budget.time_left() < 3 * flow_time(findings.min_rtt()) {
            break;
        }
        search.record(&session.train(plan)?, base);
    }
    findings.path.queue = search.size().map(|queue| MeasuredQueue {
        bytes: queue.size,
        delay: queue.delay,
        is_lower_bound: queue.is_lower_bound,
    });
    Ok(())
}

/// Runs a measurement, and echoes beside it where there is a session.
fn beside_echoes(
    session: Option<&mut UdpSession>,
    run: impl FnOnce() -> FlowResult + Send,
) -> (FlowResult, Echoes) {
    let Some(session) = session else { return (run(), Echoes::default()) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flows = scope.spawn(|| {
            let result = run();
            done.store(true, Ordering::Relaxed);
            result
        });
        let goes_on = || !done.load(Ordering::Relaxed);
        let echoes = session.echoes(LOADED_INTERVAL, &goes_on).unwrap_or_else(|error| {
            tracing::debug!("echoes beside TCP failed: {error}");
            Echoes::default()
        });
        (flows.join().unwrap_or_default(), echoes)
    })
}

/// Takes echoes that were answered beside a TCP connection: what it kept in the queue.
fn take_loaded(findings: &mut Findings<'_>, one: &FlowResult, idle: Option<&Echoes>, loaded: Echoes) {
    let Some(longest) = loaded.round_trips.iter().max() else { return };
    findings.path.loaded_rtt = Some(Rtt::new(*longest));
    let mut returns = loaded.returns;
    // The fastest way back is that of an idle path.
    returns.extend(idle.iter().flat_map(|idle| idle.returns.iter().copied()));
    let waited = usual_longest_delay(&returns);
    let rate = findings.burst.map(|burst| ip_rate(burst, findings.mtu()));
    // Trains are the finer measure; TCP's is for paths that trains cannot fill.
    if let (None, Some(rate)) = (findings.path.queue, rate)
        && !waited.is_zero()
    {
        let is_lower_bound = one.out_of_order == 0;
        findings.path.queue =
            Some(MeasuredQueue { bytes: rate.bytes_in(waited), delay: waited, is_lower_bound });
    }
}
