//! Assigns one interval of a transfer to one limit, by what the intervals before it have shown.

use std::collections::VecDeque;
use std::time::Duration;

use super::reading::{End, Reading};
use super::{LONG_RTT, LimitedBy};
use crate::units::{Bytes, Rate, Rtt};

/// Two readings, and the time between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    /// When it ends, since the transfer's start.
    pub(super) end: Duration,
    /// How long it is.
    pub(super) span: Duration,
    /// The reading at its start.
    pub(super) before: Reading,
    /// The reading at its end.
    pub(super) now: Reading,
}

/// Thresholds of the classification.
struct Params {
    /// A share of an interval from which on a wait, or one of the kernel's counters, is its limit.
    most: f64,
    /// A share of an interval from which on a thread occupies its core.
    busy_core: f64,
    /// Data wait in a queue where their RTT exceeds the least one by this factor. Below it lies the jitter of delayed
    /// acknowledgements and of timestamps, whose unit is 1 ms (RFC 7323, section 5.4).
    queued: f64,
    /// A window is full from this share in flight on. Receive autotuning keeps it at twice of what arrives in a round
    /// trip (Linux, tcp_rcv_space_adjust) wherever it may.
    full_window: f64,
    /// A peer that does not read shrinks its window to less than this share of its largest one.
    closed_window: f64,
    /// Growth over the best rate so far that shows TCP speeding up.
    growth: f64,
    /// Rates that differ by less than this share are flat.
    flat: f64,
    /// Slow start from 10 packets to 10 Gbit/s at 1448 bytes takes about 14 doublings, a round trip each, and settles in a few more.
    ramp_up: u32,
    /// Round trips before the first byte: a look-up, connect, two of TLS, what the server can do, and the request.
    opening: u32,
    /// How long a loss keeps CUBIC below the window at which it happened: K = cbrt(W x 0.3 / 0.4) seconds (RFC 9438, section
    /// 4.2) is 20 s for 10,000 packets.
    recovery: Duration,
    /// What a stock Linux server has in flight at most: 2 to 4.5 MB of payload in `tcp_wmem[2]` = 4 MiB, less bookkeeping,
    /// plus rounding (docs/servers.md).
    stock_send_buffer: (Bytes, Bytes),
    /// The time over which idle intervals of the server are counted.
    gaps_over: Duration,
    /// The share of that time from which on the server stops and starts.
    stop_and_go: f64,
}

const PARAMS: Params = Params {
    most: 0.25,
    busy_core: 0.85,
    queued: 1.1,
    full_window: 0.7,
    closed_window: 0.5,
    growth: 1.05,
    flat: 0.15,
    ramp_up: 20,
    opening: 6,
    recovery: Duration::from_secs(20),
    stock_send_buffer: (Bytes::new(1_500_000), Bytes::new(4_500_000)),
    gaps_over: Duration::from_millis(2500),
    stop_and_go: 0.3,
};

/// A data RTT this much above the least one is a queue only beyond it: the granularity of timestamps.
const TIMESTAMP_TICK: Duration = Duration::from_millis(1);

/// What earlier intervals have shown.
#[derive(Debug, Clone)]
pub(super) struct Classifier {
    end: End,
    /// Whether the peer paces itself to the path's capacity.
    peer_paces: bool,
    /// When the first byte had arrived.
    first_byte: Option<Duration>,
    /// The highest rate of an interval.
    best: Rate,
    /// Whether TCP may still be speeding up, and in how many intervals in a row it was not.
    flat_intervals: u32,
    ramped_up: bool,
    /// The rates of the last intervals, and whether each was idle.
    recent: VecDeque<(Duration, Rate)>,
    /// When a packet was lost last without a queue.
    lost_at: Option<Duration>,
    /// The largest window so far.
    largest_window: Bytes,
    last: LimitedBy,
}

impl Interval {
    pub(super) fn moved(&self) -> Bytes {
        self.now.moved.saturating_sub(self.before.moved)
    }

    pub(super) fn rate(&self) -> Rate {
        Rate::over(self.moved(), self.span)
    }

    pub(super) fn lost(&self) -> u64 {
        self.now.lost.saturating_sub(self.before.lost)
    }

    pub(super) fn min_rtt(&self) -> Option<Rtt> {
        self.now.min_rtt.or(self.before.min_rtt)
    }

