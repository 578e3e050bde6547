//! Assigns one interval of a transfer to one limit, by what the intervals before it have shown.

use std::collections::VecDeque;
use std::time::Duration;

use super::interval::Interval;
use super::loss::{Loss, recovery};
use super::reading::{End, Reading};
use super::recent_rates::{self, PastRate, RecentRates};
use super::{LONG_RTT, LimitedBy, TIMESTAMP_TICK};
use crate::plan::{STOCK_TCP_WMEM_MAX, send_buffer_in_flight};
use crate::units::{Bytes, Rate, Rtt};

/// Thresholds of the classification.
struct Params {
    /// A share of an interval from which on a wait, or one of the kernel's counters, is its limit.
    most: f64,
    /// A share of an interval from which on a thread occupies its core.
    busy_core: f64,
    /// Data wait in a queue where their RTT exceeds the least one by this factor. Below it lies the jitter of delayed
    /// acknowledgements and of timestamps, whose unit is 1 ms (RFC 7323, section 5.4).
    queued: f64,
    /// A queue stands where it does not drain within so many round trips, and within `standing_at_least`: the least delay over more
    /// than a round trip tells a standing queue from bursts (RFC 8289, section 3). Readings are at most an interval apart, and the
    /// estimate of a receiver (`tcpi_rcv_rtt`) is of single bursts.
    standing_round_trips: u32,
    /// Five readings.
    standing_at_least: Duration,
    /// In slow start flights wait for half of their length at most, a quarter of a round trip until they fill the path: data that were
    /// delayed by more just before a loss lay in a queue that overflowed.
    overflowing: f64,
    /// A sender was held by the bottleneck so many times within so many round trips, and not more often than these apart: BBR probes once
    /// in eight round trips (draft-ietf-ccwg-bbr), a small send buffer bursts once in each.
    held_times: usize,
    held_round_trips: u32,
    held_apart: u32,
    /// A window is full from this share in flight on. Receive autotuning keeps it at twice of what arrives in a round
    /// trip (Linux, tcp_rcv_space_adjust) wherever it may.
    full_window: f64,
    /// A peer that does not read shrinks its window to less than this share of its largest one, or lets less than this share of a window
    /// pass in a round trip.
    closed_window: f64,
    /// Slow start from 10 packets to 10 Gbit/s at 1448 bytes takes about 14 doublings, a round trip each, and settles in a few more.
    ramp_up: u32,
    /// Round trips before the first byte: a look-up, connect, two of TLS, what the server can do, and the request.
    opening: u32,
    /// After a loss CUBIC sends at 0.7 of its rate, and Reno at half of it (RFC 9438, section 4.6; RFC 5681, section 3.1): a rate
    /// that remains above this share was not bound to the congestion window.
    unmoved: f64,
    /// What a stock Linux server has in flight at most.
    stock_send_buffer: (Bytes, Bytes),
}

const PARAMS: Params = Params {
    most: 0.25,
    busy_core: 0.85,
    queued: 1.1,
    standing_round_trips: 4,
    standing_at_least: Duration::from_millis(450),
    overflowing: 1.25,
    held_times: 2,
    held_round_trips: 24,
    held_apart: 7,
    full_window: 0.7,
    closed_window: 0.5,
    ramp_up: 20,
    opening: 6,
    unmoved: 0.9,
    stock_send_buffer: send_buffer_in_flight(STOCK_TCP_WMEM_MAX),
};

