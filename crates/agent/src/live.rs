//! A running transfer: its progress, and its cancellation.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use longhaul_core::advice::LimitedBy;
use longhaul_core::event::{Done, Event, Progress};
use longhaul_core::telemetry::Sample;
use longhaul_core::units::{Rate, Rtt};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::sampling::SampleInterval;
use parking_lot::Mutex;
use serde::Serialize;

use crate::offer::FirstAnswer;
use crate::transfer::{FileProgress, PlanUnits, QueuePlace, RunFacts, Transfer};

/// The sampling interval of a running transfer, for its record.
pub(crate) const RECORD_INTERVAL: Duration = Duration::from_millis(200);
/// The sampling interval while a client watches the transfer.
const WATCHED_INTERVAL: Duration = Duration::from_millis(10);
/// The time for which samples are kept.
const KEPT: Duration = Duration::from_secs(60);
/// The minimum interval between two progress messages of a transfer.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// The time span of samples sent at once.
const BATCH: Duration = Duration::from_millis(250);
/// The time span over which the current rate is measured.
const RATE_OVER: Duration = Duration::from_secs(2);

/// A sample with its time, as sent to clients.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TimedSample {
    /// Seconds since the run's start.
    pub(crate) at: f64,
    #[serde(flatten)]
    pub(crate) sample: Sample,
}

/// A running transfer.
pub(crate) struct Live {
    pub(crate) id: i64,
    /// The lease of the run in a farm.
    pub(crate) epoch: i64,
    /// The current place, because a running transfer can be moved.
    pub(crate) place: Mutex<QueuePlace>,
    pub(crate) cancel: Cancel,
    pub(crate) limit: RateLimit,
    pub(crate) sampling: SampleInterval,
    began: Instant,
    /// The duration of earlier runs in seconds.
    seconds_before: f64,
    state: Mutex<LiveState>,
    samples: Mutex<Samples>,
}

#[derive(Default)]
struct LiveState {
    bytes: u64,
    size: Option<u64>,
    first_answer: Option<FirstAnswer>,
    run: RunFacts,
    /// Byte counts of this run with their times, for the rate.
    moved: VecDeque<(Instant, u64)>,
    last_message: Option<Instant>,
}

#[derive(Default)]
struct Samples {
    kept: VecDeque<TimedSample>,
    /// Samples not yet sent to clients.
    batch: Vec<TimedSample>,
    watchers: usize,
}

/// A progress message.
#[derive(Debug, Serialize)]
pub(crate) struct ProgressMessage {
    pub(crate) id: i64,
    pub(crate) bytes: u64,
    pub(crate) size: Option<u64>,
    eta: Option<f64>,
    #[serde(flatten)]
    pub(crate) run: RunFacts,
}

impl Live {
    pub(crate) fn new(transfer: &Transfer, epoch: i64, limit: RateLimit) -> Self {
        let FileProgress { bytes, size, .. } = transfer.progress;
        let state = LiveState { bytes, size, ..LiveState::default() };
        Self {
            id: transfer.id,
            epoch,
            place: Mutex::new(transfer.place),
            cancel: Cancel::new(),
            limit,
            sampling: SampleInterval::new(RECORD_INTERVAL),
            began: Instant::now(),
            seconds_before: transfer.progress.run.seconds,
            state: Mutex::new(state),
            samples: Mutex::default(),
        }
    }

