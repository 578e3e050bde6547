//! UDP trains of the measurement endpoint: the path's MTU, rate, loss and queue, and what each
//! message size carries.

use std::io;
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::message::{UDP_PATH, UdpOffer};
use longhaul_core::probe::packet_train::{Dispersion, PacketTrain};
use longhaul_core::probe::report::{CeilingSource, UdpCeiling, UdpRow};
use longhaul_core::probe::rtt::{RttMethod, RttSummary};
use longhaul_core::probe::train_search::{QueueSearch, TrainPlan, TrainSearch, loss_of, loss_train};
use longhaul_core::units::{Bytes, Rate};
use url::Url;

use super::{endpoint_url, request};
use crate::probe::ProbeError;
use crate::probe::findings::Findings;
use crate::probe::tcp_flows::flow_time;
use crate::probe::udp_session::{ENOUGH_BUFFER, Echoes, UdpSession};
use crate::source::http::{Client, HttpError};

/// For how long echoes are sent before the first train.
const ECHO_TIME: Duration = Duration::from_millis(80);
/// The interval of echoes before the first train.
const ECHO_INTERVAL: Duration = Duration::from_millis(20);
/// The sizes of messages in the paper's table; the path's MTU is added.
const MESSAGES: [u64; 3] = [64, 1024, 1472];
/// How long a train of the table takes at the path's rate.
const TABLE_TIME: Duration = Duration::from_millis(25);
/// How long losses are counted.
pub(super) const LOSS_TIME: Duration = Duration::from_millis(1500);
/// The share of the budget's bytes for finding the queue; the others are for TCP.
const QUEUE_SHARE: f64 = 0.45;

/// The result of the search for the rate.
#[derive(Default)]
pub(super) struct TrainFindings {
    pub(super) rate: Option<Dispersion>,
    /// The trains that were sent to find the rate.
    pub(super) sent: Vec<PacketTrain>,
}

