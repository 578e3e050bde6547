//! Assigns the time of a transfer to limits, interval by interval, while it runs.

use std::time::Duration;

use super::classifier::Classifier;
use super::interval::Interval;
use super::reading::{End, Reading, SenderPace};
use super::shares::Shares;
use super::verdict::{self, KnownLimits};
use super::witness::{Witness, WitnessedTime};
use super::{Finding, LimitedBy};
use crate::units::{Bytes, Rate, Rtt};

/// The shortest interval: below it a reading of a receiver shows single bursts.
const SHORTEST: Duration = Duration::from_millis(100);

/// Follows a transfer from reading to reading.
///
/// ```
/// use std::time::Duration;
/// use longhaul_core::advice::{Attribution, End, LimitedBy, Reading, ThreadTimes};
/// use longhaul_core::units::Bytes;
///
/// let mut attribution = Attribution::new(End::Receiver);
/// for second in 0..10 {
///     // The streams wait for a free segment for nine tenths of the time.
///     let threads = Some(ThreadTimes { disk: Duration::from_millis(900 * second), ..Default::default() });
///     let moved = Bytes::mib(second * 10);
///     attribution.observe(Duration::from_secs(second), &Reading { moved, streams: 1, threads, ..Default::default() });
/// }
/// assert_eq!(attribution.finding(&Default::default()).limit, LimitedBy::Disk);
/// ```
#[derive(Debug, Clone)]
pub struct Attribution {
    pub(super) classifier: Classifier,
    pub(super) end: End,
    /// The reading at which the present interval began.
    begun: (Duration, Reading),
    /// The latest reading.
    pub(super) latest: (Duration, Reading),
    /// The highest RTT of the data since then, and until the first loss.
    highest_data_rtt: Option<Rtt>,
    highest_before_loss: Option<Rtt>,
    /// The sum of the readings' times since data had arrived, and their number.
    data_ages: (Duration, u32),
    /// What showed the limit of the last interval.
    last: Option<Witness>,
    /// What each witness has shown, in the order of their first appearance.
    evidence: Vec<(Witness, Evidence)>,
}

/// A time that is assigned to one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitedSpan {
    /// When it begins, since the transfer's start.
    pub from: Duration,
    /// When it ends.
    pub to: Duration,
    /// What limited the transfer.
    pub limit: LimitedBy,
}

/// What the intervals of one witness, or of one limit, have shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Their time.
    pub(super) time: Duration,
    /// That of it which no reading covers: the end of a file, where it is made durable.
    pub(super) settled: Duration,
    /// What was moved in them.
    pub(super) moved: Bytes,
    /// Packets lost or out of order in them.
    pub(super) lost: u64,
    /// Most connections.
    pub(super) streams: u64,
    /// Bytes in flight times the seconds of each interval.
    pub(super) in_flight_seconds: f64,
    pub(super) window: WindowEvidence,
    /// The least RTT.
    pub(super) min_rtt: Option<Rtt>,
    /// The highest RTT of the data.
    pub(super) data_rtt: Option<Rtt>,
    /// The highest rate at which data arrived in an interval.
    pub(super) best: Rate,
}

/// What the intervals have shown of the receive windows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowEvidence {
    /// The largest sum of the windows.
    pub(super) largest: Bytes,
    /// Whether a connection was opened without window scaling.
    pub(super) unscaled: bool,
}