/// Payload of a packet of 1500 bytes with timestamps (RFC 7323).
const PACKET: f64 = 1448.0;

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
    /// The rates of the last intervals.
    recent: RecentRates,
    /// The RTT of the data in the last intervals.
    data_rtts: VecDeque<(Duration, Rtt)>,
    /// Whether the send buffers were empty at the last readings.
    emptied: VecDeque<(Duration, bool)>,
    /// When the sender sent more and the bottleneck let no more through.
    held: VecDeque<Duration>,
    /// When a packet was lost last.
    lost_at: Option<Duration>,
    /// The last loss, unless a queue has stood since.
    loss: Option<Loss>,
    /// The largest window so far.
    largest_window: Bytes,
    last: LimitedBy,
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
            recent: RecentRates::default(),
            data_rtts: VecDeque::new(),
            emptied: VecDeque::new(),
            held: VecDeque::new(),
            lost_at: None,
            loss: None,
            largest_window: Bytes::ZERO,
            last: LimitedBy::SlowStart,
        }
    }

    /// Returns the limit of the next interval.
    pub(super) fn classify(&mut self, interval: &Interval) -> LimitedBy {
        let was_queued = self.is_queued(interval) || self.overflows_in_slow_start(interval);
        self.note_data_rtt(interval);
        self.note_loss(interval, was_queued);
        self.largest_window = self.largest_window.max(interval.now.window.unwrap_or_default());
        let rate = interval.rate();
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        self.lost_at = if interval.lost() > 0 { Some(interval.end) } else { self.lost_at };
        let after_loss = self
            .lost_at
            .is_some_and(|at| at + interval.span + Self::retransmission_timeout(rtt) >= interval.end);
        self.recent.push(PastRate { end: interval.end, rate, after_loss });
        self.note_held(interval, after_loss);
        self.note_emptied(interval);
        let limit = self.own_limit(interval).unwrap_or_else(|| self.of_the_connection(interval));
        self.best = self.best.max(rate);
        self.last = limit;
        limit
    }

    fn note_data_rtt(&mut self, interval: &Interval) {
        let over = Self::standing_over(interval);
        self.data_rtts.extend(interval.now.data_rtt.map(|data_rtt| (interval.end, data_rtt)));
        while self.data_rtts.front().is_some_and(|(at, _)| at.saturating_add(over) < interval.end) {
            self.data_rtts.pop_front();
        }
    }

    /// Notes an interval in which the sender sent more than arrived: the delay of the data grew, and their rate stayed.
    ///
    /// Of a sender with an even rate, what is delayed by more arrives later: the rate is lower by the growth of the delay over the
    /// interval. It is not where the sender sends more by as much, as BBR does once in a cycle, and the bottleneck holds it.
    fn note_held(&mut self, interval: &Interval, after_loss: bool) {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let kept = recent_rates::COVERED.max(rtt * PARAMS.held_round_trips);
        while self.held.front().is_some_and(|at| at.saturating_add(kept) < interval.end) {
            self.held.pop_front();
        }
        let (Some(before), Some(highest)) = (interval.before.data_rtt, interval.highest_data_rtt) else {
            return;
        };
        let growth = highest.get().saturating_sub(before.get());
        if self.end == End::Sender
            || after_loss
            || growth <= TIMESTAMP_TICK.max(rtt.mul_f64(PARAMS.queued - 1.0))
        {
            return;
        }
        let dip = growth.as_secs_f64() / interval.span.as_secs_f64();
        // One rise may take two intervals.
        let is_another = self.held.back().is_none_or(|at| at.saturating_add(rtt * 4) <= interval.end);
        if is_another && self.recent.is_even(dip / 2.0) {
            self.held.push_back(interval.end);
        }
    }

    fn note_emptied(&mut self, interval: &Interval) {
        self.emptied.push_back((interval.end, interval.now.send_buffers_empty));
        let covered = |at: Duration| at.saturating_add(recent_rates::COVERED) >= interval.end;
        while self.emptied.front().is_some_and(|(at, _)| !covered(*at)) {
            self.emptied.pop_front();
        }
    }

    /// Returns whether the send buffers hold less than the windows let through: else they are not empty for a quarter of the time.
    /// BBR takes what such a buffer lets it send for the path's rate, and leaves no other sign: `tcpi_sndbuf_limited` then counts a fifth
    /// of the time.
    fn are_send_buffers_emptied(&self) -> bool {
        let times = self.emptied.iter().filter(|(_, empty)| *empty).count();
        times >= 2 && times as f64 >= PARAMS.most * self.emptied.len() as f64
    }

    /// Returns whether the bottleneck holds a sender that probes from time to time.
    fn is_held(&self, interval: &Interval) -> bool {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let (Some(first), Some(last)) = (self.held.front(), self.held.back()) else { return false };
        let gaps = u32::try_from(self.held.len() - 1).unwrap_or(u32::MAX);
        self.held.len() >= PARAMS.held_times
            && last.saturating_sub(*first) >= rtt * PARAMS.held_apart.saturating_mul(gaps)
    }

    /// Returns whether the delay of the data just before a loss in slow start shows that a queue overflowed.
    fn overflows_in_slow_start(&self, interval: &Interval) -> bool {
        let delays = interval.min_rtt().zip(interval.highest_before_loss.max(interval.before.data_rtt));
        !self.ramped_up
            && delays.is_some_and(|(least, highest)| {
                highest.get() > least.get().mul_f64(PARAMS.overflowing) + TIMESTAMP_TICK
            })
    }

    /// Returns the time after which a queue that has not drained stands.
    fn standing_over(interval: &Interval) -> Duration {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        PARAMS.standing_at_least.max(rtt * PARAMS.standing_round_trips)
    }

    /// Returns whether data wait in a queue of the path that does not drain between bursts.
    fn is_queued(&self, interval: &Interval) -> bool {
        let over = Self::standing_over(interval);
        // Fewer readings may be of one burst.
        let covered =
            self.data_rtts.front().is_some_and(|(at, _)| at.saturating_add(over / 2) <= interval.end);
        let data = self.data_rtts.iter().map(|(_, data_rtt)| *data_rtt).min().filter(|_| covered);
        interval.min_rtt().zip(data).is_some_and(|(least, data)| {
            data.get() > least.get().mul_f64(PARAMS.queued) && data.get() > least.get() + TIMESTAMP_TICK
        })
    }

    /// Notes a loss that takes a part of the interval at least, or forgets the last one.
    fn note_loss(&mut self, interval: &Interval, was_queued: bool) {
        let is_queued = self.is_queued(interval);
        if interval.lost() == 0 || is_queued {
            self.loss = self.loss.filter(|_| !is_queued);
            self.judge_loss(interval);
            return;
        }
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let highest = self.recent.highest().max(interval.rate());
        let packets = highest.bdp(Rtt::new(rtt)).get() as f64 / interval.streams() as f64 / PACKET;
        let recovery = recovery(packets, rtt);
        // All that is in flight behind a lost packet arrives out of order, once a round trip at most.
        let events = match self.end {
            End::Receiver => interval.lost() as f64 / packets.max(1.0),
            End::Sender => interval.lost() as f64,
        };
        let round_trips = interval.span.as_secs_f64() / rtt.as_secs_f64().max(1e-9);
        let events = events.clamp(1.0, round_trips.max(1.0));
        if recovery.as_secs_f64() * events >= PARAMS.most * interval.span.as_secs_f64() {
            let earlier = self.loss;
            // What the first of several losses has lowered is no measure of the next one's effect.
            let measured = earlier.filter(|loss| !loss.is_found_harmless());
            // A burst of losses takes some round trips to repair, in which more may be lost: one event.
            let burst =
                earlier.filter(|loss| interval.end.saturating_sub(loss.began) <= interval.span + rtt * 5);
            self.loss = Some(Loss {
                at: interval.end,
                began: burst.map_or(interval.end, |loss| loss.began),
                recovery,
                is_overflow: was_queued || burst.is_some_and(|loss| loss.is_overflow),
                before: measured.map_or_else(|| self.recent.before_loss(), |loss| loss.before),
                since: measured.map_or_else(Default::default, |loss| loss.since),
                is_harmless: earlier.is_some_and(|loss| loss.is_harmless),
                outlasts: true,
            });
        }
    }

    /// Judges by the rate since a loss whether it has slowed the transfer, and forgets one that has not, or that is long ago.
    fn judge_loss(&mut self, interval: &Interval) {
        let grows = self.loss.is_some_and(|loss| self.recent.grows_since(loss.at));
        let Some(loss) = &mut self.loss else { return };
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let age = interval.end.saturating_sub(loss.at);
        // Within a quarter of its recovery CUBIC is below 0.88 of the window at the loss; retransmission takes a round trip or two.
        if age > rtt * 2 && age <= loss.recovery / 4 {
            let (moved, intervals, time) = loss.since;
            loss.since = (moved + interval.moved(), intervals + 1, time + interval.span);
        }
        if loss.is_measured() {
            let (moved, _, time) = loss.since;
            let left = Rate::over(moved, time);
            loss.is_harmless = loss.before.is_some_and(|before| left >= before.scaled(PARAMS.unmoved));
        }
        let awaits_timeout = age <= Self::retransmission_timeout(rtt);
        // Beyond its recovery the window grows on from the loss, until something else limits.
        loss.outlasts = loss.limits(interval.end) || (loss.outlasts && grows);
        if !(loss.outlasts || awaits_timeout) {
            self.loss = None;
        }
    }

    /// Returns how long a connection may stand still after a loss: a round trip until the loss is known, and Linux's RTO, which is
    /// at least 200 ms beyond the RTT (`TCP_RTO_MIN`, include/net/tcp.h).
    fn retransmission_timeout(rtt: Duration) -> Duration {
        rtt * 2 + Duration::from_millis(200)
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

    /// Returns whether the connection waits for this host's threads: data lie in a receiver's socket throughout, for a quarter of the
    /// interval at the rate at which they are read (Little's law), or a sender's is empty. A thread that waits for a core limits nothing
    /// otherwise.
    fn lags(&self, interval: &Interval) -> bool {
        match self.end {
            End::Receiver => {
                let backlog = interval.now.unread.min(interval.before.unread).get() as f64;
                backlog > 0.0 && backlog >= PARAMS.most * interval.moved().get() as f64
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
        let is_emptied = self.are_send_buffers_emptied() && !self.is_queued(interval);
        if self.end == End::Sender && (is_emptied || Self::leaves_its_windows(interval)) {
            return LimitedBy::SendBuffer;
        }
        if self.is_queued(interval) || self.is_held(interval) {
            return LimitedBy::Path;
        }
        if self.end == End::Receiver && self.is_window_full(interval) {
            return LimitedBy::ReceiveWindow;
        }
        if let Some(loss) = self.loss.filter(|loss| loss.outlasts && !loss.is_harmless) {
            return if loss.is_overflow { LimitedBy::Path } else { LimitedBy::Loss };
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
        if self.loss.is_some_and(|loss| loss.at + Self::retransmission_timeout(rtt) >= interval.end) {
            return LimitedBy::Loss;
        }
        // What lies in the socket throughout is not read for want of a core: waits for the disk and for --limit count before. The kernel
        // accounts a wait for a core (schedstat) only when it ends.
        let backlog = interval.now.unread.min(interval.before.unread);
        if self.end == End::Receiver && interval.now.threads.is_some() && backlog > Bytes::ZERO {
            return LimitedBy::Cpu;
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
        // A receiver that reads at once keeps its window open; one that does not lets it close, or opens it seldom: then less than a
        // window passes in a round trip.
        let open = self.largest_window.get() as f64 * PARAMS.closed_window;
        let rtt = interval.now.data_rtt.max(interval.min_rtt()).unwrap_or_default();
        let unread = interval.now.window.is_some_and(|window| {
            let window = window.get() as f64;
            window < open || (interval.rate().bdp(rtt).get() as f64) < window * PARAMS.closed_window
        });
        // On a short path no window limits.
        let unread = unread || rtt.get() < TIMESTAMP_TICK;
        Some(if unread { LimitedBy::Server } else { LimitedBy::ReceiveWindow })
    }

    /// Returns whether the server sends in bursts with gaps that are longer than a round trip, as a rate limit in user space does.
    fn stops_and_goes(&self, interval: &Interval) -> bool {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let observed = interval.end.saturating_sub(self.first_byte.unwrap_or(interval.end));
        if self.end == End::Sender || interval.span < rtt || observed < recent_rates::COVERED {
            return false;
        }
        self.recent.stop_and_go()
    }

    /// Returns whether TCP is still speeding up: its rate grows, and nothing was lost.
    fn is_speeding_up(&mut self, interval: &Interval, first_byte: Duration) -> bool {
        let rtt = interval.min_rtt().map_or(Duration::ZERO, Rtt::get);
        let early = interval.end.saturating_sub(first_byte) <= rtt * PARAMS.ramp_up;
        let grows = interval.rate() > self.best.scaled(recent_rates::GROWTH);
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
        let (window, in_flight) = (window.get() as f64, interval.in_flight().get() as f64);
        // More than the window cannot have been in flight: it was larger between the readings.
        long && in_flight >= window * PARAMS.full_window && in_flight <= window / PARAMS.full_window
    }

    /// Tells apart what is left where the window is open, no queue stands, and nothing is lost.
    fn without_queue_and_loss(&self, interval: &Interval) -> LimitedBy {
        let long = interval.min_rtt().is_some_and(|rtt| rtt.get() >= LONG_RTT);
        if self.end == End::Sender || self.peer_paces || !long || self.recent.settled().is_none() {
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
}

fn busy(reading: &Reading) -> Option<Duration> {
    reading.sender.map(|times| times.busy)
}
