//! Automatic pacing: a cap on a sender's rate that keeps short queues from overflowing, and never holds a free path back.
//!
//! ```text
//!          two trains agree           their rate is reached
//!  Listen -----------------> Climb -------------------------> Cruise <------------.
//!  (no cap)               (doubles each RTT)               (probes up)            | drained
//!     |                        |                                |                 |
//!     '------ many lost -------'-- a queue stands, many lost ---'-----> Drain ----'
//!     |                                                                   |
//!     '--> Free: a fast path, an RTT below 10 ms, or twenty RTTs          '-- stands --> Share -- empty --> Climb
//!          without evidence; losses (on a fast path: at a short
//!          queue) lead to Climb where the trains' rate is known, else to Drain.
//!          From Cruise if the path is fast, or jitter has hidden twenty RTTs of probes
//! ```
//!
//! **Listen.** The congestion control decides alone until two bursts of slow start have measured the bottleneck's rate (`PacketTrains`).
//! **Climb.** The cap doubles each RTT up to that rate less its uncertainty. A rate of an earlier transfer ([`HeldRate`]) stands for the
//! trains: the cap is half of it until that has arrived, as in Careful Resume (RFC 9959).
//! **Cruise.** A `Probe` sends a few milliseconds' worth of the path more. Where the RTT does not rise, the cap does, at most twofold.
//! **Drain.** A standing queue, or losses, show other traffic, or a slower path. For one RTT the cap is 0.6 of what it was; then it is the
//! capacity less what the others sent, which follows from the rates of sending and of delivery; or as before, where that would be mostly
//! error. Where others cannot have sent, **Ease** comes before: the cap falls by no more than the queue takes to drain, and is as before if
//! that was all.
//! **Share.** A queue or losses that a drain does not end come from flows that take what this one yields. The congestion control then
//! decides alone until both have ended, which leads to Climb, or nearly all of the path is this connection's, which a drain checks.
//!
//! The pacer is a function of its observations. A remote sender is held by its window ([`receive_window`](super::receive_window)).

mod cruise;
mod history;
mod other_traffic;
mod params;
mod probe;
mod start;
#[cfg(test)]
mod tests;
mod train;

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

pub use super::held_rate::{HeldRate, initial_pace};
use history::History;
use params::Params;
use probe::Probe;
use train::PacketTrains;

/// A sending connection's state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observation {
    /// Bytes delivered so far, those behind a gap included (`tcpi_delivered`).
    pub goodput: Bytes,
    /// The congestion window.
    pub window: Bytes,
    /// Bytes sent that are not acknowledged yet (`tcpi_unacked`).
    pub in_flight: Bytes,
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
    phase: PacerPhase,
    /// When the phase was first observed; `None` after a pause in sending.
    since: Option<Duration>,
    /// The last observation, and its time.
    seen: Observation,
    now: Duration,
    history: History,
    /// The highest rate that the bottleneck was seen to forward.
    capacity: Rate,
    /// The cap; `None` where the congestion control decides alone.
    pace: Option<Rate>,
    /// What will have been delivered when the RTT no longer shows an earlier pace, and when that is awaited no longer.
    shows_pace_from: (Bytes, Duration),
    /// Until then observations show the effect of an earlier pace.
    ignore_until: Duration,
    /// The queue that a probe adds; less where the path's is shorter.
    probe_queue: Option<Duration>,
    /// Since when no probe has shown whether the path is full, because of jitter, or a drain what others take.
    blind_since: Option<Duration>,
    /// Since when the congestion window has been less than the pace needs.
    held_back: Option<Duration>,
    /// Whether slow start, which the cap had ended, has gone on beside other flows.
    has_restarted: bool,
    /// Whether packets were lost although the queue was short: then a fast path is paced, too.
    queue_is_short: bool,
}

#[derive(Debug, Clone)]
enum PacerPhase {
    Listen(PacketTrains),
    /// No cap; the trains' rate if they measured one.
    Free(Option<Rate>),
    /// From `from` at `since`; `None` until `from` has been seen to arrive.
    Climb {
        from: Rate,
        since: Option<Duration>,
        until: Rate,
    },
    Cruise {
        target: Rate,
        probe: Probe,
    },
    /// After a pace of `before`. An RTT later it is known what is `left` beside others, and when the queue has been drained, if
    /// other traffic has let it.
    Drain {
        before: Rate,
        left: Option<(Rate, Duration)>,
    },
    /// After a pace of `before`: a queue that came at once and does not grow is drained, and nothing else is changed.
    Ease {
        before: Rate,
    },
    /// The congestion control decides beside other flows.
    Share,
}