    /// Returns the bytes in flight: as measured, or the rate times the RTT of the empty path.
    pub(super) fn in_flight(&self) -> Bytes {
        let of_rate = || self.min_rtt().map_or(Bytes::ZERO, |rtt| self.rate().bdp(rtt));
        self.now.in_flight.unwrap_or_else(of_rate)
    }

    /// Returns the connections at work; at least one.
    pub(super) fn streams(&self) -> u64 {
        self.now.streams.max(self.before.streams).max(1) as u64
    }

    /// Returns the growth of a time that is summed over the connections, as a share of this interval.
    pub(super) fn share(&self, of: impl Fn(&Reading) -> Option<Duration>) -> f64 {
        let grown = of(&self.now).unwrap_or_default().saturating_sub(of(&self.before).unwrap_or_default());
        grown.as_secs_f64() / (self.span.as_secs_f64() * self.streams() as f64).max(1e-9)
    }

    /// Returns whether the data wait in a queue of the path.
    pub(super) fn is_queued(&self) -> bool {
        self.min_rtt().zip(self.now.data_rtt).is_some_and(|(least, data)| {
            data.get() > least.get().mul_f64(PARAMS.queued) && data.get() > least.get() + TIMESTAMP_TICK
        })
    }
}

impl Classifier {
    pub(super) fn new(end: End, peer_paces: bool) -> Self {
        Self {
            end,
            peer_paces,
            first_byte: None,
            best: Rate::default(),
            flat_intervals: 0,
            ramped_up: false,
            recent: VecDeque::new(),
            lost_at: None,
            largest_window: Bytes::ZERO,
            last: LimitedBy::SlowStart,
        }
    }

    /// Returns the limit of the next interval.
    pub(super) fn classify(&mut self, interval: &Interval) -> LimitedBy {
        self.note_loss(interval);
        self.largest_window = self.largest_window.max(interval.now.window.unwrap_or_default());
        let rate = interval.rate();
        self.recent.push_back((interval.end, rate));
        while self.recent.front().is_some_and(|(at, _)| *at + PARAMS.gaps_over < interval.end) {
            self.recent.pop_front();
        }
        let limit = self.own_limit(interval).unwrap_or_else(|| self.of_the_connection(interval));
        self.best = self.best.max(rate);
        self.last = limit;
        limit
    }

    /// Notes whether a loss has a cause other than a full queue.
    fn note_loss(&mut self, interval: &Interval) {
        if interval.is_queued() {
            self.lost_at = None;
        } else if interval.lost() > 0 {
            self.lost_at = Some(interval.end);
        }
        let over = |lost_at: &Duration| *lost_at + PARAMS.recovery < interval.end;
        self.lost_at = self.lost_at.filter(|lost_at| !over(lost_at));
    }

    /// Returns the limit that lies in this host's program, if there is one.
    fn own_limit(&self, interval: &Interval) -> Option<LimitedBy> {
        let threads = |of: fn(&super::ThreadTimes) -> Duration| {
            interval.share(move |reading| reading.threads.as_ref().map(of))
        };
        let (limit, disk) = (threads(|times| times.limit), threads(|times| times.disk));
        // Of one thread, not summed over the streams.
        let streams = interval.streams() as f64;
        let (ran, starved) = (threads(|times| times.ran) * streams, threads(|times| times.starved) * streams);
        let is_busy = ran > PARAMS.busy_core || (ran + starved > PARAMS.busy_core && self.lags(interval));
        if limit.max(disk) > PARAMS.most {
            return Some(if limit > disk { LimitedBy::Limit } else { LimitedBy::Disk });
        }
        if is_busy {
            return Some(LimitedBy::Cpu);
        }
        if interval.before.buffer_full && interval.now.buffer_full {
            return Some(LimitedBy::Disk);
        }
        let unread = |reading: &Reading| reading.unread.get();
        let room = interval.now.window.unwrap_or_default().get();
        let backlog = unread(&interval.before).min(unread(&interval.now));
        // With a closed window everything that may arrive lies unread.
        (backlog > 0 && backlog >= room).then_some(LimitedBy::Application)
    }

