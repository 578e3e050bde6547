//! Automatic pacing: finds the capacity of a path and follows it, often loss-free.
//!
//! ```text
//!  Listen ---a train gives the bottleneck's rate------> Climb ----pace reaches it, or a queue grows----> Cruise
//!  (no pace)                                           (twice a round trip)                  (probe up, cut down)
//!     |                                                       |                                   |           ^
//!     |                             a queue at a small part of it         a standing queue        |           | drained
//!     |                                                       '-----------------------------------'-> Share --'
//!     |---- a packet is lost before ------------------------------------------------------------------------^
//!     '---- the path is short or very fast ----> Off           ^
//!  Trust ---half of a known rate is delivered------------------'
//! ```
//!
//! **Listen.** Slow start sends each window as one burst, which the bottleneck disperses: its acknowledgements arrive
//! at the bottleneck's rate long before the window reaches the BDP (`PacketTrains`).
//!
//! **Climb.** The pace doubles each RTT, as slow start does, up to 85 % of the bottleneck's rate. Paced packets do not
//! overflow a switch's short queue as bursts do.
//!
//! **Cruise.** The pace is constant. At intervals a short `Probe` sends faster, by no more bytes than a few milliseconds
//! of the path: where the RTT does not rise, the pace does. A standing queue means that another flow has started: its
//! rate follows from the rates of sending and delivery, and the pace becomes the rest of the capacity.
//!
//! **Share.** A queue that does not drain at a lower pace is kept full by the windows of other flows, which take all the
//! capacity that is left. The congestion control then decides, until the queue has been empty for some RTTs. The same
//! applies to a queue that stands when the climb has just begun.
//!
//! **Trust.** With the rate of an earlier transfer ([`HeldRate`]) pacing starts at half of that rate with the first segment.
//! Delivery without a queue confirms it, and the climb ends at the known rate. A queue or a loss shows that the path has
//! changed: the pace becomes the rate of delivery.
//!
//! The pacer is a function of its observations. A remote sender is held by its window ([`receive_window`](super::receive_window)).

mod competing_flows;
mod congestion;
mod cruise;
mod held_rate;
mod history;
mod probe;
mod startup;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

use super::packet_train::{MAX_TRAIN_RATE, PacketTrains};
use congestion::{Cut, Standing};
pub use held_rate::{HeldRate, initial_pace};
use history::History;
use probe::Probe;

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
#[derive(Debug, Clone)]
pub struct Pacer {
    phase: PacerPhase,
    history: History,
    /// The bottleneck's rate, where a train or a full path has shown it.
    capacity: Option<Rate>,
    /// `None` while slow start runs unpaced.
    pace: Option<Rate>,
    /// Bytes retransmitted and sent when loss was last evaluated.
    baseline: (Bytes, Bytes),
    /// Until then observations show the effect of an earlier pace.
    ignore_until: Duration,
    /// The last cut, which the observations of the RTT after it refine.
    cut: Option<Cut>,
    /// The queue that is tolerated on a path too fast to be paced.
    tolerated: Duration,
    /// The queue that the last cut is draining.
    standing: Option<Standing>,
    /// Since when the congestion window has been less than the pace needs.
    held_back: Option<Duration>,
    /// When flows that fill the queue by their windows were last assumed.
    others: Option<Duration>,
    /// How often slow start was restarted beside competing flows, and when last.
    growth_restarts: (u32, Duration),
    /// The highest rate of delivery over an RTT, in `PacerPhase::Off`.
    peak: Rate,
}

#[derive(Debug, Clone)]
enum PacerPhase {
    Off,
    Listen {
        trains: PacketTrains,
        since: Option<Duration>,
    },
    Trust {
        known: Rate,
        since: Option<Duration>,
    },
    /// Until `most`, or until the path shows a queue or losses.
    Climb {
        from: Rate,
        since: Option<Duration>,
        most: Option<Rate>,
    },
    Cruise {
        target: Rate,
        probe: Probe,
    },
    /// Beside flows that fill the queue: the congestion control's rate, under a cap that grows from the previous pace.
    Share {
        from: Rate,
        since: Option<Duration>,
    },
}