impl Default for PacerPhase {
    fn default() -> Self {
        Self::Listen(PacketTrains::default())
    }
}

impl Pacer {
    /// Faster paths are not paced, unless packets were lost at a short queue.
    pub const PACED_BELOW: Rate = Params::UNPACED_FROM;

    /// Starts on a path that held the rate `known` when it was last used, with [`initial_pace`] until that has arrived.
    pub fn with_known_rate(known: Rate) -> Self {
        let from = initial_pace(known);
        let phase = PacerPhase::Climb { from, since: None, until: known };
        Self { phase, pace: Some(from), ..Self::default() }
    }

    /// Returns the measured rate of the path; `None` while it is uncertain, or in slow start.
    pub fn found(&self) -> Option<Rate> {
        match &self.phase {
            PacerPhase::Cruise { target, probe } => Some(*target).filter(|_| probe.was_full),
            PacerPhase::Ease { before } => Some(*before),
            PacerPhase::Free(_) => Some(self.capacity).filter(|rate| *rate > Params::UNPACED_FROM),
            _ => None,
        }
    }

    /// Returns whether the path's rate is still being measured, in slow start.
    pub fn is_listening(&self) -> bool {
        matches!(self.phase, PacerPhase::Listen(_))
    }

    /// Returns the phase, for traces.
    pub fn phase(&self) -> &impl std::fmt::Debug {
        &self.phase
    }

    /// Returns the interval until the next observation.
    pub fn interval(&self) -> Duration {
        match self.phase {
            // Each burst of slow start is twice as long as the one before. A queue of 0.1 BDP overflows in the burst of 0.2 RTTs, which is sent
            // while that of 0.1 RTTs arrives. Those of 0.025 and 0.05 RTTs must have been measured by then; the error is one interval.
            PacerPhase::Listen(_) if !self.rtt().is_zero() => {
                let first_burst = self.rtt().mul_f64(Params::STANDING / 4.0);
                first_burst.mul_f64(Params::UNCERTAINTY).min(Params::MIN_RTT / 50)
            }
            PacerPhase::Listen(_) => Params::MIN_RTT / 50,
            PacerPhase::Free(_) => Params::MIN_RTT * 10,
            _ => Params::MIN_RTT * 3 / 10,
        }
    }

    /// Returns whether the connection may change its congestion control: slow start is over, and the window holds the pace's BDP.
    pub fn has_settled(&self, seen: &Observation) -> bool {
        match self.phase {
            PacerPhase::Listen(_) | PacerPhase::Climb { .. } => false,
            PacerPhase::Cruise { target, .. } => seen.window > target.bdp(seen.min_rtt),
            PacerPhase::Free(_) | PacerPhase::Drain { .. } | PacerPhase::Ease { .. } | PacerPhase::Share => {
                true
            }
        }
    }

    /// Resumes after a pause in sending, which makes earlier observations useless.
    pub fn resume(&mut self) {
        self.history = History::default();
        (self.since, self.blind_since, self.held_back, self.has_restarted) = (None, None, None, false);
        match &mut self.phase {
            PacerPhase::Listen(trains) => *trains = PacketTrains::default(),
            PacerPhase::Free(rate) => {
                (*rate, self.capacity, self.queue_is_short) = (None, Rate::default(), false)
            }
            PacerPhase::Climb { from, since, .. } => (*from, *since) = (self.pace.unwrap_or(*from), None),
            PacerPhase::Cruise { target, .. }
            | PacerPhase::Drain { before: target, .. }
            | PacerPhase::Ease { before: target } => {
                let target = *target;
                self.phase = PacerPhase::Cruise { target, probe: self.probe(target, Duration::ZERO) };
            }
            PacerPhase::Share => {}
        }
    }

