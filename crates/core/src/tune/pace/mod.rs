//! Automatic pacing: a cap on a sender's rate that keeps short queues from overflowing, and never holds a free path back.
//!
//! ```text
//!          two trains agree           their rate is reached
//!  Listen -----------------> Climb -------------------------> Cruise <------------.
//!  (no cap)               (doubles each RTT)               (probes up)            | drained
//!     |                        |                                |                 |
//!     '------ many lost -------'-- a queue stands, many lost ---'-----> Drain ----'<-----.
//!     |                                                                   |              | empty
//!     '--> Free: fast, short, or twenty RTTs without evidence             '-- stands --> Share
//! ```
//!
//! **Listen.** The congestion control decides alone until two bursts of slow start have measured the bottleneck's rate (`PacketTrains`).
//!
//! **Climb.** The cap doubles each RTT, as slow start does, up to the rate of the trains less their uncertainty. Paced packets
//! do not overflow a switch's short queue as bursts do. A rate of an earlier transfer ([`HeldRate`]) stands for the trains: the cap is half of
//! it until that has arrived, as in Careful Resume (RFC 9959).
//!
//! **Cruise.** At intervals a `Probe` sends a few milliseconds' worth of the path more. Where the RTT does not rise, the cap does, by up to
//! a factor of two per RTT: one at a tenth of the path is back at 0.9 of it within ten.
//!
//! **Drain.** A standing queue, or losses, show other traffic, or a slower path. For one RTT the cap is 0.6 of what it was; then it is the
//! capacity less what the others sent, which follows from the rates of sending and of delivery.
//!
//! **Share.** A queue that has not drained is kept full by flows that fill it by their windows; capacity that this one yields goes to
//! them. The congestion control then decides until the queue is empty, under a cap that doubles every eight RTTs.
//!
//! The pacer is a function of its observations. A remote sender is held by its window ([`receive_window`](super::receive_window)).

mod held_rate;
mod history;
mod other_traffic;
mod params;
mod probe;
#[cfg(test)]
mod tests;
mod train;

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

pub use held_rate::{HeldRate, initial_pace};
use history::History;
pub use params::Params;
use probe::Probe;
use train::PacketTrains;

/// A sending connection's state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Bytes delivered so far, those behind a gap included (`tcpi_delivered`).
    pub goodput: Bytes,
    /// The congestion window.
    pub window: Bytes,
    /// The RTT, smoothed over a few packets.
    pub rtt: Rtt,
    /// The minimum RTT of the connection.
    pub min_rtt: Rtt,
    /// Bytes sent so far, retransmissions included.
    pub sent: Bytes,
    /// Bytes retransmitted so far.
    pub retransmits: Bytes,
}

/// Chooses a connection's pace, many times per RTT.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    params: Params,
    phase: PacerPhase,
    history: History,
    /// The highest rate that the bottleneck was seen to forward.
    capacity: Rate,
    /// The cap; `None` where the congestion control decides alone.
    pace: Option<Rate>,
    /// Until then observations show the effect of an earlier pace.
    ignore_until: Duration,
    /// The queue that a probe adds; less where the path's is shorter.
    probe_queue: Option<Duration>,
    /// The share of bytes that is lost without congestion.
    stray_loss: f64,
    /// Since when the congestion window has been less than the pace needs.
    held_back: Option<Duration>,
    /// When the path was last shared with flows that fill its queue.
    shared: Option<Duration>,
}

#[derive(Debug, Clone)]
enum PacerPhase {
    Listen {
        trains: PacketTrains,
        since: Option<Duration>,
    },
    Free,
    /// From `from` at `since`; `None` until `from` has been seen to arrive, which is awaited since `begun`.
    Climb {
        from: Rate,
        begun: Option<Duration>,
        since: Option<Duration>,
        until: Rate,
    },
    Cruise {
        target: Rate,
        probe: Probe,
    },
    /// After a pace of `before`; what is `left` beside others is known an RTT later.
    Drain {
        before: Rate,
        since: Duration,
        left: Option<Left>,
    },
    /// Under a cap that doubles every eight RTTs from `from`: the window may be twice what the pace let in flight.
    Share {
        from: Rate,
        since: Option<Duration>,
        /// When slow start goes on, which the cap has ended.
        restart: Option<Duration>,
    },
}

