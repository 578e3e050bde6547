//! Receives bodies over several TCP connections at once, and records received bytes over time.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::flow_rate::{
    Progress, burst_rate, is_flat, rate_range, steady_rate, sum, supported_rate,
};
use longhaul_core::probe::report::TcpRow;
use longhaul_core::proto::http::RangeRequest;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info;
use url::Url;

use crate::cancel::Cancel;
use crate::connect::Received;
use crate::source::http::{Client, ClientConfig, Connection, SafeUrl};

use super::ProbeError;
use super::findings::Findings;

/// A source of bodies to receive.
pub(super) trait BodySource: Sync {
    /// Requests the body of one connection of the plan.
    fn open(&self, plan: &FlowPlan, index: u32, cancel: &Cancel) -> Result<Box<dyn FlowBody>, ProbeError>;

    /// Returns a copy of this source with a receive buffer of `size`.
    fn with_buffer(&self, size: Bytes) -> Result<Box<dyn BodySource>, ProbeError>;
}

/// The body of a response.
pub(super) trait FlowBody {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Received, ProbeError>;

    fn socket(&self) -> &TcpStream;
}

impl BodySource for Client {
    fn open(&self, plan: &FlowPlan, index: u32, cancel: &Cancel) -> Result<Box<dyn FlowBody>, ProbeError> {
        let range = plan.size.and_then(|size| {
            let start = size.get() / u64::from(plan.streams) * u64::from(index);
            RangeRequest::of(ByteRange::new(start, size.get()))
        });
        Ok(Box::new(self.open(&plan.url, range.as_ref(), cancel)?.connection))
    }

    fn with_buffer(&self, size: Bytes) -> Result<Box<dyn BodySource>, ProbeError> {
        let config = ClientConfig { recv_buffer: Some(size), ..self.config().clone() };
        Ok(Box::new(self.with_config(config)?))
    }
}

impl FlowBody for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Received, ProbeError> {
        Ok(self.read_body(buffer)?)
    }

    fn socket(&self) -> &TcpStream {
        self.socket()
    }
}

/// The plan of a measurement.
#[derive(Debug, Clone)]
pub(super) struct FlowPlan {
    /// The body's URL.
    pub(super) url: Url,
    /// The file's size if ranges can be requested: each connection then starts at a different
    /// offset.
    pub(super) size: Option<Bytes>,
    /// The number of connections.
    pub(super) streams: u32,
    /// The time limit, including connecting.
    pub(super) time: Duration,
    /// The byte limit of all connections together.
    pub(super) bytes: Bytes,
    /// Set on a path of unknown rate. The byte limit then grows to the bytes of this time at the
    /// rate supported so far, assuming that each connection carries as much as the one observed.
    pub(super) filling: Option<Duration>,
    pub(super) rtt: Rtt,
}

impl FlowPlan {
    /// Plans connections for as long as slow start to any window and some further round trips take,
    /// within the budget.
    pub(super) fn new(findings: &Findings<'_>, url: Url, streams: u32) -> Self {
        let rtt = findings.min_rtt();
        let time = flow_time(rtt).min(findings.budget.time_left());
        Self { url, size: None, streams, time, bytes: Bytes::ZERO, filling: None, rtt }
    }

    /// Returns the timeout for the first byte after connecting, TLS and the request, and for each
    /// further byte.
    fn patience(&self) -> Duration {
        const ROUND_TRIPS: u32 = 5;
        const THINKING: Duration = Duration::from_secs(1);
        self.rtt.get() * ROUND_TRIPS + THINKING
    }
}

/// Returns how long connections run: slow start to any window, and some further round trips.
pub(super) fn flow_time(rtt: Rtt) -> Duration {
    const ROUND_TRIPS: u32 = 16;
    const MIN_TIME: Duration = Duration::from_millis(1200);
    const MAX_TIME: Duration = Duration::from_millis(3500);
    (rtt.get() * ROUND_TRIPS).clamp(MIN_TIME, MAX_TIME)
}