/// Requests a UDP port of the endpoint; `None`, noted, where UDP is blocked.
pub(super) fn open_session(
    findings: &mut Findings<'_>,
    client: &Client,
    url: &Url,
    ceiling: Rate,
) -> Result<Option<(UdpSession, Echoes)>, ProbeError> {
    let would = "it would have shown the path's rate, queue and loss";
    let offer: UdpOffer = match request(client, &endpoint_url(url, UDP_PATH)) {
        Ok(offer) => offer,
        Err(ProbeError::Http(error @ HttpError::Status { .. })) => {
            findings.miss(format!("UDP: {error}; {would}"));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let rtt = findings.min_rtt();
    let ceiling = UdpCeiling::lower(findings.options.ceiling, ceiling, CeilingSource::Server);
    let mut session = UdpSession::open(findings.address.ip(), &offer, rtt, ceiling.rate_bps)
        .map_err(|error| Failure::new(FailureKind::Host, format!("cannot open a UDP socket: {error}")))?;
    let mut idle = Echoes::default();
    // Two tries: the first echoes may be lost at random.
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
    findings.report.udp_ceiling = Some(ceiling);
    findings.report.rtt.extend(RttSummary::of(RttMethod::UdpEcho, &idle.round_trips, idle.sent));
    let buffer = session.buffer();
    if buffer < ENOUGH_BUFFER {
        findings.miss(format!(
            "fast trains as a whole: the receive buffer is {buffer}, net.core.rmem_max permits no more without CAP_NET_ADMIN; packets dropped here are not counted as the path's"
        ));
    }
    Ok(Some((session, idle)))
}

/// Runs a measurement by UDP, counts its bytes, and notes its failure.
pub(super) fn over_udp<T: Default>(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    measure: impl FnOnce(&mut Findings<'_>, &mut UdpSession) -> io::Result<T>,
) -> T {
    findings.begin("UDP");
    let measured = measure(findings, session);
    findings.budget.used += std::mem::take(&mut session.received);
    measured.unwrap_or_else(|error| {
        findings.withdraw_losses();
        findings.miss(format!("UDP: {error}; it would have shown the path's rate, queue and loss"));
        T::default()
    })
}

/// Finds the path's MTU and rate.
pub(super) fn measure_rate(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
) -> io::Result<TrainFindings> {
    findings.begin("path MTU");
    findings.report.path.mtu = path_mtu(session)?;
    findings.begin("the path's rate, by UDP trains");
    let mut search = TrainSearch::new(findings.mtu().saturating_sub(session.headers));
    let mut sent = Vec::new();
    while let Some(plan) = search.next_train() {
        let train = session.train(plan)?;
        search.record(&train);
        sent.push(train);
    }
    let rate = search.rate();
    if let Some(found) = rate {
        findings.take_train_rate(found.rate, found.is_path_limited());
        findings.budget.set_rate(found.rate);
    } else {
        findings.miss("UDP: no train arrived; it would have shown the path's rate, queue and loss");
    }
    Ok(TrainFindings { rate, sent })
}

/// Finds the path's loss and queue, and measures each message size.
pub(super) fn measure_losses(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: Dispersion,
    trains: &[PacketTrain],
) -> io::Result<()> {
    findings.begin("loss");
    let thin = count_loss(findings, session, found)?;
    findings.begin("the queue");
    find_queue(findings, session, found, (trains, &thin))?;
    findings.begin("UDP by size of message");
    measure_messages(findings, session, found)
}

/// Finds the largest packet that arrives, both ways, by echoes that no router may cut.
fn path_mtu(session: &mut UdpSession) -> io::Result<Option<Bytes>> {
    /// The least that every IPv6 path carries (RFC 8200, section 5).
    const MIN_IPV6_MTU: u64 = 1280;
    let Some(known) = session.known_mtu() else { return Ok(None) };
    let fits = |session: &mut UdpSession, mtu: u64| {
        // Two tries: the first echo may be lost at random.
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
    let mut low = MIN_IPV6_MTU.min(high);
    while low + 8 < high {
        let middle = low.midpoint(high);
        if fits(session, middle)? { low = middle } else { high = middle }
    }
    Ok(Some(Bytes::new(low)))
}

/// Counts the losses of a thin train; returns it.
fn count_loss(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: Dispersion,
) -> io::Result<PacketTrain> {
    let time = LOSS_TIME.min(findings.budget.time_left() / 3);
    let train = session.train(loss_train(found.rate, time, session.headers))?;
    findings.report.path.loss = Some(loss_of([&train]));
    findings.report.path.reordered = Some(train.reordered());
    Ok(train)
}

/// Fills the queue. Some of the `trains` that found the rate may have filled it already; the `thin`
/// train, of the loss, left it empty.
fn find_queue(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: Dispersion,
    (trains, thin): (&[PacketTrain], &PacketTrain),
) -> io::Result<()> {
    let message = findings.mtu().saturating_sub(session.headers);
    if !found.is_path_limited() {
        findings.miss("the queue by UDP: this program sends no faster than the path; TCP may show it");
        return Ok(());
    }
    let left = findings.budget.bytes_left().unwrap_or_default().saturating_sub(session.received);
    let budget = Bytes::new((left.get() as f64 * QUEUE_SHARE) as u64);
    let base = findings.report.path.loss.map_or(0.0, |loss| loss.share);
    let mut search = QueueSearch::new(message, session.headers, found.rate, thin, budget);
    trains.iter().for_each(|train| search.observe(train, base));
    while let Some(plan) = search.next_train() {
        // Further trains only refine the size; TCP needs time too.
        if search.has_overflowed() && findings.budget.time_left() < 3 * flow_time(findings.min_rtt()) {
            break;
        }
        search.record(&session.train(plan)?, base);
    }
    findings.report.path.queue = search.size();
    Ok(())
}

/// Measures each message size by a short train that is sent back to back.
fn measure_messages(
    findings: &mut Findings<'_>,
    session: &mut UdpSession,
    found: Dispersion,
) -> io::Result<()> {
    let largest = findings.mtu().saturating_sub(session.headers).get();
    let mut messages: Vec<u64> = MESSAGES.into_iter().filter(|message| *message < largest).collect();
    messages.push(largest);
    for message in messages.into_iter().map(Bytes::new) {
        let packet = message + session.headers;
        let count = found.rate.bytes_in(TABLE_TIME).get() / packet.get();
        let count = u32::try_from(count).unwrap_or(u32::MAX).clamp(16, 20_000);
        // A round trip, the train, and the silence after it.
        let train = found.rate.time_for(packet * u64::from(count));
        let needed = findings.min_rtt().get() + train + Duration::from_millis(175);
        if findings.budget.time_left() < needed + flow_time(findings.min_rtt()) {
            findings.miss(format!("UDP with messages of {} bytes: no time left; see --full", message.get()));
            continue;
        }
        let train = session.train(TrainPlan { count, message, rate: None })?;
        let Some(spread) = train.dispersion() else { continue };
        let payload = |rate: Rate| rate.scaled(message.get() as f64 / packet.get() as f64);
        findings.report.udp.push(UdpRow {
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