/// What other traffic leaves of the capacity.
#[derive(Debug, Clone, Copy)]
struct Left {
    rate: Rate,
    /// By then the queue has been drained, if other traffic has let it.
    drained: Duration,
}

impl Default for PacerPhase {
    fn default() -> Self {
        Self::Listen { trains: PacketTrains::default(), since: None }
    }
}

/// The share of a pace that must be delivered for it to count as used.
const USED: f64 = 0.8;
/// The lower bound of the pace per RTT: delivery cannot be measured without sending.
const MIN_PACE_PER_RTT: Bytes = Bytes::new(2 * 1448);
/// RTTs of observations that are kept.
const HISTORY_RTTS: u32 = 10;

impl Pacer {
    /// Starts with other constants than the default ones.
    pub fn with_params(params: Params) -> Self {
        Self { params, ..Self::default() }
    }

    /// Starts on a path that held the rate `known` when it was last used.
    ///
    /// The pace is [`initial_pace`] until that has arrived.
    pub fn with_known_rate(known: Rate) -> Self {
        let from = initial_pace(known);
        let phase = PacerPhase::Climb { from, begun: None, since: None, until: known };
        Self { phase, pace: Some(from), ..Self::default() }
    }

    /// Returns the measured rate of the path; `None` while it is uncertain, or in slow start.
    pub fn found(&self) -> Option<Rate> {
        match &self.phase {
            PacerPhase::Cruise { target, probe } => Some(*target).filter(|_| probe.was_full),
            PacerPhase::Free => Some(self.capacity).filter(|rate| *rate > self.params.unpaced_from),
            _ => None,
        }
    }

    /// Observes the connection at `now`, since any fixed moment; returns the pace to set, `None` for no pacing.
    ///
    /// To be called at the interval of [`Self::interval`].
    pub fn observe(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let rtt = seen.min_rtt.get();
        self.history.push(seen, (rtt * HISTORY_RTTS).max(self.params.empty_time * 2), now);
        if rtt < self.params.min_rtt && self.pace.is_none() {
            self.phase = PacerPhase::Free;
        }
        if let Some(delivered) = self.delivery_over_rtt(seen, now) {
            // Compressed acknowledgements arrive faster than the data did, but not faster than it was sent.
            let sent = self.history.sending_rate(now.saturating_sub(rtt * 2), now.saturating_sub(rtt));
            self.capacity = self.capacity.max(delivered.min(sent));
        }
        match self.phase {
            PacerPhase::Listen { .. } => self.listen(seen, now),
            PacerPhase::Free => self.free(seen, now),
            PacerPhase::Climb { from, since, until, .. } => self.climb(from, since, until, seen, now),
            PacerPhase::Cruise { .. } => self.cruise(seen, now),
            PacerPhase::Drain { before, since, left } => self.drain(before, since, left, seen, now),
            PacerPhase::Share { from, since, .. } => self.share(from, since, seen, now),
        }
        self.pace
    }

    /// Returns the interval until the next observation.
    pub fn interval(&self) -> Duration {
        match self.phase {
            PacerPhase::Listen { .. } => Duration::from_micros(200),
            PacerPhase::Free => Duration::from_millis(100),
            _ => Duration::from_millis(3),
        }
    }

    /// Returns whether the connection may change its congestion control: slow start is over, and the window holds the pace's BDP.
    pub fn has_settled(&self, seen: &Observation) -> bool {
        match self.phase {
            PacerPhase::Listen { .. } | PacerPhase::Climb { .. } => false,
            PacerPhase::Cruise { target, .. } => seen.window > target.bdp(seen.min_rtt),
            PacerPhase::Free | PacerPhase::Drain { .. } | PacerPhase::Share { .. } => true,
        }
    }

    /// Returns the phase, for traces.
    pub fn phase(&self) -> &impl std::fmt::Debug {
        &self.phase
    }

    /// Resumes after a pause in sending, which makes earlier observations useless.
    pub fn resume(&mut self) {
        self.history = History::default();
        (self.held_back, self.shared) = (None, None);
        match &mut self.phase {
            PacerPhase::Listen { trains, since } => (*trains, *since) = (PacketTrains::default(), None),
            PacerPhase::Free => self.capacity = Rate::default(),
            PacerPhase::Climb { from, begun, since, .. } => {
                (*from, *begun, *since) = (self.pace.unwrap_or(*from), None, None);
            }
            PacerPhase::Cruise { target, .. } | PacerPhase::Drain { before: target, .. } => {
                let target = *target;
                let probe =
                    Probe::new(&self.params, self.probe_queue(), target, self.capacity, Duration::ZERO);
                self.phase = PacerPhase::Cruise { target, probe };
            }
            PacerPhase::Share { since, .. } => *since = None,
        }
    }