    /// Updates the state from an event of the run.
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Opened { size, resumed, resumable, .. } => {
                let mut state = self.state.lock();
                state.size = size.map(|size| size.get());
                state.bytes = resumed.get();
                state.first_answer = Some(FirstAnswer { size: state.size, resumable: *resumable });
            }
            Event::Progress(progress) => self.note_progress(progress),
            Event::Limited { by, .. } => {
                let mut state = self.state.lock();
                state.run.limited_by = Some(by.name().to_owned());
                state.run.explanation = explanation(*by);
            }
            Event::Done(done) => self.note_done(done),
            _ => {}
        }
    }

    fn note_progress(&self, progress: &Progress) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.bytes = progress.bytes.present.get();
        state.size = progress.bytes.size.map(|size| size.get()).or(state.size);
        state.run.streams = progress.streams;
        state.run.retransmits = progress.retransmits.max(progress.out_of_order);
        state.run.rtt =
            progress.path.rtt.or(progress.path.data_rtt).map(Rtt::get).map(|rtt| rtt.as_secs_f64());
        let received = progress.bytes.received.get();
        state.note_moved(now, received);
    }

    fn note_done(&self, done: &Done) {
        let mut state = self.state.lock();
        state.bytes = done.bytes.get();
        // Other workers have done the rest of a plan.
        if state.run.units.is_none() {
            state.size = Some(done.bytes.get());
        }
        let run = &mut state.run;
        run.goodput_bps = done.goodput.as_bits_per_sec();
        run.streams = done.streams;
        run.retransmits = done.losses.retransmits.or(done.losses.out_of_order).unwrap_or_default();
        run.limited_by = Some(done.finding.limit.name().to_owned());
        run.explanation = explanation(done.finding.limit);
        run.advice = done.finding.advice.iter().map(|advice| of_command_line(advice)).collect();
        run.digest = done.digest.as_ref().map(ToString::to_string);
    }

    /// Updates the state from the totals of a tree.
    pub(crate) fn note_total(&self, bytes: u64, received: u64, streams: usize) {
        let mut state = self.state.lock();
        state.bytes = bytes;
        state.run.streams = streams;
        state.note_moved(Instant::now(), received);
    }

    /// Begins the run of a worker of a plan with so many units; `size` is that of all files, if
    /// known.
    pub(crate) fn note_plan(&self, size: Option<u64>, units: u32) {
        let mut state = self.state.lock();
        (state.bytes, state.size) = (0, size);
        state.run.units = Some(PlanUnits { done: 0, total: units });
    }

    /// Counts a unit that the worker has done.
    pub(crate) fn note_unit(&self) {
        self.state.lock().run.units.iter_mut().for_each(|units| units.done += 1);
    }

    /// Returns whether a progress message is due.
    pub(crate) fn is_progress_due(&self) -> bool {
        let (mut state, now) = (self.state.lock(), Instant::now());
        let due = state
            .last_message
            .is_none_or(|last_message| now.duration_since(last_message) >= PROGRESS_INTERVAL);
        if due {
            state.last_message = Some(now);
        }
        due
    }

    pub(crate) fn message(&self) -> ProgressMessage {
        let state = self.state.lock();
        ProgressMessage {
            id: self.id,
            bytes: state.bytes,
            size: state.size,
            eta: state.eta(),
            run: self.run_facts(&state),
        }
    }

    fn run_facts(&self, state: &LiveState) -> RunFacts {
        RunFacts { seconds: self.seconds(), ..state.run.clone() }
    }

    /// Merges the progress of the run into the stored transfer.
    pub(crate) fn show_in(&self, transfer: &mut Transfer) {
        let state = self.state.lock();
        transfer.progress = FileProgress {
            size: state.size.or(transfer.progress.size),
            bytes: state.bytes,
            run: self.run_facts(&state),
            eta: state.eta(),
        };
    }

    /// Returns the properties in the first answer, once received.
    pub(crate) fn first_answer(&self) -> Option<FirstAnswer> {
        self.state.lock().first_answer
    }

    pub(crate) fn goodput(&self) -> u64 {
        self.state.lock().run.goodput_bps
    }

    fn seconds(&self) -> f64 {
        self.seconds_before + self.began.elapsed().as_secs_f64()
    }

    /// Stores a sample; returns a batch when it is time to send one.
    pub(crate) fn note_sample(&self, at: Duration, sample: &Sample) -> Option<Vec<TimedSample>> {
        let timed = TimedSample { at: at.as_secs_f64(), sample: sample.clone() };
        let mut samples = self.samples.lock();
        let oldest = timed.at - KEPT.as_secs_f64();
        while samples.kept.front().is_some_and(|kept| kept.at < oldest) {
            samples.kept.pop_front();
        }
        samples.kept.push_back(timed.clone());
        if samples.watchers == 0 {
            return None;
        }
        samples.batch.push(timed);
        let first = samples.batch.first().map_or(0.0, |first| first.at);
        (at.as_secs_f64() - first >= BATCH.as_secs_f64()).then(|| std::mem::take(&mut samples.batch))
    }

    /// Returns the samples after `since`, in seconds since the run's start.
    pub(crate) fn samples(&self, since: f64) -> Vec<TimedSample> {
        self.samples.lock().kept.iter().filter(|sample| sample.at > since).cloned().collect()
    }

    /// Counts a watching client; a watched transfer is sampled more often.
    pub(crate) fn watch(&self) {
        self.samples.lock().watchers += 1;
        self.sampling.set(WATCHED_INTERVAL);
    }

    /// Stops counting a watching client.
    pub(crate) fn unwatch(&self) {
        let mut samples = self.samples.lock();
        samples.watchers = samples.watchers.saturating_sub(1);
        if samples.watchers == 0 {
            samples.batch.clear();
            self.sampling.set(RECORD_INTERVAL);
        }
    }
}

impl LiveState {
    fn note_moved(&mut self, now: Instant, received: u64) {
        self.moved.push_back((now, received));
        while self.moved.len() > 2
            && self.moved.get(1).is_some_and(|(at, _)| now.duration_since(*at) > RATE_OVER)
        {
            self.moved.pop_front();
        }
        if let Some((since, before)) = self.moved.front() {
            let (bytes, time) = (received.saturating_sub(*before), now.duration_since(*since));
            if !time.is_zero() {
                self.run.goodput_bps =
                    Rate::over(longhaul_core::units::Bytes::new(bytes), time).as_bits_per_sec();
            }
        }
    }

    fn eta(&self) -> Option<f64> {
        // The rate of one worker says nothing of that of all.
        if self.run.units.is_some() {
            return None;
        }
        let left = self.size?.checked_sub(self.bytes)?;
        (self.run.goodput_bps > 0).then(|| left as f64 * 8.0 / self.run.goodput_bps as f64)
    }
}

/// Returns an advice that says where the option is that it names: the queue has only some.
pub(crate) fn of_command_line(advice: &str) -> String {
    let of_no_command = advice.split("longhaul ").next().unwrap_or_default();
    match of_no_command.split([' ', '(']).any(|word| word.starts_with("--")) {
        true => format!("on the command line: {advice}"),
        false => advice.to_owned(),
    }
}

/// Returns a sentence about the limit of a transfer.
fn explanation(by: LimitedBy) -> String {
    match by {
        LimitedBy::Limit => "Limited by the rate that was set.".to_owned(),
        by => format!("Limited by {}.", by.phrase()),
    }
}