impl Evidence {
    fn of(interval: &Interval) -> Self {
        Self {
            time: interval.span,
            settled: Duration::ZERO,
            moved: interval.moved(),
            lost: interval.lost(),
            streams: interval.streams(),
            in_flight_seconds: interval.in_flight().get() as f64 * interval.span.as_secs_f64(),
            window: WindowEvidence {
                largest: interval.now.window.unwrap_or_default(),
                unscaled: interval.now.unscaled,
            },
            min_rtt: interval.min_rtt(),
            data_rtt: interval.now.path.data_rtt,
            best: interval.rate_on_path(),
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            time: self.time + other.time,
            settled: self.settled + other.settled,
            moved: self.moved + other.moved,
            lost: self.lost.saturating_add(other.lost),
            streams: self.streams.max(other.streams),
            in_flight_seconds: self.in_flight_seconds + other.in_flight_seconds,
            window: WindowEvidence {
                largest: self.window.largest.max(other.window.largest),
                unscaled: self.window.unscaled || other.window.unscaled,
            },
            min_rtt: self.min_rtt.into_iter().chain(other.min_rtt).min(),
            data_rtt: self.data_rtt.max(other.data_rtt),
            best: self.best.max(other.best),
        }
    }

    /// Returns the mean rate.
    pub(super) fn rate(&self) -> Rate {
        Rate::over(self.moved, self.time)
    }

    /// Returns the mean of the bytes in flight.
    pub(super) fn in_flight(&self) -> Bytes {
        Bytes::new((self.in_flight_seconds / self.time.as_secs_f64().max(1e-9)) as u64)
    }

    /// Returns the mean of the bytes in flight on one connection.
    pub(super) fn in_flight_per_stream(&self) -> Bytes {
        Bytes::new(self.in_flight().get() / self.streams.max(1))
    }
}

impl Attribution {
    /// Begins at time zero, where nothing is moved yet.
    pub fn new(end: End) -> Self {
        Self {
            classifier: Classifier::new(end),
            end,
            begun: Default::default(),
            latest: Default::default(),
            highest_data_rtt: None,
            highest_before_loss: None,
            data_ages: Default::default(),
            last: None,
            evidence: Vec::new(),
        }
    }

    /// Begins at a later time, in the middle of a transfer that has moved what `reading` tells.
    pub fn from(end: End, now: Duration, reading: &Reading) -> Self {
        let mut attribution = Self { begun: (now, *reading), latest: (now, *reading), ..Self::new(end) };
        attribution.classifier.is_under_way = true;
        attribution
    }

    /// Notes what the sender paces itself to: an even rate without a queue is the path's, the
    /// operator's or the requested one.
    #[must_use]
    pub fn with_pace(mut self, pace: Option<SenderPace>) -> Self {
        self.classifier.ends.pace = pace;
        self
    }

    /// Notes that the other end is a client, whose limits are not those of a server.
    #[must_use]
    pub fn with_client_peer(mut self, is_client: bool) -> Self {
        self.classifier.ends.is_client_peer = is_client;
        self
    }

    /// Notes that packets are observed: what lies unread is inferred from the window.
    #[must_use]
    pub fn of_packets(mut self) -> Self {
        self.classifier.ends.is_capture = true;
        self
    }

    /// Observes a reading at `now`, since the transfer's start; returns the interval that it ends,
    /// if any.
    ///
    /// Intervals last a round trip and at least 100 ms. The first one lasts until the first byte.
    pub fn observe(&mut self, now: Duration, reading: &Reading) -> Option<LimitedSpan> {
        self.latest = (now, *reading);
        self.highest_data_rtt = self.highest_data_rtt.max(reading.path.data_rtt);
        // A record may hold any time.
        self.data_ages = (self.data_ages.0.saturating_add(reading.packets.age), self.data_ages.1 + 1);
        if reading.packets.lost == self.begun.1.packets.lost {
            self.highest_before_loss = self.highest_data_rtt;
        }
        if self.is_whole() { self.close() } else { None }
    }

    /// Returns whether the present interval is long enough to show its own limit.
    fn is_whole(&self) -> bool {
        let rtt = self.latest.1.path.min_rtt.map_or(Duration::ZERO, Rtt::get);
        self.latest.0.saturating_sub(self.begun.0) >= SHORTEST.max(rtt)
    }

    /// Ends the last interval. A part of one shows single bursts, and counts as the interval before
    /// it.
    pub fn end(&mut self) -> Option<LimitedSpan> {
        self.close()
    }

