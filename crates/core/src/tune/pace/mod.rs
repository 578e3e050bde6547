//! Automatic pacing: finds the rate that a path holds and follows it, with losses close to none.
//!
//! ```text
//!  Listen ----a train tells the bottleneck's rate----> Climb ----pace reaches it, or a queue grows----> Cruise
//!  (no pace)                                           (twice a round trip)                  (probe up, cut down)
//!     |                                                       |                                   |           ^
//!     |                             a queue at a small part of it            a queue that stays   |           | has gone
//!     |                                                       '-----------------------------------'-> Share --'
//!     |---- something is lost before -----------------------------------------------------------------------^
//!     '---- the path is short or very fast ----> Off           ^
//!  Trust ----what was sent at half of a known rate arrives-----'
//! ```
//!
//! **Listen.** Slow start sends each window as one clump, and the bottleneck pulls it apart: its acknowledgements come
//! at the bottleneck's rate long before the window reaches the BDP (`PacketTrains`).
//!
//! **Climb.** From then on the window is sent evenly, at a pace that doubles each round trip as slow start does, up to
//! 85 % of that rate. No clump is left to overflow the queue of a switch.
//!
//! **Cruise.** The pace is held. From time to time a short `Probe` sends faster, by no more bytes than a few
//! milliseconds of the path: if the RTT does not tell of them, the pace rises. When the RTT tells of a queue that
//! stands, somebody else has come: what they take follows from what was sent and what arrived, and the pace
//! becomes what they leave.
//!
//! **Share.** A queue that does not drain when room is made for it is of others who fill it by their windows, and take all that they
//! are left. Beside them the congestion control decides, until the queue has been empty for some round trips. A queue that stands
//! when the climb has hardly begun is of such others as well, or of some who leave next to nothing anyway.
//!
//! **Trust.** Where an earlier transfer has told the rate ([`HeldRate`]), nothing needs to be listened for: half of it is the pace
//! from the first segment on. What then arrives without a queue confirms it, and the climb ends at the known rate. A queue
//! or a loss says that the path is another by now, and the pace becomes what arrives.
//!
//! Everything is a function of what was observed. A sender far away is paced by [`receive_window_pace`](super::receive_window_pace).

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

/// What is seen of a connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Bytes that have arrived, as far as this side knows, those behind a gap included: `tcpi_delivered` where we send.
    pub goodput: Bytes,
    /// Bytes that may be in flight: the congestion window.
    pub window: Bytes,
    /// The RTT, smoothed over a few packets, not over round trips.
    pub rtt: Rtt,
    /// The least RTT of the connection.
    pub min_rtt: Rtt,
    /// Bytes sent since the connection's start, those sent again included.
    pub sent: Bytes,
    /// Bytes sent again.
    pub retransmits: Bytes,
}

/// Chooses a connection's pace, many times a round trip.
#[derive(Debug, Clone)]
pub struct Pacer {
    phase: Phase,
    history: History,
    /// The rate of the bottleneck, where a train or a full path has told it.
    capacity: Option<Rate>,
    /// `None` while slow start runs free.
    pace: Option<Rate>,
    /// What was sent again, and what was sent, when loss was last looked at.
    counted: (Bytes, Bytes),
    /// What is seen until then is what an earlier pace has caused.
    deaf_until: Duration,
    /// The last cut, which everything seen in the round trip after it makes more certain.
    cut: Option<Cut>,
    /// A queue that a fast path has room for, until it is paced.
    tolerated: Duration,
    /// The queue for which room was made last.
    standing: Option<Standing>,
    /// Since when the congestion control holds the pace back.
    held_back: Option<Duration>,
    /// When others who fill the queue by their windows were last taken to be there.
    others: Option<Duration>,
    /// How often slow start was begun anew beside others, and when last.
    begun_anew: (u32, Duration),
    /// The highest rate of delivery over a round trip, where nothing is paced.
    peak: Rate,
}

#[derive(Debug, Clone)]
enum Phase {
    Off,
    Listen {
        trains: PacketTrains,
        since: Option<Duration>,
    },
    Trust {
        known: Rate,
        since: Option<Duration>,
    },
    /// Up to `most`, or to what the path itself shows.
    Climb {
        from: Rate,
        since: Option<Duration>,
        most: Option<Rate>,
    },
    Cruise {
        target: Rate,
        probe: Probe,
    },
    /// Beside others who take whatever is left to them: the congestion control's rate, and no sudden return to what was held before.
    Share {
        from: Rate,
        since: Option<Duration>,
    },
}

/// On a shorter path acknowledgements come soon enough for the congestion control to pace itself.
const SHORTEST: Duration = Duration::from_millis(10);
/// A queue of this part of the RTT is tolerated on a path too fast to be paced.
const DEEP_QUEUE: u32 = 8;
/// What is left with each observation of the most that a path too fast to be paced has held: half of it in 7 s.
const REMEMBERED: f64 = 0.99;
/// The longest probe takes a quarter of a second, and must be remembered a round trip later.
const LONGEST_PROBE: Duration = Duration::from_millis(500);
/// Slow start is over by then, if it ever was.
const LONGEST: Duration = Duration::from_secs(20);

impl Default for Pacer {
    fn default() -> Self {
        Self {
            phase: Phase::Listen { trains: PacketTrains::default(), since: None },
            history: History::default(),
            capacity: None,
            pace: None,
            counted: (Bytes::ZERO, Bytes::ZERO),
            deaf_until: Duration::ZERO,
            cut: None,
            tolerated: Duration::ZERO,
            standing: None,
            held_back: None,
            others: None,
            begun_anew: (0, Duration::ZERO),
            peak: Rate::default(),
        }
    }
}

