//! Assigns one interval of a transfer to one limit, by what the intervals before it have shown.

mod kernel_account;

use std::time::Duration;

use super::bottleneck_queue::{BottleneckQueue, Lateness, overflowed_in_slow_start};
use super::capped_arrivals::CappedArrivals;
use super::interval::Interval;
use super::loss::LossTracker;
use super::params;
use super::reading::{End, Reading, SenderPace};
use super::recent_rates::{self, PastRate, RecentRates};
use super::send_buffer::{SendBufferReadings, is_below_windows};
use super::slow_start::SlowStart;
use super::witness::Witness;
use super::{LONG_RTT, LimitedBy, TIMESTAMP_TICK, ThreadTimes};
use crate::units::{Bytes, Rate, Rtt};
use kernel_account::window_limited_share;

/// The rules of the classification, and what earlier intervals have shown.
#[derive(Debug, Clone)]
pub(super) struct Classifier {
    end: End,
    pub(super) ends: KnownEnds,
    /// When the first byte had arrived.
    first_byte: Option<Duration>,
    rates: RateHistory,
    queue: BottleneckQueue,
    pub(super) capped: CappedArrivals,
    losses: LossTracker,
    /// Whether the transfer had begun before it was observed.
    pub(super) is_under_way: bool,
    buffers: BufferHistory,
    last: Witness,
}

/// What is known of the ends, beside what is observed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownEnds {
    /// What the sender paces itself to.
    pub(super) pace: Option<SenderPace>,
    /// Whether the other end is a client, of which nothing else is known: the server was observed,
    /// or an upload is known from its packets.
    pub(super) is_client_peer: bool,
    /// Whether packets were observed, not sockets.
    pub(super) is_capture: bool,
}

/// How fast the transfer was in earlier intervals.
#[derive(Debug, Clone, Default)]
struct RateHistory {
    slow_start: SlowStart,
    recent: RecentRates,
}

/// How full the buffers of both ends were.
#[derive(Debug, Clone)]
struct BufferHistory {
    /// The smallest and the largest window of a connection.
    windows: (u64, u64),
    /// The end of the last interval in which the peer's window was closed.
    window_closed: Option<Duration>,
    send: SendBufferReadings,
}

