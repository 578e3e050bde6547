//! Longhaul's own tuner of the number of streams: finds how many a path needs, within round trips, and follows it.
//!
//! ```text
//!  Ramp-up ----goodput has stopped growing----> Hold ----due----> Trial: more, or fewer ----verdict----> Hold
//!  (one, or several in slow start)               |                                                        ^
//!                                                '---- a queue, and losses that persist: a quarter fewer -'
//! ```
//!
//! **Ramp-up.** On a long path with much to fetch several connections leave slow start sooner than one.
//!
//! **Trial.** Another number of streams, until its own ramp-up is over and several intervals agree. Twice as many as
//! long as the sum grows in proportion: each is held by its window, not by the path. Where it grows by less, as many
//! as the path's rate needs of such streams; where it does not grow, as many as before. Those that do not pay are handed
//! over step by step, as the others grow. Fewer streams stay where the sum does.
//!
//! **Hold.** Each direction rests after a failure, for longer each time, so that a steady path sees a change or two a
//! minute.
//!
//! **Fairness.** Where data waits in a queue and losses persist, a quarter of the streams go whatever that costs, and
//! come back one at a time: as TCP's own windows, the numbers of sessions that share a bottleneck become equal.
//!
//! Everything is a function of what was observed; `docs/streams.md` tells more.

mod initial_count;
mod phases;
mod statistics;
mod step_backoff;
#[cfg(test)]
mod tests;
mod trial;

use std::time::Duration;

use crate::tune::stream_limit::StreamLimit;
use crate::units::{Bytes, Rate, Rtt};

use statistics::IntervalStatistics;
use step_backoff::StepBackoff;
use trial::Level;

/// What is known before anything was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTunerStart {
    /// The RTT of the path.
    pub rtt: Rtt,
    /// What is still to be fetched.
    pub left: Bytes,
    /// The most streams that the user allows.
    pub most: usize,
    /// What an earlier transfer has shown of this path, where it is still the same: the RTT tells.
    pub remembered: Option<Remembered>,
}

/// What is worth remembering of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Its RTT.
    pub rtt: Rtt,
    /// The goodput that was sustained.
    pub rate: Rate,
    /// The number of streams that did it.
    pub streams: usize,
}

/// What an interval has shown: about a round trip, or 100 ms where that is longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// What arrived on all streams together, over the time.
    pub goodput: Rate,
    /// The RTT of the empty path.
    pub rtt: Rtt,
    /// The RTT that the data sees now, where it is known: a queue shows in it.
    pub data_rtt: Option<Rtt>,
    /// The connections on which data arrived.
    pub streams: usize,
    /// Packets that arrived out of order: losses, as a receiver sees them.
    pub out_of_order: u64,
    /// What is still to be fetched.
    pub left: Bytes,
    /// Whether our disk, a limit or the CPU held the streams, not the network.
    pub held_back: bool,
}

/// Chooses the number of streams of one transfer.
#[derive(Debug, Clone)]
pub struct StreamTuner {
    wanted: usize,
    limit: StreamLimit,
    statistics: IntervalStatistics,
    phase: Phase,
    /// When the number was last changed,
    changed: Duration,
    /// since when as many carry data,
    since: Option<Duration>,
    /// and how long after that what arrives is what they bring.
    settling: Duration,
    up: StepBackoff,
    down: StepBackoff,
    cut: StepBackoff,
    /// What the present number brought when it was chosen, in bits per second.
    usual: Option<f64>,
    /// What streams brought before the first of several steps, so that small losses do not add up.
    anchor: Option<Anchor>,
    /// Whether a trial or a full path has confirmed the number.
    confident: bool,
    concluded: Option<Remembered>,
}

/// A goodput that is to be kept, in bits per second.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    goodput: f64,
    until: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    RampUp {
        first: Option<Duration>,
    },
    Hold,
    Trial {
        from: Level,
    },
    /// Streams that do not pay are given up as the others grow.
    HandOver {
        to: usize,
    },
}

