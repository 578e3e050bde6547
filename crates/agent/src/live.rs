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

use crate::offer::AnswerProperties;
use crate::transfer::{FileProgress, PlanUnits, QueuePlace, Transfer};

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
    /// The progress without times.
    progress: FileProgress,
    first_answer: Option<AnswerProperties>,
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
    id: i64,
    #[serde(flatten)]
    progress: FileProgress,
}

impl Live {
    pub(crate) fn new(transfer: &Transfer, epoch: i64, limit: RateLimit) -> Self {
        let FileProgress { bytes, size, .. } = transfer.progress;
        let progress = FileProgress { bytes, size, ..FileProgress::default() };
        let state = LiveState { progress, ..LiveState::default() };
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
                let size = size.map(|size| size.get());
                (state.progress.size, state.progress.bytes) = (size, resumed.get());
                state.first_answer = Some(AnswerProperties { size, resumable: *resumable });
            }
            Event::Progress(progress) => self.note_progress(progress),
            Event::Limited { by, .. } => {
                let run = &mut self.state.lock().progress.run;
                run.limited_by = Some(by.name().to_owned());
                run.explanation = explanation(*by);
            }
            Event::Done(done) => self.note_done(done),
            _ => {}
        }
    }

    fn note_progress(&self, progress: &Progress) {
        let mut state = self.state.lock();
        let shown = &mut state.progress;
        shown.bytes = progress.bytes.present.get();
        shown.size = progress.bytes.size.map(|size| size.get()).or(shown.size);
        shown.run.streams = progress.streams;
        shown.run.retransmits = progress.retransmits.max(progress.out_of_order);
        let rtt = progress.path.rtt.or(progress.path.data_rtt);
        shown.run.rtt = rtt.map(Rtt::get).map(|rtt| rtt.as_secs_f64());
        state.note_moved(Instant::now(), progress.bytes.received.get());
    }

    fn note_done(&self, done: &Done) {
        let progress = &mut self.state.lock().progress;
        progress.bytes = done.bytes.get();
        // Other workers have done the rest of a plan.
        if progress.run.units.is_none() {
            progress.size = Some(done.bytes.get());
        }
        let run = &mut progress.run;
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
        state.progress.bytes = bytes;
        state.progress.run.streams = streams;
        state.note_moved(Instant::now(), received);
    }

    /// Begins the run of a worker of a plan with so many units; `size` is that of all files, if
    /// known.
    pub(crate) fn note_plan(&self, size: Option<u64>, units: u32) {
        let progress = &mut self.state.lock().progress;
        (progress.bytes, progress.size) = (0, size);
        progress.run.units = Some(PlanUnits { done: 0, total: units });
    }

    /// Counts a unit that the worker has done.
    pub(crate) fn note_unit(&self) {
        self.state.lock().progress.run.units.iter_mut().for_each(|units| units.done += 1);
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
        ProgressMessage { id: self.id, progress: self.progress() }
    }

    /// Returns the progress of the run.
    pub(crate) fn progress(&self) -> FileProgress {
        let state = self.state.lock();
        let mut progress = FileProgress { eta: state.eta(), ..state.progress.clone() };
        progress.run.seconds = self.seconds_before + self.began.elapsed().as_secs_f64();
        progress
    }

    /// Returns the progress of the run, with the stored size if the run's is unknown.
    pub(crate) fn progress_after(&self, stored: &FileProgress) -> FileProgress {
        let progress = self.progress();
        FileProgress { size: progress.size.or(stored.size), ..progress }
    }

    /// Returns the properties in the first answer, once received.
    pub(crate) fn first_answer(&self) -> Option<AnswerProperties> {
        self.state.lock().first_answer
    }

    pub(crate) fn goodput(&self) -> u64 {
        self.state.lock().progress.run.goodput_bps
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
                self.progress.run.goodput_bps =
                    Rate::over(longhaul_core::units::Bytes::new(bytes), time).as_bits_per_sec();
            }
        }
    }

    fn eta(&self) -> Option<f64> {
        let FileProgress { size, bytes, run, .. } = &self.progress;
        // The rate of one worker says nothing of that of all.
        if run.units.is_some() {
            return None;
        }
        let left = (*size)?.checked_sub(*bytes)?;
        (run.goodput_bps > 0).then(|| left as f64 * 8.0 / run.goodput_bps as f64)
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