    /// Assigns the time from the last reading to `now` to a limit that is known otherwise, by
    /// `witness`.
    pub fn assign(&mut self, now: Duration, witness: Witness) -> Option<LimitedSpan> {
        let (from, reading) = self.latest;
        let span = now.checked_sub(from).filter(|span| *span > Duration::ZERO)?;
        self.add(witness, &Evidence { time: span, settled: span, ..Evidence::default() });
        (self.begun, self.latest) = ((now, reading), (now, reading));
        Some(LimitedSpan { from, to: now, limit: witness.limit() })
    }

    fn add(&mut self, witness: Witness, more: &Evidence) {
        match self.evidence.iter_mut().find(|(of, _)| *of == witness) {
            Some((_, evidence)) => *evidence = evidence.and(more),
            None => self.evidence.push((witness, *more)),
        }
    }

    fn close(&mut self) -> Option<LimitedSpan> {
        let ((from, before), (to, now)) = (self.begun, self.latest);
        let span = to.checked_sub(from).filter(|span| *span > Duration::ZERO)?;
        let (ages, readings) = std::mem::take(&mut self.data_ages);
        let interval = Interval {
            end: to,
            span,
            before,
            now,
            highest_data_rtt: self.highest_data_rtt.take(),
            highest_before_loss: self.highest_before_loss.take(),
            data_age: ages / readings.max(1),
        };
        let evidence = Evidence::of(&interval);
        let (witness, evidence) = match self.last.filter(|_| !self.is_whole()) {
            // Nor is the rate of a burst one that the path carries.
            Some(last) => (last, Evidence { best: Rate::default(), ..evidence }),
            None => (self.classifier.classify(&interval), evidence),
        };
        self.last = Some(witness);
        self.add(witness, &evidence);
        self.begun = self.latest;
        Some(LimitedSpan { from, to, limit: witness.limit() })
    }

    /// Returns for which share of the time each limit held the transfer back.
    pub fn shares(&self) -> Shares {
        Shares::of(self.evidence.iter().map(|(witness, evidence)| (witness.limit(), evidence.time)))
    }

    /// Returns what showed these limits, the longest first.
    pub(super) fn witnesses(&self) -> Vec<WitnessedTime> {
        let mut all: Vec<_> =
            self.evidence.iter().map(|(witness, evidence)| WitnessedTime::of(*witness, evidence)).collect();
        all.sort_by_key(|witnessed| std::cmp::Reverse(witnessed.time));
        all
    }

    /// Returns what held the transfer back for longest, with evidence and cure.
    pub fn finding(&self, known: &KnownLimits) -> Finding {
        verdict::finding(self, known)
    }

    pub(super) fn evidence(&self, limit: LimitedBy) -> Evidence {
        let of_limit = self.evidence.iter().filter(|(witness, _)| witness.limit() == limit);
        of_limit.fold(Evidence::default(), |sum, (_, evidence)| sum.and(evidence))
    }

    /// Returns what showed a limit for longest.
    pub(super) fn main_witness(&self, limit: LimitedBy) -> Witness {
        let of_limit = self.evidence.iter().filter(|(witness, _)| witness.limit() == limit);
        of_limit.max_by_key(|(_, evidence)| evidence.time).map(|(witness, _)| *witness).unwrap_or_default()
    }

    /// Returns the time and the bytes of all intervals.
    pub(super) fn observed(&self) -> (Duration, Bytes) {
        let sum = |(time, moved), (_, of): &(Witness, Evidence)| (time + of.time, moved + of.moved);
        self.evidence.iter().fold((Duration::ZERO, Bytes::ZERO), sum)
    }

    /// Returns the highest rate of an interval, whatever limited it.
    pub(super) fn best(&self) -> Rate {
        self.evidence.iter().map(|(_, evidence)| evidence.best).max().unwrap_or_default()
    }
}