    /// Returns whether the congestion control should restart its growth: for two RTTs its window, or in a probe its own pace, has
    /// been less than the pace needs, although there is no queue.
    pub fn is_held_back(&mut self, seen: &Observation, now: Duration) -> bool {
        let takes_less_than_half = self.delivery(seen, now) < self.capacity.scaled(0.5);
        if let PacerPhase::Share { restart, .. } = &mut self.phase {
            return restart.take_if(|at| now >= *at).is_some() && takes_less_than_half;
        }
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return false };
        if seen.window >= target.bdp(seen.min_rtt) {
            self.held_back = None;
            return probe.was_held_back();
        }
        let since = *self.held_back.get_or_insert(now);
        let is_long = now.saturating_sub(since) > seen.rtt.get() * 2;
        if is_long {
            self.held_back = Some(now);
        }
        is_long
    }

    fn listen(&mut self, seen: &Observation, now: Duration) {
        let rtt = seen.min_rtt.get();
        let PacerPhase::Listen { trains, since } = &mut self.phase else { return };
        let rate = trains.observe(&self.params, seen.goodput, rtt, now);
        let is_over = now.saturating_sub(*since.get_or_insert(now)) > rtt * self.params.listen_rtts;
        if is_over || rate.unwrap_or(self.capacity) > self.params.unpaced_from {
            self.phase = PacerPhase::Free;
        } else if let Some(rate) = rate {
            self.capacity = self.capacity.max(rate);
            let until = rate.scaled(1.0 - self.params.uncertainty);
            let from = Rate::over(seen.window, rtt).min(until);
            self.phase = PacerPhase::Climb { from, begun: Some(now), since: Some(now), until };
            self.pace = Some(from);
            // The last bursts are still in flight.
            self.ignore_until = now + seen.rtt.get() + rtt.mul_f64(self.params.standing);
        } else if self.is_losing(seen, now) {
            self.begin_drain(self.delivery(seen, now), seen, now);
        }
    }

    fn free(&mut self, seen: &Observation, now: Duration) {
        let is_paced = seen.min_rtt.get() >= self.params.min_rtt && self.capacity <= self.params.unpaced_from;
        if is_paced && self.is_losing(seen, now) {
            self.begin_drain(self.delivery(seen, now), seen, now);
        }
    }

    fn climb(&mut self, from: Rate, since: Option<Duration>, until: Rate, seen: &Observation, now: Duration) {
        if self.is_congested(seen, now) {
            let pace = self.pace.unwrap_or(from);
            // A queue at less than half of the bottleneck's rate is not this connection's.
            if pace < until.scaled(0.5) {
                self.begin_to_share(until.scaled(0.5), seen, now)
            } else {
                self.begin_drain(pace, seen, now)
            }
            return;
        }
        let Some(since) = since else {
            self.await_first_pace(from, seen, now);
            return;
        };
        let doublings = now.saturating_sub(since).as_secs_f64() / seen.min_rtt.get().as_secs_f64();
        let pace = from.scaled(doublings.exp2()).min(until);
        self.pace = Some(pace);
        if pace == until {
            self.settle(until, seen, now);
        }
    }

    /// Waits until the first pace on a known path has arrived; a sender that does not reach it needs no cap.
    fn await_first_pace(&mut self, from: Rate, seen: &Observation, now: Duration) {
        let arrives = self.delivery_over_rtt(seen, now).is_some_and(|rate| rate >= from.scaled(USED));
        let PacerPhase::Climb { begun, since, .. } = &mut self.phase else { return };
        let waited = now.saturating_sub(*begun.get_or_insert(now));
        if arrives {
            *since = Some(now);
        } else if waited > seen.min_rtt.get() * self.params.listen_rtts {
            (self.phase, self.pace) = (PacerPhase::Free, None);
        }
    }

    /// Starts to cruise at this pace; a fast path needs none.
    fn settle(&mut self, target: Rate, seen: &Observation, now: Duration) {
        if target > self.params.unpaced_from {
            (self.phase, self.pace) = (PacerPhase::Free, None);
            return;
        }
        self.ignore_until = now + seen.rtt.get();
        let probe = Probe::new(&self.params, self.probe_queue(), target, self.capacity, self.ignore_until);
        self.phase = PacerPhase::Cruise { target, probe };
        (self.pace, self.held_back) = (Some(target), None);
    }

    fn cruise(&mut self, seen: &Observation, now: Duration) {
        let is_congested = self.is_congested(seen, now);
        let (queue, threshold) = (self.queue(seen, now), queue_threshold(&self.params, seen));
        // A queue that is too short to be seen shows by losses.
        let is_seen = queue > threshold;
        let is_full = queue > threshold / 2 || self.loses(self.params.loss / 10.0, seen, now);
        let rtt = seen.min_rtt.get();
        let sent = self.history.sending_rate(now.saturating_sub(rtt / 4), now);
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return };
        if is_congested {
            let before = *target;
            if probe.is_running() && !is_seen {
                // The path's queue is too short for the probe's.
                self.probe_queue = Some(probe.queue / 2);
            }
            self.begin_drain(before, seen, now);
            return;
        }
        if probe.is_due(now) {
            let is_high = *target > self.capacity.scaled(1.0 - self.params.uncertainty);
            if sent < target.scaled(USED) {
                // What is not used is not raised.
                probe.rest(now + rtt);
            } else if is_high && is_full {
                *target = target.scaled(self.params.headroom);
                probe.rest(now + rtt);
            }
        }
        *target = probe.observe(&self.params, *target, self.capacity, seen, &self.history, now);
        let (target, pace) = (*target, probe.pace(*target, now));
        self.probe_queue = Some(probe.queue);
        self.pace = Some(pace);
        if target > self.params.unpaced_from {
            self.settle(target, seen, now);
        }
    }

    fn probe_queue(&self) -> Duration {
        self.probe_queue.unwrap_or(self.params.probe_queue)
    }

    fn is_congested(&self, seen: &Observation, now: Duration) -> bool {
        // A probe's own queue drains slowly.
        let queue = queue_threshold(&self.params, seen).max(self.params.probe_queue.mul_f64(1.25));
        now >= self.ignore_until && (self.queue(seen, now) > queue || self.is_losing(seen, now))
    }

    fn is_losing(&self, seen: &Observation, now: Duration) -> bool {
        self.loses(self.params.loss, seen, now)
    }

    /// Returns whether more than this share was lost over the last RTT, besides what the path always loses.
    fn loses(&self, share: f64, seen: &Observation, now: Duration) -> bool {
        let (lost, sent) = self.history.losses(now.saturating_sub(seen.rtt.get()));
        lost > self.params.stray_loss && lost.get() as f64 > sent.get() as f64 * (share + self.stray_loss)
    }

    /// Returns the length of the standing queue: above the least RTT of the last RTTs, for the path may have become longer.
    fn queue(&self, seen: &Observation, now: Duration) -> Duration {
        let least = self.history.least_rtt(Duration::ZERO, now).unwrap_or(seen.min_rtt.get());
        self.queue_above(least, seen, now)
    }

    fn queue_above(&self, least: Duration, seen: &Observation, now: Duration) -> Duration {
        let since = now.saturating_sub(seen.min_rtt.get().mul_f64(self.params.standing));
        self.history.standing_rtt(since).map_or(Duration::ZERO, |rtt| rtt.saturating_sub(least))
    }

    /// Returns the rate of delivery over the last RTT; `None` before a whole one was observed.
    fn delivery_over_rtt(&self, seen: &Observation, now: Duration) -> Option<Rate> {
        let reaches = self.history.reaches(now.saturating_sub(seen.min_rtt.get()));
        reaches.then(|| self.delivery(seen, now))
    }

    /// Returns the rate of delivery over the last RTT, or since the first observation.
    fn delivery(&self, seen: &Observation, now: Duration) -> Rate {
        self.history.delivery_rate(now.saturating_sub(seen.min_rtt.get()))
    }
}

/// Returns the lower bound of the pace.
fn least_pace(seen: &Observation) -> Rate {
    Rate::over(MIN_PACE_PER_RTT, seen.min_rtt.get())
}

/// Returns the length from which a queue belongs to other traffic.
fn queue_threshold(params: &Params, seen: &Observation) -> Duration {
    params.queue + seen.min_rtt.get().mul_f64(params.queue_rtt_share)
}
