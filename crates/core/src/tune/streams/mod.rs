//! Longhaul's own tuner of the number of streams: finds the number that a path needs within some
//! RTTs, and follows changes.
//!
//! ```text
//!  Ramp-up ----goodput has stopped growing----> Hold ----due----> Trial: more, or fewer ----verdict----> Hold
//!  (one, or several in slow start)               |                                                        ^
//!                                                '---- a queue, and persistent losses: a quarter fewer ---'
//! ```
//!
//! **Ramp-up.** On a long path and for a large file, several connections leave slow start sooner
//! than one. If the limit of each stream is known to the sender, their number doubles before they
//! reach it, as long as neither a queue nor a loss occurs.
//!
//! **Trial.** Another number of streams, until its ramp-up is over and several intervals agree. The
//! number doubles as long as the goodput grows in proportion: each stream is limited by its window,
//! not by the path. If the goodput grows by less, the number becomes the one that the path's rate
//! needs; if it does not grow, the previous number. Streams without a gain are closed step by step,
//! as the others grow. A trial of fewer streams keeps them if the goodput stays.
//!
//! **Hold.** After a failed trial each direction backs off, for longer each time, so that on a
//! steady path the number changes only once or twice per minute.
//!
//! **Fairness.** If a queue stands and losses persist, a quarter of the streams is closed at any
//! cost, and added again one at a time: like TCP's windows, the numbers of sessions that share a
//! bottleneck become equal (AIMD).
//!
//! The tuner is a function of its observations; see `docs/streams.md`.

mod decisions;
mod initial_count;
mod statistics;
mod step_backoff;
mod trial;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::tune::stream_limit::StreamLimit;
use crate::units::{Bytes, Rate, Rtt};

pub use initial_count::MAX_INITIAL_STREAMS;
pub(crate) use initial_count::streams as initial_streams;
use statistics::IntervalStatistics;
use step_backoff::StepBackoff;
use trial::{Level, STREAM_MARGIN};

/// The properties of a transfer for [`StreamTuner::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTunerStart {
    /// The RTT of the path.
    pub rtt: Rtt,
    /// Bytes to fetch.
    pub left: Bytes,
    /// The user's limit of streams.
    pub most: usize,
    /// The result of an earlier transfer, if the RTT shows that the path is the same.
    pub remembered: Option<Remembered>,
    /// The bound of each stream, if known to this host.
    pub bound: Option<StreamBound>,
}

/// The bound of one stream by a buffer of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBound {
    /// The largest number of bytes in flight of one stream.
    pub window: Bytes,
    /// The highest rate that the path may have.
    pub line: Rate,
}

impl StreamBound {
    /// Returns the number of streams that fill the line, with a margin.
    fn streams_to_fill(&self, rtt: Rtt) -> usize {
        let windows = self.line.bdp(rtt).get() as f64 / self.window.get().max(1) as f64;
        (windows * STREAM_MARGIN).ceil() as usize
    }
}

/// The result of a transfer, for later transfers over the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// The RTT of the path.
    pub rtt: Rtt,
    /// The sustained goodput.
    pub rate: Rate,
    /// The number of streams that reached it.
    pub streams: usize,
}

/// The observations of an interval: about one RTT, at least 100 ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The goodput of all streams together.
    pub goodput: Rate,
    /// The RTT without a queue.
    pub rtt: Rtt,
    /// The RTT of the data, which a queue raises; `None` if unknown.
    pub data_rtt: Option<Rtt>,
    /// The connections on which data arrived.
    pub streams: usize,
    /// Packets that arrived out of order: the receiver's sign of losses.
    pub out_of_order: u64,
    /// Bytes still to fetch.
    pub left: Bytes,
    /// Whether the disk, a configured limit or the CPU limited the streams, not the network.
    pub held_back: bool,
    /// The share of the interval in which tasks of this host, or of this process's control group,
    /// waited for a CPU or for memory; 0 if the kernel does not count it.
    pub pressure: f64,
}

/// The pressure from which tasks wait for a CPU or for memory most of the time, so that each
/// further stream slows the others.
///
/// On two cores that also emulate the path, 10 Gbit/s by 64 streams cause 0.5, beside two busy
/// processes 0.75, and beside ten 0.9 and more (23 Nov 2026): only in the last case did more
/// streams reduce the goodput.
const HIGH_PRESSURE: f64 = 0.8;

impl Interval {
    /// Returns whether this host lacked CPU time or memory.
    pub fn is_pressed(&self) -> bool {
        self.pressure >= HIGH_PRESSURE
    }
}

/// Chooses the number of streams of one transfer.
#[derive(Debug, Clone)]
pub struct StreamTuner {
    wanted: usize,
    limit: StreamLimit,
    bound: Option<StreamBound>,
    statistics: IntervalStatistics,
    phase: TunerPhase,
    changed: CountChange,
    backoffs: StepBackoffs,
    reference: ReferenceGoodput,
    /// Whether a trial or a full path has confirmed the number.
    confident: bool,
    concluded: Option<Remembered>,
}

/// The last change of the number of streams.
#[derive(Debug, Clone, Copy, Default)]
struct CountChange {
    at: Duration,
    /// The time since which the intended number of streams carries data.
    since: Option<Duration>,
    /// The time after `since` from which the goodput is that of the present number.
    settling: Duration,
}

impl CountChange {
    /// Returns the time from which the goodput is that of the present number of streams.
    fn settled(&self) -> Option<Duration> {
        self.since.map(|since| since.saturating_add(self.settling))
    }
}

/// When the next step of each kind is due.
#[derive(Debug, Clone)]
struct StepBackoffs {
    up: StepBackoff,
    down: StepBackoff,
    cut: StepBackoff,
}

