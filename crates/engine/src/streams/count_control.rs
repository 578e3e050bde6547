//! Controls the number of a source's streams: chooses it before the first byte, and adjusts it
//! during the transfer.
//!
//! The controllers are pure (`core::tune`); this module passes them measurements and applies their
//! decisions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::tune::apt::{Apt, Parameters};
use longhaul_core::tune::doubling::Doubling;
use longhaul_core::tune::stream_limit::StreamLimit;
use longhaul_core::tune::streams::{CountTuner, Remembered, StreamTuner, StreamTunerStart};
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::interval_meter::IntervalMeter;
use super::refused_streams::Refusal;
use super::stream_set::{Starter, StreamSet};
use crate::source::{Description, ServerPath, Source};
use crate::threads::named;
use crate::transfer::error::TransferError;
use crate::transfer::{AptSettings, Direction, SharedSchedule, StreamCap, Streams};

/// The interval at which GridFTP-APT's chunk is checked for completion.
const CHUNK_LOOK: Duration = Duration::from_millis(250);
/// The minimum chunk of GridFTP-APT; a smaller one would measure only the round trips of its
/// requests. The paper has no such bound; it applies below a goodput of 2.8 Mbit/s with the paper's
/// Delta of 3 s.
const SMALLEST_CHUNK: Bytes = Bytes::mib(1);

/// The control of the number of a source's streams.
pub(crate) enum CountControl {
    /// A fixed number.
    Fixed(usize),
    /// Longhaul's tuner, on a path of this RTT.
    Auto { tuner: Box<dyn CountTuner>, rtt: Rtt },
    /// GridFTP-APT; initially only its first chunk may be leased.
    Apt(Box<Apt>),
}

/// The inputs to the choice of the number of streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountStart {
    /// Whether several streams may share the file.
    pub(crate) divisible: bool,
    /// Whether one stream is best if the number is free.
    pub(crate) alone: bool,
    /// The bytes that a stream can have in flight in its first round trip.
    pub(crate) first_window: Bytes,
    /// The bytes left to request.
    pub(crate) rest: Bytes,
    /// What a tuner starts from.
    pub(crate) tuner: StreamTunerStart,
    /// Whether one worker moves bytes over all connections, so that a change of their number
    /// restarts all.
    pub(crate) multiplexed: bool,
}

impl CountStart {
    /// Creates the inputs of a fetch; if the server paces its response, one stream is best.
    pub(crate) fn of_fetch(source: &dyn Source, description: &Description, paced: bool, left: Bytes) -> Self {
        let ServerPath { rtt, first_window, known, .. } = &description.path;
        let remembered = known.as_ref().and_then(|known| known.still_holds(*rtt));
        Self {
            divisible: description.ranges.divisible,
            alone: paced,
            first_window: *first_window,
            // The first range is already requested in full.
            rest: left - description.ranges.first.len(),
            // The send buffer, which would bound each stream, is on the server.
            tuner: StreamTunerStart { rtt: *rtt, left, most: MAX_STREAMS, remembered, bound: None },
            multiplexed: source.multiplexes(),
        }
    }
}

/// Chooses the control from the user's choice and the limits of the transfer. A tuner begins within
/// the cap, and follows it when it rises.
pub(crate) fn chosen(streams: Streams, cap: &StreamCap, start: &CountStart) -> CountControl {
    let CountStart { divisible, alone, first_window, rest, tuner: start, multiplexed } = *start;
    let StreamTunerStart { rtt, most, .. } = start;
    match streams {
        Streams::Fixed(streams) if divisible => CountControl::Fixed(streams.max(1)),
        Streams::Auto if alone => CountControl::Fixed(1),
        Streams::Auto if divisible && rest > Bytes::ZERO => {
            // In GridFTP's MODE E, a change restarts all connections; elsewhere it does not affect
            // the others.
            let mut tuner: Box<dyn CountTuner> = if multiplexed {
                Box::new(Doubling::new(&start))
            } else {
                Box::new(StreamTuner::new(&start))
            };
            tuner.set_cap(cap.get(), Duration::ZERO);
            CountControl::Auto { tuner, rtt }
        }
        Streams::Apt(AptSettings { n0, alpha, delta }) if divisible => {
            let (window, most) = (first_window, most.min(cap.get()));
            CountControl::Apt(Box::new(Apt::new(Parameters { n0, alpha, delta, window, rtt, most })))
        }
        _ => CountControl::Fixed(1),
    }
}