/// The result of a measurement.
#[derive(Debug, Default)]
pub(super) struct FlowResult {
    pub(super) flows: Vec<Vec<Progress>>,
    /// Packets received out of order; for a sender, packets retransmitted.
    pub(super) out_of_order: u64,
    /// The bytes that a sender sent but that were not acknowledged.
    pub(super) unacknowledged: Bytes,
    /// The largest receive window of a connection.
    pub(super) window: Option<Bytes>,
    /// The path MTU as reported by the kernel.
    pub(super) mtu: Option<Bytes>,
    /// The silence at the end of the measurement, if longer than a path without loss can cause.
    pub(super) silence: Option<Duration>,
    /// The least time of a steady flow: within slow start two flights may have equal rates.
    pub(super) settled: Duration,
    /// The first failure.
    pub(super) failure: Option<ProbeError>,
}

/// Bytes per read.
const READ: usize = 256 << 10;
/// The shortest time between two entries of the progress.
const STEP: Duration = Duration::from_micros(200);
/// The interval at which a flow is checked for a steady rate.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The minimum age of a steady flow, in time and in round trips.
const SETTLED: Duration = Duration::from_millis(400);
pub(super) const SETTLED_RTTS: u32 = 8;

/// The state shared by the threads of one measurement.
pub(super) struct MeasurementState {
    started: Instant,
    moved: AtomicU64,
    stop: AtomicBool,
}

impl MeasurementState {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A server that sent for less than this share of the silence that follows has stalled. After a
/// longer time the cause may be lost retransmissions, whose timeout doubles each time.
const SENT_SHARE: f64 = 0.1;

/// Receives according to `plan`.
pub(super) fn receive(source: &dyn BodySource, plan: &FlowPlan) -> FlowResult {
    let started = Instant::now();
    let mut result = together(plan, |index, shared, cancel| {
        Ok(receive_one(&mut *source.open(plan, index, cancel)?, plan, shared, cancel))
    });
    let first = result.flows.iter().filter_map(|flow| flow.first()).map(|first| first.at).min();
    let last = result.flows.iter().filter_map(|flow| flow.last()).map(|last| last.at).max();
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let waited = Duration::from_millis(plan.time.saturating_sub(last).as_millis() as u64);
    if result.failure.is_some() || waited < plan.patience() || started.elapsed() < plan.time {
        return result;
    }
    if last.saturating_sub(first) < waited.mul_f64(SENT_SHARE) {
        let at = SafeUrl::of(&plan.url);
        let message = format!(
            "no throughput was measured: {at} sent too little of its file within {waited:?}; try again when the server is less busy"
        );
        result.failure = Some(Failure::new(FailureKind::Temporary, message).into());
    } else {
        result.silence = Some(waited);
    }
    result
}

/// Runs the plan's connections, one thread each, and adds up their results. A connection that is
/// cancelled at the end of the plan's time before it moved a byte has none.
pub(super) fn together(
    plan: &FlowPlan,
    run: impl Fn(u32, &MeasurementState, &Cancel) -> Result<FlowResult, ProbeError> + Sync,
) -> FlowResult {
    let shared =
        MeasurementState { started: Instant::now(), moved: AtomicU64::new(0), stop: AtomicBool::new(false) };
    let cancel = Cancel::new().child_until(shared.started + plan.time);
    let mut result = FlowResult { settled: plan.rtt.get() * SETTLED_RTTS, ..FlowResult::default() };
    std::thread::scope(|scope| {
        let flow = |index| {
            let (run, shared, cancel) = (&run, &shared, &cancel);
            move || run(index, shared, cancel)
        };
        let threads: Vec<_> = (0..plan.streams).map(|index| scope.spawn(flow(index))).collect();
        for thread in threads {
            let one = match thread.join() {
                Ok(Ok(one)) => one,
                Ok(Err(error)) if error.is_cancelled() => continue,
                Ok(Err(error)) => FlowResult { failure: Some(error), ..FlowResult::default() },
                // The panic hook has already reported it; the other results are valid.
                Err(_) => continue,
            };
            result.out_of_order += one.out_of_order;
            result.unacknowledged += one.unacknowledged;
            result.window = result.window.max(one.window);
            result.mtu = result.mtu.or(one.mtu);
            result.flows.extend(one.flows);
            result.failure = result.failure.take().or(one.failure);
        }
    });
    result
}

fn receive_one(
    body: &mut dyn FlowBody,
    plan: &FlowPlan,
    shared: &MeasurementState,
    cancel: &Cancel,
) -> FlowResult {
    let mut result = FlowResult::default();
    let mut buffer = vec![0; READ];
    let mut watch = FlowWatch::new(plan, shared);
    while !shared.is_stopped() && !cancel.is_cancelled() {
        match body.read(&mut buffer) {
            Ok(Received::Data(more)) => {
                if watch.record(more as u64) {
                    let window = tcp_info::read(body.socket()).ok().and_then(|info| info.rcv_wnd());
                    result.window = result.window.max(window);
                }
            }
            Ok(Received::Idle) => {}
            Ok(Received::End { .. }) => break,
            Err(error) if error.is_cancelled() => break,
            Err(error) => {
                result.failure = Some(error);
                break;
            }
        }
    }
    if let Ok(info) = tcp_info::read(body.socket()) {
        result.out_of_order = info.tcpi_rcv_ooopack().unwrap_or(0);
        result.window = result.window.max(info.rcv_wnd());
        result.mtu = info.tcpi_pmtu().map(Bytes::new);
    }
    result.flows.push(watch.finish());
    result
}

/// Records the progress of one connection, and stops all connections once they have shown enough.
pub(super) struct FlowWatch<'a> {
    plan: &'a FlowPlan,
    shared: &'a MeasurementState,
    progress: Vec<Progress>,
    latest: Progress,
    looked: Duration,
    /// The current byte limit of all connections together.
    most: Bytes,
}