/// Shorter paths are not paced: their acknowledgements return soon enough to clock the sender.
const MIN_PACED_RTT: Duration = Duration::from_millis(10);
/// On a path too fast to be paced, a queue of one part in this many of the RTT is tolerated.
const DEEP_QUEUE: u32 = 8;
/// The decay of `Pacer::peak` per observation: it halves in 7 s.
const PEAK_DECAY: f64 = 0.99;
/// The least time that observations are kept: the longest probe takes 250 ms, and is evaluated an RTT later.
const MIN_HISTORY: Duration = Duration::from_millis(500);
/// After this time without a result `Listen` and `Trust` end unpaced: slow start is over by then.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);

impl Default for Pacer {
    fn default() -> Self {
        Self {
            phase: PacerPhase::Listen { trains: PacketTrains::default(), since: None },
            history: History::default(),
            capacity: None,
            pace: None,
            baseline: (Bytes::ZERO, Bytes::ZERO),
            ignore_until: Duration::ZERO,
            cut: None,
            tolerated: Duration::ZERO,
            standing: None,
            held_back: None,
            others: None,
            growth_restarts: (0, Duration::ZERO),
            peak: Rate::default(),
        }
    }
}

impl Pacer {
    /// Starts on a path that held the rate `known` when it was last used.
    ///
    /// The pace is [`initial_pace`] until the first observation.
    pub fn with_known_rate(known: Rate) -> Self {
        let pace = Some(initial_pace(known));
        Self { phase: PacerPhase::Trust { known, since: None }, pace, ..Self::default() }
    }

    /// Returns the measured rate of the path; `None` while it is uncertain, or in slow start.
    pub fn found(&self) -> Option<Rate> {
        match self.phase {
            PacerPhase::Cruise { target, .. } => {
                Some(target).filter(|_| self.cut.is_none() && self.standing.is_none())
            }
            PacerPhase::Off => Some(self.peak).filter(|peak| *peak > MAX_TRAIN_RATE),
            PacerPhase::Listen { .. }
            | PacerPhase::Trust { .. }
            | PacerPhase::Climb { .. }
            | PacerPhase::Share { .. } => None,
        }
    }

    /// Observes the connection at `now`, since any fixed moment; returns the pace to set, `None` for no pacing.
    ///
    /// To be called at the interval of [`Self::interval`].
    pub fn observe(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let min_rtt = seen.min_rtt.get();
        if min_rtt < MIN_PACED_RTT && self.pace.is_none() {
            self.phase = PacerPhase::Off;
        }
        self.history.push(now, seen.goodput, seen.rtt.get(), seen.sent, (min_rtt * 10).max(MIN_HISTORY));
        match &mut self.phase {
            PacerPhase::Off => {
                let recent_delivery = self.delivery_over_rtt(seen, now).unwrap_or_default();
                self.peak = self.peak.scaled(PEAK_DECAY).max(recent_delivery);
            }
            PacerPhase::Trust { known, since } => {
                if since.is_none() {
                    self.baseline = (seen.retransmits, seen.sent);
                    // Fast paths have deeper queues and more competing traffic.
                    self.tolerated =
                        if *known > MAX_TRAIN_RATE { min_rtt / DEEP_QUEUE } else { Duration::ZERO };
                }
                let late = now.saturating_sub(*since.get_or_insert(now)) > STARTUP_TIMEOUT;
                let known = *known;
                self.trust(known, seen, late, now);
            }
            PacerPhase::Listen { trains, since } => {
                let train_rate = trains.observe(seen.goodput, now).map(|train| train.rate);
                if since.is_none() {
                    self.baseline = (seen.retransmits, seen.sent);
                }
                let late = now.saturating_sub(*since.get_or_insert(now)) > STARTUP_TIMEOUT;
                self.listen(seen, train_rate, late, now);
            }
            PacerPhase::Climb { from, since, most } => {
                let climbed = now.saturating_sub(*since.get_or_insert(now));
                let doublings = climbed.as_secs_f64() / min_rtt.as_secs_f64();
                let (pace, most) = (from.scaled(doublings.exp2()), *most);
                self.climb(seen, pace, most, now);
            }
            PacerPhase::Cruise { .. } => self.cruise(seen, now),
            PacerPhase::Share { from, since } => {
                let (from, since) = (*from, *since.get_or_insert(now));
                self.share(from, since, seen, now);
            }
        }
        self.pace
    }