impl CountControl {
    /// Returns the initial number of streams.
    pub(crate) fn streams(&self) -> usize {
        match self {
            Self::Fixed(streams) => *streams,
            Self::Auto { tuner, .. } => tuner.streams(),
            Self::Apt(tuner) => tuner.chunk().streams,
        }
    }

    /// Returns whether the number may change.
    pub(crate) fn is_controlled(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }

    /// Returns the bytes that may be leased before the first chunk is complete; `None` for all.
    pub(crate) fn first_chunk(&self) -> Option<Bytes> {
        match self {
            Self::Apt(tuner) => Some(tuner.chunk().size),
            Self::Fixed(_) | Self::Auto { .. } => None,
        }
    }

    /// Starts the first streams, and the thread that controls their number and returns the
    /// measurements of the path.
    pub(crate) fn start<'scope, D: Direction>(
        self,
        set: &'scope StreamSet<'_, D>,
        starter: Starter<'scope, '_>,
    ) -> Option<ScopedJoinHandle<'scope, Option<Remembered>>> {
        set.set_count(self.streams().max(1), &starter);
        if !self.is_controlled() {
            return None;
        }
        let threads = starter.threads;
        let unbounded = Unbounded(&set.round.schedule);
        let run = move || {
            let _unbounded = unbounded;
            let control = || match self {
                Self::Fixed(_) => None,
                Self::Auto { tuner, rtt } => control_auto(tuner, rtt, set, &starter),
                Self::Apt(tuner) => {
                    control_apt(*tuner, set, &starter);
                    None
                }
            };
            catch_unwind(AssertUnwindSafe(control)).unwrap_or_else(|_| {
                set.round.end.fail(TransferError::panicked("the control of the number of streams"));
                None
            })
        };
        let started = named("streams").spawn_scoped(threads, run);
        started
            .map_err(|error| tracing::warn!("the number of streams stays: cannot start a thread: {error}"))
            .ok()
    }
}

/// Passes each interval to Longhaul's tuner, and applies its number of streams, until no work is
/// left.
fn control_auto<'scope, D: Direction>(
    mut tuner: Box<dyn CountTuner>,
    rtt: Rtt,
    set: &'scope StreamSet<'_, D>,
    starter: &Starter<'scope, '_>,
) -> Option<Remembered> {
    let (schedule, stop) = (&set.round.schedule, &set.round.end.stop);
    let now = || set.round.transfer.start.elapsed();
    let mut meter = IntervalMeter::new(rtt, set);
    let mut last = Rate::default();
    loop {
        schedule.rest(meter.interval(), stop);
        if schedule.is_done() || stop.is_cancelled() || set.streams().is_empty() {
            return tuner.conclusion();
        }
        let seen = meter.look(set);
        // The lower of two intervals: after a pause of this host, one interval contains the bytes
        // of two, and windows derived from that rate would overflow the path's queue.
        set.progress().note_rate(seen.goodput.min(std::mem::replace(&mut last, seen.goodput)));
        schedule.with(|schedule, _| schedule.set_pressed(seen.is_pressed()));
        let refusal = set.take_refusal();
        if let Some(Refusal { open, wait }) = refusal {
            tuner.refused(open, wait, now());
        }
        tuner.set_cap(set.round.options.stream_cap.get(), now());
        let wanted = tuner.observe(&seen, now());
        tracing::debug!(target: "longhaul::streams", wanted, ?seen);
        apply_count(wanted, refusal, set, starter);
    }
}