    /// Returns whether the connection waits for this host's threads: a receiver's socket fills, or a sender's is empty. A thread
    /// that waits for a core limits nothing otherwise.
    fn lags(&self, interval: &Interval) -> bool {
        match self.end {
            End::Receiver => {
                let unread = interval.now.unread.max(interval.before.unread).get() as f64;
                let room = interval.now.window.unwrap_or_default().get() as f64;
                unread > PARAMS.most * (unread + room)
            }
            End::Sender => interval.share(busy) < PARAMS.busy_core,
        }
    }

    fn of_the_connection(&mut self, interval: &Interval) -> LimitedBy {
        if interval.moved() == Bytes::ZERO {
            return self.without_bytes(interval);
        }
        let first_byte = *self.first_byte.get_or_insert(interval.end);
        if let Some(limit) = self.by_kernel(interval) {
            return limit;
        }
        if self.stops_and_goes(interval) {
            return LimitedBy::Server;
        }
        if self.is_speeding_up(interval, first_byte) {
            return LimitedBy::SlowStart;
        }
        if self.end == End::Sender && Self::leaves_its_windows(interval) {
            return LimitedBy::SendBuffer;
        }
        if interval.is_queued() {
            return LimitedBy::Path;
        }
        if self.end == End::Receiver && self.is_window_full(interval) {
            return LimitedBy::ReceiveWindow;
        }
        if self.lost_at.is_some() {
            return LimitedBy::Loss;
        }
        self.without_queue_and_loss(interval)
    }

    /// Returns the limit of an interval in which nothing was moved.
    fn without_bytes(&self, interval: &Interval) -> LimitedBy {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        if self.first_byte.is_none() {
            let known = |rtt: Rtt| (rtt.get() * PARAMS.opening).max(Duration::from_millis(100));
            // Before the handshake is over the RTT is not known; after a second a SYN is sent again (RFC 6298, section 2).
            let opening = interval.min_rtt().map_or(Duration::from_secs(1), known);
            return if interval.end <= opening { LimitedBy::SlowStart } else { LimitedBy::Server };
        }
        if self.lost_at.is_some_and(|at| at + Duration::from_secs(1).max(rtt * 4) >= interval.end) {
            return LimitedBy::Loss;
        }
        if interval.now.streams > 0 && interval.span < rtt.mul_f64(1.5) {
            return self.last;
        }
        match (self.end, interval.now.sender, interval.now.threads) {
            // Data lies in the send buffer and the peer acknowledges none of it.
            (End::Sender, Some(_), _) if interval.share(busy) > PARAMS.most => {
                self.by_sender(interval).unwrap_or(LimitedBy::Path)
            }
            (End::Sender, _, None) => LimitedBy::Application,
            _ => LimitedBy::Server,
        }
    }

    /// Returns the limit that the sender's kernel names.
    fn by_kernel(&self, interval: &Interval) -> Option<LimitedBy> {
        if self.end == End::Receiver || interval.now.sender.is_none() {
            return None;
        }
        if interval.share(busy) < PARAMS.most {
            // Nothing to send: this program waits for the server, another one for what it alone knows.
            let known = interval.now.threads.is_some();
            return Some(if known { LimitedBy::Server } else { LimitedBy::Application });
        }
        self.by_sender(interval)
    }

    /// Reads the kernel's account of what limited a sender with data to send.
    fn by_sender(&self, interval: &Interval) -> Option<LimitedBy> {
        let of_busy =
            |part: fn(&Reading) -> Option<Duration>| interval.share(part) / interval.share(busy).max(1e-9);
        let window = of_busy(|reading| Some(reading.sender?.window_limited));
        let buffer = of_busy(|reading| Some(reading.sender?.buffer_limited));
        if window.max(buffer) < PARAMS.most {
            return None;
        }
        if buffer > window {
            return Some(LimitedBy::SendBuffer);
        }
        // A receiver that reads at once keeps its window open; one that does not lets it close.
        let open = self.largest_window.get() as f64 * PARAMS.closed_window;
        let closed = interval.now.window.is_some_and(|window| (window.get() as f64) < open);
        Some(if closed { LimitedBy::Server } else { LimitedBy::ReceiveWindow })
    }