    /// Returns the interval until the next observation.
    pub fn interval(&self) -> Duration {
        match self.phase {
            PacerPhase::Off => Duration::from_millis(100),
            PacerPhase::Listen { .. } => Duration::from_micros(200),
            PacerPhase::Trust { .. }
            | PacerPhase::Climb { .. }
            | PacerPhase::Cruise { .. }
            | PacerPhase::Share { .. } => Duration::from_millis(3),
        }
    }

    /// Returns whether the connection may change its congestion control: slow start is over, and the window holds the pace's BDP.
    pub fn has_settled(&self, seen: &Observation) -> bool {
        match self.phase {
            PacerPhase::Listen { .. } | PacerPhase::Trust { .. } | PacerPhase::Climb { .. } => false,
            PacerPhase::Cruise { target, .. } => seen.window > target.bdp(seen.min_rtt),
            PacerPhase::Off | PacerPhase::Share { .. } => true,
        }
    }

    /// Returns the phase, for traces.
    pub fn phase(&self) -> &impl std::fmt::Debug {
        &self.phase
    }

    /// Resumes after a pause in sending, which makes earlier observations useless.
    pub fn resume(&mut self) {
        self.history = History::default();
        (self.cut, self.standing, self.others, self.held_back) = (None, None, None, None);
        match &mut self.phase {
            PacerPhase::Listen { trains, since } => (*trains, *since) = (PacketTrains::default(), None),
            PacerPhase::Trust { since, .. } => *since = None,
            PacerPhase::Climb { from, since, .. } => (*from, *since) = (self.pace.unwrap_or(*from), None),
            PacerPhase::Off => self.peak = Rate::default(),
            PacerPhase::Cruise { probe, .. } => *probe = Probe::new(Duration::ZERO),
            PacerPhase::Share { since, .. } => *since = None,
        }
    }

    /// Returns whether the congestion control should restart its growth: for two RTTs its window or its own pace has
    /// been below the pace.
    ///
    /// Also beside competing flows: pacing has cut its slow start short, and losses in their bursts may do so again.
    pub fn is_held_back(&mut self, seen: &Observation, now: Duration) -> bool {
        if let PacerPhase::Share { .. } = self.phase {
            return self.restarts_growth(seen, now);
        }
        let PacerPhase::Cruise { target, probe } = &mut self.phase else { return false };
        if seen.window < target.bdp(seen.min_rtt) {
            let since = *self.held_back.get_or_insert(now);
            let long = now.saturating_sub(since) > seen.rtt.get() * 2;
            if long {
                self.held_back = Some(now);
            }
            return long;
        }
        self.held_back = None;
        probe.was_held_back()
    }

    /// Returns the rate of delivery over the last RTT; `None` before a whole one was observed.
    fn delivery_over_rtt(&self, seen: &Observation, now: Duration) -> Option<Rate> {
        let reaches = self.history.reaches(now.saturating_sub(seen.min_rtt.get()));
        reaches.then(|| self.recent_delivery(seen, now))
    }

    /// Returns the rate of delivery over the last RTT, or since the first observation.
    fn recent_delivery(&self, seen: &Observation, now: Duration) -> Rate {
        self.history.delivery_rate(now.saturating_sub(seen.min_rtt.get()))
    }
}