/// Measures the goodput of each complete chunk of GridFTP-APT, and allows the next one to be
/// leased.
///
/// Connections stay open between chunks.
fn control_apt<'scope, D: Direction>(
    mut apt: Apt,
    set: &'scope StreamSet<'_, D>,
    starter: &Starter<'scope, '_>,
) {
    let (transfer, schedule, stop) = (set.round.transfer, &set.round.schedule, &set.round.end.stop);
    let mut limit = StreamLimit::new(MAX_STREAMS);
    loop {
        let (began, before) = (Instant::now(), transfer.received());
        while !schedule.rest_until_idle(CHUNK_LOOK, stop) {
            if stop.is_cancelled() || set.streams().is_empty() {
                return;
            }
        }
        if schedule.is_done() {
            return;
        }
        let goodput = Rate::over(transfer.received() - before, began.elapsed());
        let next = apt.observe(goodput);
        tracing::debug!(target: "longhaul::streams", %goodput, ?next, phase = ?apt.phase());
        let refusal = set.take_refusal();
        if let Some(Refusal { open, wait }) = refusal {
            limit.refused(open, wait, transfer.start.elapsed());
        }
        limit.set_cap(set.round.options.stream_cap.get());
        apply_count(next.streams.min(limit.at(transfer.start.elapsed())), refusal, set, starter);
        schedule.change(|schedule| schedule.allow(next.size.max(SMALLEST_CHUNK)));
    }
}

/// Applies the number of streams of a controller. After a refusal, it is set again even if
/// unchanged, because blocks and segments are still planned for the refused streams.
fn apply_count<'scope, D: Direction>(
    wanted: usize,
    refusal: Option<Refusal>,
    set: &'scope StreamSet<'_, D>,
    starter: &Starter<'scope, '_>,
) {
    if refusal.is_some() || wanted != set.staying() {
        set.set_count(wanted, starter);
    }
}

/// Lifts the bound on leases when the controller ends for any reason; otherwise streams would wait
/// for ever.
struct Unbounded<'a>(&'a SharedSchedule);

impl Drop for Unbounded<'_> {
    fn drop(&mut self) {
        self.0.change(|schedule| schedule.allow(Bytes::new(u64::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::tune::streams::Interval;

    use super::*;

    #[test]
    fn tuner_begins_within_a_low_cap_and_follows_it_when_it_rises() {
        const STEP: Duration = Duration::from_millis(100);
        let (rtt, left) = (Rtt::new(STEP), Bytes::gib(64));
        for multiplexed in [false, true] {
            let start = CountStart {
                divisible: true,
                alone: false,
                first_window: Bytes::kib(64),
                rest: left,
                tuner: StreamTunerStart { rtt, left, most: MAX_STREAMS, remembered: None, bound: None },
                multiplexed,
            };
            let control = chosen(Streams::Auto, &StreamCap::new(1), &start);
            assert_eq!(control.streams(), 1);
            let CountControl::Auto { mut tuner, .. } = control else { panic!("a fixed number") };
            // Each stream is limited by its window.
            let mut run = |cap, steps: std::ops::Range<u32>| {
                for step in steps {
                    let (now, streams) = (STEP * step, tuner.streams());
                    tuner.set_cap(cap, now);
                    let seen = Interval {
                        goodput: Rate::bits_per_sec(10_000_000 * streams as u64),
                        rtt,
                        data_rtt: Some(rtt),
                        streams,
                        out_of_order: 0,
                        left,
                        held_back: false,
                        pressure: 0.0,
                    };
                    assert!(tuner.observe(&seen, now) <= cap);
                }
                tuner.streams()
            };
            assert_eq!([run(1, 1..120), run(32, 120..1200)], [1, 32], "multiplexed: {multiplexed}");
        }
    }
}