impl Pacer {
    /// Begins on a path that held `known` when it was last used.
    ///
    /// Until the first observation the pace is [`initial_pace`].
    pub fn with_known_rate(known: Rate) -> Self {
        let pace = Some(initial_pace(known));
        Self { phase: Phase::Trust { known, since: None }, pace, ..Self::default() }
    }

    /// Returns the rate that the path was found to hold, as far as that is certain.
    ///
    /// What slow start has come to before that is none.
    pub fn found(&self) -> Option<Rate> {
        match self.phase {
            Phase::Cruise { target, .. } => {
                Some(target).filter(|_| self.cut.is_none() && self.standing.is_none())
            }
            Phase::Off => Some(self.peak).filter(|peak| *peak > MAX_TRAIN_RATE),
            Phase::Listen { .. } | Phase::Trust { .. } | Phase::Climb { .. } | Phase::Share { .. } => None,
        }
    }

    /// Observes the connection at `now`, since any fixed moment; returns the pace to have in force.
    ///
    /// `None` while slow start is to run free. Call it as often as [`Self::interval`] says.
    pub fn observe(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        let min_rtt = seen.min_rtt.get();
        if min_rtt < SHORTEST && self.pace.is_none() {
            self.phase = Phase::Off;
        }
        self.history.push(now, seen.goodput, seen.rtt.get(), seen.sent, (min_rtt * 10).max(LONGEST_PROBE));
        match &mut self.phase {
            Phase::Off => {
                let passed = self.round_trip(seen, now).unwrap_or_default();
                self.peak = self.peak.scaled(REMEMBERED).max(passed);
            }
            Phase::Trust { known, since } => {
                if since.is_none() {
                    self.counted = (seen.retransmits, seen.sent);
                    // The queues of such a path are deeper, and what else is on it more.
                    self.tolerated =
                        if *known > MAX_TRAIN_RATE { min_rtt / DEEP_QUEUE } else { Duration::ZERO };
                }
                let late = now.saturating_sub(*since.get_or_insert(now)) > LONGEST;
                let known = *known;
                self.trust(known, seen, late, now);
            }
            Phase::Listen { trains, since } => {
                let told = trains.observe(seen.goodput, now).map(|train| train.rate);
                if since.is_none() {
                    self.counted = (seen.retransmits, seen.sent);
                }
                let late = now.saturating_sub(*since.get_or_insert(now)) > LONGEST;
                self.listen(seen, told, late, now);
            }
            Phase::Climb { from, since, most } => {
                let climbed = now.saturating_sub(*since.get_or_insert(now));
                let doublings = climbed.as_secs_f64() / min_rtt.as_secs_f64();
                let (pace, most) = (from.scaled(doublings.exp2()), *most);
                self.climb(seen, pace, most, now);
            }
            Phase::Cruise { .. } => self.cruise(seen, now),
            Phase::Share { from, since } => {
                let (from, since) = (*from, *since.get_or_insert(now));
                self.share(from, since, seen, now);
            }
        }
        self.pace
    }

    /// Returns how soon to observe again.
    pub fn interval(&self) -> Duration {
        match self.phase {
            Phase::Off => Duration::from_millis(100),
            Phase::Listen { .. } => Duration::from_micros(200),
            Phase::Trust { .. } | Phase::Climb { .. } | Phase::Cruise { .. } | Phase::Share { .. } => {
                Duration::from_millis(3)
            }
        }
    }

    /// Returns whether it needs slow start no longer to be as it is: the window holds what the pace sends, or nothing is paced.
    pub fn has_settled(&self, seen: &Observation) -> bool {
        match self.phase {
            Phase::Listen { .. } | Phase::Trust { .. } | Phase::Climb { .. } => false,
            Phase::Cruise { target, .. } => seen.window > target.bdp(seen.min_rtt),
            Phase::Off | Phase::Share { .. } => true,
        }
    }

    /// Returns what it is about, for whoever follows it closely.
    pub fn phase(&self) -> &impl std::fmt::Debug {
        &self.phase
    }

    /// Goes on after a time in which nothing was sent: what was seen before says nothing of now.
    pub fn resume(&mut self) {
        self.history = History::default();
        (self.cut, self.standing, self.others, self.held_back) = (None, None, None, None);
        match &mut self.phase {
            Phase::Listen { trains, since } => (*trains, *since) = (PacketTrains::default(), None),
            Phase::Trust { since, .. } => *since = None,
            Phase::Climb { from, since, .. } => (*from, *since) = (self.pace.unwrap_or(*from), None),
            Phase::Off => self.peak = Rate::default(),
            Phase::Cruise { probe, .. } => *probe = Probe::new(Duration::ZERO),
            Phase::Share { since, .. } => *since = None,
        }
    }

    /// Returns whether the congestion control is to be told to grow: for two round trips its window, or its own pace, has been
    /// less than what the path was found to hold.
    ///
    /// Also beside others: the pace has cut its slow start short, and what is lost in others' bursts may do so again.
    pub fn is_held_back(&mut self, seen: &Observation, now: Duration) -> bool {
        if let Phase::Share { .. } = self.phase {
            return self.begins_anew(seen, now);
        }
        let Phase::Cruise { target, probe } = &mut self.phase else { return false };
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

    /// Returns the rate of delivery over the last round trip; `None` before there was a whole one.
    fn round_trip(&self, seen: &Observation, now: Duration) -> Option<Rate> {
        let reaches = self.history.reaches(now.saturating_sub(seen.min_rtt.get()));
        reaches.then(|| self.passed(seen, now))
    }

    /// Returns the rate of delivery over the last round trip, or since the first observation.
    fn passed(&self, seen: &Observation, now: Duration) -> Rate {
        self.history.delivery_rate(now.saturating_sub(seen.min_rtt.get()))
    }
}