impl<'a> FlowWatch<'a> {
    pub(super) fn new(plan: &'a FlowPlan, shared: &'a MeasurementState) -> Self {
        let latest = Progress { at: shared.started.elapsed(), bytes: Bytes::ZERO };
        Self { plan, shared, progress: vec![latest], latest, looked: Duration::ZERO, most: plan.bytes }
    }

    /// Records `more` bytes; returns whether the progress was checked, which happens once per
    /// [`SAMPLE_INTERVAL`].
    pub(super) fn record(&mut self, more: u64) -> bool {
        let Self { plan, shared, .. } = *self;
        let total = shared.moved.fetch_add(more, Ordering::Relaxed) + more;
        let at = shared.started.elapsed();
        self.latest = Progress { at, bytes: self.latest.bytes + Bytes::new(more) };
        let noted = self.progress.last().map_or(Duration::ZERO, |last| last.at);
        if more > 0 && (at.saturating_sub(noted) >= STEP || self.progress.len() == 1) {
            self.progress.push(self.latest);
        }
        let flowed = at.saturating_sub(self.progress.get(1).map_or(at, |first| first.at));
        let looks = at.saturating_sub(self.looked) >= SAMPLE_INTERVAL;
        if looks {
            self.looked = at;
            let settled = SETTLED.max(plan.rtt.get() * SETTLED_RTTS);
            if flowed >= settled && is_flat(&self.progress) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let rate = plan.filling.map(|time| (supported_rate(&self.progress[1..], plan.rtt), time));
            let supported =
                rate.map_or(Bytes::ZERO, |(rate, time)| rate.bytes_in(time) * u64::from(plan.streams));
            // Not the maximum: a host that reads late first sees too high a rate.
            self.most = plan.bytes.max(supported);
        }
        // Until the first checks, a connection of unknown rate moves about a hundredth of what it
        // carries in ten seconds.
        let is_unknown = plan.filling.is_some() && flowed < SAMPLE_INTERVAL * 2;
        // Based on this connection, because a starved one does not represent the others.
        let moved = if plan.filling.is_some() {
            self.latest.bytes * u64::from(plan.streams)
        } else {
            Bytes::new(total)
        };
        if moved >= self.most && !is_unknown {
            shared.stop.store(true, Ordering::Relaxed);
        }
        looks
    }

    /// Returns the progress from the first byte on, which excludes the request's round trip.
    pub(super) fn finish(mut self) -> Vec<Progress> {
        if self.progress.last().is_some_and(|last| last.bytes < self.latest.bytes) {
            self.progress.push(self.latest);
        }
        self.progress.drain(..1);
        self.progress
    }
}

impl FlowResult {
    /// Returns the payload bytes moved.
    pub(super) fn bytes(&self) -> Bytes {
        let all = self.flows.iter().filter_map(|flow| flow.last()).map(|last| last.bytes.get());
        Bytes::new(all.sum()) + self.unacknowledged
    }

    /// Returns the rate within bursts; `None` if the time is too short.
    pub(super) fn burst(&self) -> Option<Rate> {
        burst_rate(&sum(&self.flows))
    }