/// The goodputs with which later ones are compared.
#[derive(Debug, Clone, Copy, Default)]
struct ReferenceGoodput {
    /// That of the present number when it was chosen, in bits per second.
    usual: Option<f64>,
    /// That before the first of several steps, so that small decreases do not add up.
    anchor: Option<Anchor>,
}

/// A goodput to keep, in bits per second.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    goodput: f64,
    until: Duration,
}

#[derive(Debug, Clone, Copy)]
enum TunerPhase {
    RampUp {
        first: Option<Duration>,
        /// The number to begin with, which a cap may hold back for a time.
        initial: usize,
    },
    Hold,
    Trial {
        from: Level,
    },
    /// Closes streams without a gain step by step, as the others grow.
    HandOver {
        to: usize,
    },
}

/// Finds the number of streams of a transfer.
pub trait CountTuner: Send {
    /// Returns the intended number of streams.
    fn streams(&self) -> usize;

    /// Returns the result for later transfers, once it is certain.
    fn conclusion(&self) -> Option<Remembered>;

    /// Records that the server accepts no more than `open` connections, for the time `wait` of a
    /// Retry-After.
    fn refused(&mut self, open: usize, wait: Option<Duration>, now: Duration);

    /// Sets a cap of the number, which may be lowered and raised at any time.
    fn set_cap(&mut self, cap: usize, now: Duration);

    /// Observes an interval that ended at `now`, since a fixed moment; returns the new number of
    /// streams.
    ///
    /// If the number decreases, the slowest streams should be closed.
    fn observe(&mut self, seen: &Interval, now: Duration) -> usize;
}

impl StreamTuner {
    /// Creates a tuner; [`CountTuner::streams`] may be opened as soon as the server has answered a
    /// range request.
    pub fn new(start: &StreamTunerStart) -> Self {
        // The ramp-up after a change takes RTTs.
        let rest =
            |seconds| Duration::from_secs(seconds).max(start.rtt.get().saturating_mul(10 * seconds as u32));
        let known = start.remembered.is_some();
        let initial = initial_count::streams(start);
        Self {
            wanted: initial,
            limit: StreamLimit::new(start.most),
            bound: start.bound,
            statistics: IntervalStatistics::default(),
            phase: TunerPhase::RampUp { first: None, initial },
            changed: CountChange::default(),
            backoffs: StepBackoffs {
                // A remembered number is changed in single steps; an unknown one doubles.
                up: StepBackoff::new(if known { 1 } else { usize::MAX }, rest(4)),
                down: StepBackoff::new(1, rest(8)),
                cut: StepBackoff::new(1, rest(4)),
            },
            reference: ReferenceGoodput::default(),
            confident: false,
            concluded: None,
        }
    }

    fn keep_within_limit(&mut self, now: Duration) {
        let allowed = self.limit.at(now);
        match self.phase {
            TunerPhase::RampUp { initial, .. } => self.wanted = self.wanted.max(initial).min(allowed),
            _ if allowed >= self.wanted => {}
            // The number has grown, but by less than intended: the trial continues with it.
            TunerPhase::Trial { from } if from.streams < allowed => self.wanted = allowed,
            TunerPhase::Trial { .. } | TunerPhase::HandOver { .. } | TunerPhase::Hold => {
                self.phase = TunerPhase::Hold;
                self.change(allowed, self.changed.settling, now);
            }
        }
    }

    /// Records when the intended number of streams carries data after a change.
    fn watch_streams(&mut self, seen: &Interval, now: Duration) {
        let come = match self.phase {
            TunerPhase::Trial { from } if from.streams > self.wanted => seen.streams <= self.wanted,
            // On a congested path some streams wait for a retransmission timeout.
            _ => seen.streams >= self.wanted - self.wanted / MISSING_PART,
        };
        if self.changed.since.is_none()
            && (come || now > self.changed.at.saturating_add(round_trips(SETTLING_TIMEOUT, seen)))
        {
            self.changed.since = Some(now);
        }
    }

    fn change(&mut self, streams: usize, settling: Duration, now: Duration) {
        self.wanted = streams.min(self.limit.at(now));
        self.changed = CountChange { at: now, since: None, settling };
        self.reference.usual = None;
        self.statistics.clear();
    }
}

impl CountTuner for StreamTuner {
    fn streams(&self) -> usize {
        self.wanted
    }

    fn conclusion(&self) -> Option<Remembered> {
        self.concluded
    }

    fn refused(&mut self, open: usize, wait: Option<Duration>, now: Duration) {
        self.limit.refused(open, wait, now);
        self.keep_within_limit(now);
    }

    fn set_cap(&mut self, cap: usize, now: Duration) {
        self.limit.set_cap(cap);
        self.keep_within_limit(now);
    }

    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        self.statistics.push(seen, now);
        self.watch_streams(seen, now);
        match self.phase {
            TunerPhase::RampUp { first, initial } => self.ramp_up((first, initial), seen, now),
            TunerPhase::Hold => self.hold(seen, now),
            TunerPhase::Trial { from } if from.streams < self.wanted => self.try_more(&from, seen, now),
            TunerPhase::Trial { from } => self.try_fewer(&from, seen, now),
            TunerPhase::HandOver { to } => self.hand_over(to, seen, now),
        }
        self.wanted
    }
}

/// One stream in this many may be missing after a change.
const MISSING_PART: usize = 10;
/// The timeout, in RTTs and at least this time, for streams to open or close after a change.
const SETTLING_TIMEOUT: (u32, Duration) = (15, Duration::from_secs(3));

/// Returns the duration of `number` RTTs, at least `least`.
fn round_trips((number, least): (u32, Duration), seen: &Interval) -> Duration {
    seen.rtt.get().saturating_mul(number).max(least)
}