    /// Returns whether the server sends in bursts with gaps that are longer than a round trip, as a rate limit in user space does.
    fn stops_and_goes(&self, interval: &Interval) -> bool {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let observed = interval.end.saturating_sub(self.first_byte.unwrap_or(interval.end));
        if self.end == End::Sender
            || self.lost_at.is_some()
            || interval.span < rtt
            || observed < PARAMS.gaps_over
        {
            return false;
        }
        let idle = |rate: Rate| rate.as_bits_per_sec() < self.best.as_bits_per_sec() / 20;
        let gaps = self.recent.iter().filter(|(_, rate)| idle(*rate)).count();
        gaps as f64 >= PARAMS.stop_and_go * self.recent.len() as f64
    }

    /// Returns whether TCP is still speeding up: its rate grows, and nothing was lost.
    fn is_speeding_up(&mut self, interval: &Interval, first_byte: Duration) -> bool {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let early = interval.end.saturating_sub(first_byte) <= rtt * PARAMS.ramp_up;
        let grows = interval.rate() > self.best.scaled(PARAMS.growth);
        if self.ramped_up {
            return false;
        }
        if interval.lost() > 0 || !(early || rtt >= LONG_RTT) {
            self.ramped_up = true;
            return false;
        }
        self.flat_intervals = if grows { 0 } else { self.flat_intervals + 1 };
        // One interval without growth may be the jitter of the readings.
        self.ramped_up = self.flat_intervals >= 2;
        grows
    }

    /// Returns whether a sender that always has data keeps less in flight than congestion window, peer and pacing let it: its
    /// buffer holds no more. The kernel's own counter (`tcpi_sndbuf_limited`) misses that while acknowledgements free the buffer
    /// as fast as the program fills it.
    fn leaves_its_windows(interval: &Interval) -> bool {
        let Reading { congestion_window, window, pacing_rate, data_rtt, .. } = interval.now;
        let (Some(congestion), Some(rtt)) = (congestion_window, data_rtt) else { return false };
        let most = window.map_or(congestion, |window| window.min(congestion)).get() as f64;
        let rate = interval.rate();
        // The kernel's own pacing allows 1.2 windows a round trip (net.ipv4.tcp_pacing_ca_ratio).
        let unpaced = pacing_rate.is_none_or(|pacing| pacing > rate.scaled(1.5));
        let in_flight = rate.bdp(rtt).get() as f64;
        rtt.get() >= LONG_RTT
            && unpaced
            && interval.share(busy) > PARAMS.busy_core
            && in_flight < most * PARAMS.full_window
    }

    /// Returns whether what is in flight fills the receive window.
    fn is_window_full(&self, interval: &Interval) -> bool {
        let long = interval.min_rtt().is_some_and(|rtt| rtt.get() >= TIMESTAMP_TICK);
        // A window that closes is wide open a moment before.
        let window = interval.now.window.max(interval.before.window).unwrap_or_default();
        let full = window.get() as f64 * PARAMS.full_window;
        long && window > Bytes::ZERO && interval.in_flight().get() as f64 >= full
    }

    /// Tells apart what is left where the window is open, no queue stands, and nothing is lost.
    fn without_queue_and_loss(&self, interval: &Interval) -> LimitedBy {
        let long = interval.min_rtt().is_some_and(|rtt| rtt.get() >= LONG_RTT);
        if self.end == End::Sender || self.peer_paces || !long || !self.is_flat(interval) {
            return LimitedBy::Path;
        }
        let per_stream = Bytes::new(interval.in_flight().get() / interval.streams());
        let (least, most) = PARAMS.stock_send_buffer;
        match per_stream {
            small if small < least => LimitedBy::Server,
            buffer if buffer <= most => LimitedBy::ServerSendBuffer,
            _ => LimitedBy::Path,
        }
    }

    /// Returns whether the rate was the same in the last intervals.
    fn is_flat(&self, interval: &Interval) -> bool {
        const INTERVALS: usize = 2;
        let rate = interval.rate().as_bits_per_sec() as f64;
        let alike = |(_, other): &(Duration, Rate)| {
            (other.as_bits_per_sec() as f64 - rate).abs() <= rate * PARAMS.flat
        };
        self.recent.len() >= INTERVALS && self.recent.iter().rev().take(INTERVALS).all(alike)
    }
}

fn busy(reading: &Reading) -> Option<Duration> {
    reading.sender.map(|times| times.busy)
}