    /// Returns the rate within bursts, limited to what was sustained.
    pub(super) fn supported(&self, rtt: Rtt) -> Rate {
        supported_rate(&sum(&self.flows), rtt)
    }

    /// Creates the row of the report's table, with default settings.
    pub(super) fn row(&self, streams: u32) -> TcpRow {
        let all = sum(&self.flows);
        let time = all.last().zip(all.first()).map(|(last, first)| last.at.saturating_sub(first.at));
        let is_steady = is_flat(&all) && time >= Some(self.settled);
        TcpRow {
            streams,
            payload_bps: steady_rate(&all),
            seconds: time.unwrap_or_default(),
            is_flat: is_steady,
            range: (!is_steady).then(|| rate_range(&all, self.out_of_order > 0)),
            out_of_order: self.out_of_order,
            ..TcpRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Sends bodies whose reads are answered by a function of the time since the first read, and of
    /// the bytes read before.
    struct Scripted<F>(TcpListener, F);

    struct ScriptedBody<F> {
        socket: TcpStream,
        answer: F,
        began: Option<Instant>,
        sent: u64,
    }

    impl<F: Fn(Duration, u64) -> u64 + Copy + Sync + 'static> BodySource for Scripted<F> {
        fn open(&self, _: &FlowPlan, _: u32, _: &Cancel) -> Result<Box<dyn FlowBody>, ProbeError> {
            let socket = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
            Ok(Box::new(ScriptedBody { socket, answer: self.1, began: None, sent: 0 }))
        }

        fn with_buffer(&self, _: Bytes) -> Result<Box<dyn BodySource>, ProbeError> {
            unreachable!("no other buffer is asked for")
        }
    }

    impl<F: Fn(Duration, u64) -> u64> FlowBody for ScriptedBody<F> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<Received, ProbeError> {
            std::thread::sleep(Duration::from_millis(1));
            let since = self.began.get_or_insert_with(Instant::now).elapsed();
            let more = (self.answer)(since, self.sent).min(buffer.len() as u64);
            self.sent += more;
            Ok(if more == 0 { Received::Idle } else { Received::Data(more as usize) })
        }

        fn socket(&self) -> &TcpStream {
            &self.socket
        }
    }

    fn receive(plan: &FlowPlan, answer: impl Fn(Duration, u64) -> u64 + Copy + Sync + 'static) -> FlowResult {
        super::receive(&Scripted(TcpListener::bind("127.0.0.1:0").unwrap(), answer), plan)
    }

    fn plan(ms: u64) -> FlowPlan {
        FlowPlan {
            url: Url::parse("http://h/").unwrap(),
            size: None,
            streams: 1,
            time: Duration::from_millis(ms),
            bytes: Bytes::gib(1),
            filling: None,
            rtt: Rtt::default(),
        }
    }

    #[test]
    fn silence_is_a_failure_only_without_prior_data() {
        let stopped = receive(&plan(1200), |_, sent| u64::from(sent == 0));
        let failure = stopped.failure.as_ref().map_or_else(String::new, ToString::to_string);
        assert!(failure.starts_with("no throughput was measured"), "{stopped:?}");
        let lossy = receive(&plan(2000), |since, _| if since.as_millis() < 400 { 1000 } else { 0 });
        assert!(lossy.failure.is_none() && lossy.silence >= Some(Duration::from_secs(1)), "{lossy:?}");
        let whole = receive(&plan(500), |_, _| 1000);
        assert!(whole.failure.is_none() && whole.silence.is_none(), "{whole:?}");
    }

    #[test]
    fn byte_limit_grows_with_the_sustained_rate() {
        let plan = FlowPlan {
            bytes: Bytes::kib(64),
            filling: Some(Duration::from_millis(540)),
            rtt: Rtt::new(Duration::from_millis(200)),
            ..plan(8000)
        };
        // 100 Mbit/s that arrive in bursts every 200 ms, as after queueing.
        let result =
            receive(&plan, |since, sent| (since.as_millis() as u64 / 200 * 2_500_000).saturating_sub(sent));
        // Bursts of more than 1 Gbit/s would allow 67 MB; 540 ms of 100 Mbit/s are 6.75 MB.
        let bytes = result.bytes().get();
        assert!((5_000_000..=20_000_000).contains(&bytes), "{bytes}");
    }
}