impl StreamTuner {
    /// Begins; [`Self::streams`] may be opened as soon as the server is known to honour ranges.
    pub fn new(start: &StreamTunerStart) -> Self {
        // A change costs round trips.
        let rest =
            |seconds| Duration::from_secs(seconds).max(start.rtt.get().saturating_mul(10 * seconds as u32));
        let known = start.remembered.is_some();
        Self {
            wanted: initial_count::streams(start),
            limit: StreamLimit::new(start.most),
            statistics: IntervalStatistics::default(),
            phase: Phase::RampUp { first: None },
            changed: Duration::ZERO,
            since: None,
            settling: Duration::ZERO,
            // What is remembered is only checked; else it is doubled.
            up: StepBackoff::new(if known { 1 } else { usize::MAX }, rest(4)),
            down: StepBackoff::new(1, rest(8)),
            cut: StepBackoff::new(1, rest(4)),
            usual: None,
            anchor: None,
            confident: false,
            concluded: None,
        }
    }

    /// Returns how many streams there should be now.
    pub fn streams(&self) -> usize {
        self.wanted
    }

    /// Returns what to remember of this path, once it is certain.
    pub fn conclusion(&self) -> Option<Remembered> {
        self.concluded
    }

    /// Notes that the server allows no more than `open` streams for now, and for how long where it has said so.
    pub fn refused(&mut self, open: usize, wait: Option<Duration>, now: Duration) {
        self.limit.refused(open, wait, now);
        let allowed = self.limit.at(now);
        if allowed >= self.wanted {
            return;
        }
        match self.phase {
            // Fewer than were to be tried, but more than before: that is what is tried now.
            Phase::Trial { from } if from.streams < allowed => self.wanted = allowed,
            Phase::RampUp { .. } => self.wanted = allowed,
            Phase::Trial { .. } | Phase::HandOver { .. } | Phase::Hold => {
                self.phase = Phase::Hold;
                self.change(allowed, self.settling, now);
            }
        }
    }

    /// Observes an interval that ended at `now`, since any fixed moment; returns how many streams there should be from now on.
    ///
    /// Where these are fewer, the slowest should go.
    pub fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        self.statistics.push(seen, now);
        self.await_streams(seen, now);
        match self.phase {
            Phase::RampUp { first } => self.ramp_up(first, seen, now),
            Phase::Hold => self.hold(seen, now),
            Phase::Trial { from } if from.streams < self.wanted => self.try_more(&from, seen, now),
            Phase::Trial { from } => self.try_fewer(&from, seen, now),
            Phase::HandOver { to } => self.hand_over(to, seen, now),
        }
        self.wanted
    }

    /// Notes when as many streams carry data as are wanted, after a change.
    fn await_streams(&mut self, seen: &Interval, now: Duration) {
        let come = match self.phase {
            Phase::Trial { from } if from.streams > self.wanted => seen.streams <= self.wanted,
            // On a crowded path some wait for a timeout.
            _ => seen.streams >= self.wanted - self.wanted / MISSING,
        };
        if self.since.is_none() && (come || now > self.changed.saturating_add(round_trips(LATE, seen))) {
            self.since = Some(now);
        }
    }

    /// Returns from when on what arrives is what the present number of streams brings.
    fn settled(&self) -> Option<Duration> {
        self.since.map(|since| since.saturating_add(self.settling))
    }

    fn change(&mut self, streams: usize, settling: Duration, now: Duration) {
        self.wanted = streams.min(self.limit.at(now));
        self.changed = now;
        self.since = None;
        self.settling = settling;
        self.usual = None;
        self.statistics.clear();
    }
}

/// This part of the streams may be missing.
const MISSING: usize = 10;
/// Streams that have not come, or not gone, after so many round trips, and this time, are not waited for.
const LATE: (u32, Duration) = (15, Duration::from_secs(3));

/// Returns so many round trips, or the time if that is longer.
fn round_trips((number, least): (u32, Duration), seen: &Interval) -> Duration {
    seen.rtt.get().saturating_mul(number).max(least)
}