    /// Observes the connection at `now`, since any fixed moment; returns the pace to set, `None` for no pacing.
    ///
    /// To be called at the interval of [`Self::interval`].
    pub fn observe(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let before = std::mem::replace(&mut self.seen, *seen);
        self.now = now;
        self.history.push(seen, now);
        self.since.get_or_insert(now);
        let rtt = self.rtt();
        if rtt < Params::MIN_RTT && self.pace.is_none() {
            self.phase = PacerPhase::Free(None);
        }
        let (delivered, latest) = self.shows_pace_from;
        if before.goodput < delivered && now < latest {
            self.ignore_until = now + rtt.mul_f64(Params::STANDING);
        }
        if self.history.reaches(self.ago(rtt)) {
            // Compressed acknowledgements arrive faster than the data did, but not faster than it was sent.
            let sent = self.history.sending_rate(self.ago(rtt * 2), self.ago(rtt));
            self.capacity = self.capacity.max(self.delivery().min(sent));
        }
        match self.phase {
            PacerPhase::Listen(_) => self.listen(),
            PacerPhase::Free(rate) => self.free(rate),
            PacerPhase::Climb { from, since: None, until } => self.await_first_pace(from, until),
            PacerPhase::Climb { from, since: Some(since), until } => self.climb(from, since, until),
            PacerPhase::Cruise { .. } => self.cruise(),
            PacerPhase::Drain { before, left: None } => self.measure_others(before),
            PacerPhase::Drain { left: Some((rate, drained)), .. } => self.drain(rate, drained),
            PacerPhase::Ease { before } => self.ease(before),
            PacerPhase::Share => self.share(),
        }
        self.pace
    }

    /// Returns whether the congestion control should restart its growth: for two RTTs its window, or in a probe its own pace, has been
    /// less than the pace needs, although there is no queue; or other flows take more than half of the path.
    pub fn is_held_back(&mut self, seen: &Observation, now: Duration) -> bool {
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return self.yields_too_much() };
        if seen.window >= target.bdp(seen.min_rtt) {
            self.held_back = None;
            return std::mem::take(&mut probe.was_held_back);
        }
        let since = *self.held_back.get_or_insert(now);
        let is_long = now.saturating_sub(since) > seen.rtt.get() * 2;
        if is_long {
            self.held_back = Some(now);
        }
        is_long
    }

    fn enter(&mut self, phase: PacerPhase, pace: Option<Rate>) {
        if matches!(phase, PacerPhase::Free(_) | PacerPhase::Share) {
            // Nothing is probed there.
            self.blind_since = None;
        }
        (self.phase, self.pace, self.since) = (phase, pace, Some(self.now));
    }

    /// Returns whether a path of this rate gets no pace: it is fast, and has lost nothing at a short queue.
    fn needs_no_pace(&self, rate: Rate) -> bool {
        rate > Params::UNPACED_FROM && !self.queue_is_short
    }

    fn is_congested(&self) -> bool {
        // A probe's own queue drains slowly.
        let queue = self.queue_threshold().max(Params::PROBE_QUEUE.mul_f64(1.25));
        self.now >= self.ignore_until && (self.queue() > queue || self.loses(Params::LOSS))
    }

    /// Returns whether more than this share was lost over the last RTT.
    fn loses(&self, share: f64) -> bool {
        self.history.has_lost(share, Params::FEW_PACKETS, self.ago(self.seen.rtt.get()))
    }

    /// Returns the length of the standing queue: above the least RTT of the last RTTs, for the path may have become longer.
    fn queue(&self) -> Duration {
        let least = self.history.rtts(Duration::ZERO, self.now).min();
        self.queue_above(least.unwrap_or(self.rtt()))
    }

    fn queue_above(&self, least: Duration) -> Duration {
        let standing = self.history.standing_rtt(self.ago(self.rtt().mul_f64(Params::STANDING)));
        standing.map_or(Duration::ZERO, |rtt| rtt.saturating_sub(least))
    }

    /// Returns the length from which a queue belongs to other traffic.
    fn queue_threshold(&self) -> Duration {
        Params::QUEUE + self.rtt().mul_f64(Params::QUEUE_RTT_SHARE)
    }

    /// Returns the rate of delivery over the last RTT, or since the first observation.
    fn delivery(&self) -> Rate {
        self.history.delivery_rate(self.ago(self.rtt()))
    }

    fn rtt(&self) -> Duration {
        self.seen.min_rtt.get()
    }

    fn ago(&self, time: Duration) -> Duration {
        self.now.saturating_sub(time)
    }

    /// Returns the time since the phase began.
    fn age(&self) -> Duration {
        self.now.saturating_sub(self.since.unwrap_or(self.now))
    }
}

/// Returns whether a rate is a pace's but for the uncertainty.
fn comes_close(rate: Rate, pace: Rate) -> bool {
    rate >= pace.scaled(1.0 - Params::UNCERTAINTY)
}