impl Classifier {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            ends: KnownEnds::default(),
            first_byte: None,
            rates: RateHistory::default(),
            queue: BottleneckQueue::default(),
            capped: CappedArrivals::default(),
            losses: LossTracker::new(end),
            is_under_way: false,
            buffers: BufferHistory {
                windows: (u64::MAX, 0),
                window_closed: None,
                send: SendBufferReadings::default(),
            },
            last: Witness::Opening,
        }
    }

    /// Returns what shows the limit of the next interval.
    pub(super) fn classify(&mut self, interval: &Interval) -> Witness {
        self.record(interval);
        let witness = self.limit_of_host(interval).unwrap_or_else(|| self.limit_of_connection(interval));
        self.rates.slow_start.record_rate(interval.rate());
        if witness.limit() == LimitedBy::SlowStart {
            self.rates.recent.note_growth();
            self.queue.note_growth();
        }
        if witness == Witness::ClosedWindow && window_limited_share(interval) >= params::LIMITING_SHARE {
            self.buffers.window_closed = Some(interval.end);
        }
        self.last = witness;
        if self.ends.is_client_peer { witness.of_client(self.end) } else { witness }
    }

    fn record(&mut self, interval: &Interval) {
        let in_slow_start = !self.rates.slow_start.has_ended;
        let is_overflow = in_slow_start && overflowed_in_slow_start(interval);
        let was_queued = self.queue.is_standing(interval) || is_overflow;
        let after_loss = interval.lost() > 0 || self.losses.is_after_loss(interval);
        self.queue.record(interval, after_loss, was_queued);
        self.capped.record(interval, self.end);
        let queues = (was_queued, self.queue.is_standing(interval));
        self.losses.record(interval, queues, &self.rates.recent);
        let arrived = interval.now.moved + interval.now.unread;
        self.rates.recent.push(PastRate { end: interval.end, rate: interval.rate(), arrived, after_loss });
        self.buffers.send.record(interval);
        if let Some(window) = interval.now.window {
            let window = window.get() / interval.streams();
            self.buffers.windows = (self.buffers.windows.0.min(window), self.buffers.windows.1.max(window));
        }
    }

    /// Returns the limit that lies in this host's program, if there is one.
    fn limit_of_host(&self, interval: &Interval) -> Option<Witness> {
        let threads = |of: fn(&ThreadTimes) -> Duration| {
            interval.share(move |reading| reading.threads.as_ref().map(of))
        };
        let (limit, disk) = (threads(|times| times.limit), threads(|times| times.disk));
        // Of one thread, not summed over the streams.
        let streams = interval.streams() as f64;
        let (ran, starved) = (threads(|times| times.ran) * streams, threads(|times| times.starved) * streams);
        let is_busy =
            ran > params::BUSY_SHARE || (ran + starved > params::BUSY_SHARE && self.awaits_threads(interval));
        if limit.max(disk) > params::LIMITING_SHARE {
            return Some(if limit > disk { Witness::LimitWaits } else { Witness::DiskWaits });
        }
        if is_busy {
            return Some(if ran > params::BUSY_SHARE { Witness::BusyThread } else { Witness::CoreWaits });
        }
        if interval.before.buffer_full && interval.now.buffer_full {
            return Some(Witness::FullApplicationBuffer);
        }
        let unread = |reading: &Reading| reading.unread.get();
        let room = interval.now.window.unwrap_or_default().get();
        let backlog = unread(&interval.before).min(unread(&interval.now));
        // With a closed window everything that may arrive lies unread, and what is in flight fills
        // the rest: a window that is small for another reason, as a clamp, leaves room.
        let is_full = interval.base_rtt() < LONG_RTT
            || interval.in_flight().get() as f64 >= room as f64 * params::FULL_WINDOW_SHARE;
        // Another program shows a slow reader only by unread data. A capture infers unread data
        // from the window, which may be clamped.
        let is_left = !self.ends.is_capture
            && interval.now.threads.is_none()
            && self.end == End::Receiver
            && interval.moved() > Bytes::ZERO
            && self.awaits_threads(interval);
        (backlog > 0 && backlog >= room && is_full || is_left).then_some(Witness::Unread)
    }

    /// Returns whether the connection waits for this host's threads: data lie in a receiver's
    /// socket throughout, for a quarter of the interval at the rate at which they are read
    /// (Little's law), or a sender's is empty. A thread that waits for a core limits nothing
    /// otherwise.
    fn awaits_threads(&self, interval: &Interval) -> bool {
        match self.end {
            End::Receiver => {
                let backlog = interval.now.unread.min(interval.before.unread).get() as f64;
                backlog > 0.0 && backlog >= params::LIMITING_SHARE * interval.moved().get() as f64
            }
            End::Sender => interval.busy_share() < params::BUSY_SHARE,
        }
    }

    /// Returns the limit that lies in the connection: its ends' buffers and windows, the path, or
    /// the peer.
    fn limit_of_connection(&mut self, interval: &Interval) -> Witness {
        if interval.moved() == Bytes::ZERO {
            return self.limit_without_data(interval);
        }
        let first_byte = *self.first_byte.get_or_insert(interval.end);
        if let Some(limit) = self.limit_by_kernel(interval) {
            return limit;
        }
        // A pace sends bursts, which wait for one another as in a queue: that it is reached shows
        // more.
        if let Some(witness) = self.held_pace(interval) {
            self.rates.slow_start.has_ended = true;
            return witness;
        }
        // A sender that fills the window pauses, too, until that is acknowledged.
        let is_window_full = self.end == End::Receiver && self.is_window_full(interval);
        let lateness = self.queue.lateness(interval);
        // In a long queue, packets of other flows leave gaps, too.
        let is_gapped = lateness != Some(Lateness::Queue) && self.is_stop_and_go(interval, first_byte);
        if self.end == End::Receiver && is_gapped {
            return Witness::StopAndGo;
        }
        if self.end == End::Receiver && lateness == Some(Lateness::Pauses) && !is_window_full {
            return Witness::Pauses;
        }
        if self.rates.slow_start.is_growing(interval, first_byte) {
            return Witness::Growth;
        }
        let is_queued = lateness == Some(Lateness::Queue);
        // A receiver that does not read at once acknowledges late, too (Linux,
        // __tcp_ack_snd_check).
        let has_closed = |at: Duration| at.saturating_add(recent_rates::COVERED) >= interval.end;
        if self.buffers.window_closed.is_some_and(has_closed)
            && window_limited_share(interval) > params::FULL_BUFFER_SHARE
        {
            return Witness::ClosedWindow;
        }
        let is_drained = self.buffers.send.are_often_empty() && !is_queued;
        if self.end == End::Sender && (is_drained || is_below_windows(interval)) {
            // Another program may have no more to send; the kernel counts a buffer that is full for
            // a part of the time at least.
            let full = interval.share(|reading| reading.sender.times.map(|times| times.buffer_limited));
            let has_more = interval.now.threads.is_some() || full > params::FULL_BUFFER_SHARE;
            return match (has_more, is_drained) {
                (true, true) => Witness::EmptyBuffer,
                (true, false) => Witness::BelowWindows,
                (false, _) => Witness::NothingToSend,
            };
        }
        if is_queued {
            return Witness::StandingQueue;
        }
        if self.end == End::Receiver && lateness.is_none() && self.queue.is_at_capacity(interval) {
            return Witness::Capacity;
        }
        if is_window_full {
            return Witness::FullWindow;
        }
        // What follows holds without a queue only.
        if self.end == End::Receiver && (lateness.is_some() || !self.queue.is_known()) {
            return Witness::Unexplained;
        }
        if let Some(loss) = self.losses.limiting() {
            let of_loss = if loss.is_overflow {
                Witness::Overflow
            } else if loss.is_random(self.end) && !self.capped.is_undecided() {
                Witness::Losses
            } else {
                Witness::Unexplained
            };
            return self.capped.device().unwrap_or(of_loss);
        }
        self.capped.device_at_cap(interval).unwrap_or_else(|| self.limit_without_queue_and_loss(interval))
    }

    /// Returns the limit of an interval in which nothing was moved.
    fn limit_without_data(&self, interval: &Interval) -> Witness {
        if self.first_byte.is_none() {
            let known = |rtt: Rtt| (rtt.get() * params::OPENING_ROUND_TRIPS).max(Duration::from_millis(100));
            // Before the handshake is over the RTT is not known; after a second a SYN is sent again
            // (RFC 6298, section 2).
            let opening = interval.min_rtt().map_or(Duration::from_secs(1), known);
            return if interval.end <= opening { Witness::Opening } else { Witness::LateAnswer };
        }
        if self.losses.awaits_timeout(interval) {
            return Witness::RetransmissionTimeout;
        }
        // Data that lie in the socket throughout wait for a core: waits for the disk and for
        // --limit have been assigned before. The kernel accounts a wait for a core (schedstat) only
        // when it ends.
        let backlog = interval.now.unread.min(interval.before.unread);
        if self.end == End::Receiver && interval.now.threads.is_some() && backlog > Bytes::ZERO {
            return Witness::CoreWaits;
        }
        if interval.now.streams > 0 && interval.span < interval.base_rtt().mul_f64(1.5) {
            return self.last;
        }
        match (self.end, interval.now.sender.times, interval.now.threads) {
            // Data lies in the send buffer and the peer acknowledges none of it.
            (End::Sender, Some(_), _) if interval.busy_share() > params::LIMITING_SHARE => {
                self.limit_of_busy_sender(interval).unwrap_or(Witness::Unexplained)
            }
            (End::Sender, _, None) => Witness::NothingToSend,
            _ => Witness::Silence,
        }
    }

    /// Returns whether what is in flight fills the receive window: in this interval, or where that
    /// is no whole number of bursts, in the last ones on average.
    fn is_window_full(&self, interval: &Interval) -> bool {
        let Some(rtt) = interval.min_rtt().filter(|rtt| rtt.get() >= TIMESTAMP_TICK) else { return false };
        // A window that closes is wide open a moment before.
        let window = interval.now.window.max(interval.before.window).unwrap_or_default().get() as f64;
        // More than the window cannot have been in flight: it was larger between the readings.
        let full = window * params::FULL_WINDOW_SHARE..=window / params::FULL_WINDOW_SHARE;
        let is_full = |in_flight: Bytes| window > 0.0 && full.contains(&(in_flight.get() as f64));
        is_full(interval.in_flight())
            || self.queue.lateness(interval).is_some_and(|lateness| lateness != Lateness::Queue)
                && self.rates.recent.settled().is_some_and(|rate| is_full(rate.bdp(rtt)))
    }

    /// Returns whether the server sends in bursts with gaps that are longer than a round trip, as a
    /// rate limit in user space does.
    fn is_stop_and_go(&self, interval: &Interval, first_byte: Duration) -> bool {
        let observed = interval.end.saturating_sub(first_byte);
        interval.span >= interval.base_rtt()
            && observed >= recent_rates::COVERED
            && !self.queue.loses(interval)
            && self.rates.recent.stop_and_go()
    }

    /// Returns what shows that the sender holds a pace that it does not measure, and nothing is
    /// lost. Each reply begins with a burst above it.
    fn held_pace(&self, interval: &Interval) -> Option<Witness> {
        let (pace, streams, witness) = match self.ends.pace? {
            SenderPace::Path => return None,
            SenderPace::Fixed(pace) => (pace, interval.streams(), Witness::FixedPace),
            SenderPace::Requested(pace) => (pace, interval.streams(), Witness::RequestedPace),
            SenderPace::Shared(pace) => (pace, 1, Witness::RequestedPace),
        };
        // A pacing sender sends bursts: intervals hold different numbers of them.
        let is_held = |rate: Rate| {
            let of_pace = rate.as_bits_per_sec() as f64 / streams as f64 / pace.as_bits_per_sec() as f64;
            of_pace >= params::HELD_PACE_SHARE && of_pace * params::HELD_PACE_SHARE <= 1.0
        };
        let is_held = is_held(interval.rate()) || self.rates.recent.long_means().any(is_held);
        (is_held && interval.lost() == 0).then_some(witness)
    }

    /// Distinguishes the limits that remain where the window is open, no queue stands, and nothing
    /// is lost.
    fn limit_without_queue_and_loss(&self, interval: &Interval) -> Witness {
        // No congestion control slows down without a loss or a queue, and neither does a peer that
        // paces itself to the path.
        let is_long = interval.base_rtt() >= LONG_RTT;
        if self.end == End::Receiver && is_long && self.rates.recent.have_fallen() {
            return Witness::Slowed;
        }
        // A peer that paces itself has measured the path, and so has the congestion control of a
        // sender whose data, windows and buffer suffice, as its kernel counts.
        if self.ends.pace == Some(SenderPace::Path) {
            return Witness::PacingPeer;
        }
        if self.end == End::Sender && interval.busy_share() > params::BUSY_SHARE {
            return Witness::CongestionControl;
        }
        if self.end == End::Receiver && interval.is_local() {
            return Witness::EvenRate;
        }
        // A bottleneck whose queue has overflowed may hold the rate, as BBR finds it, and so may
        // the server.
        if self.queue.has_overflowed {
            return Witness::Unexplained;
        }
        let long = interval.min_rtt().filter(|_| self.end == End::Receiver && is_long);
        let Some((rtt, rate)) = long.zip(self.rates.recent.settled()) else { return Witness::Unexplained };
        let in_flight = interval.now.path.in_flight.unwrap_or_else(|| rate.bdp(rtt));
        let per_stream = Bytes::new(in_flight.get() / interval.streams());
        let (least, most) = params::STOCK_SEND_BUFFER;
        match per_stream {
            small if small < least => Witness::EvenRate,
            buffer if buffer <= most && self.rates.recent.are_even() => Witness::StockBuffer,
            _ => Witness::Unexplained,
        }
    }
}
