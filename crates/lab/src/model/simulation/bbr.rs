//! BBRv1 (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016; Linux `tcp_bbr.c`).
//!
//! ```text
//! Startup -- bandwidth has not grown by a quarter for 3 RTTs --> Drain -- one BDP in flight --> ProbeBw
//!                        any -- min_rtt is 10 s old --> ProbeRtt -- 200 ms --> ProbeBw or Startup
//! ```
//!
//! Not modelled: the detection of policers (`lt_bw`), the packet conservation in the first RTT of a recovery, and the allowance for
//! aggregated acknowledgements. None of them acts on a path that loses by its queue alone, but for one RTT a loss episode.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::congestion::{AckSample, INITIAL_WINDOW};
use crate::model::Time;

/// The gain of Startup: 2 / ln 2, the least that doubles the rate each RTT.
const HIGH_GAIN: f64 = 2.885;
/// The window over the BDP after Startup.
const WINDOW_GAIN: f64 = 2.0;
/// The gains of ProbeBw, an RTT each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The phases in which ProbeBw may start: the kernel draws any but the one that drains.
const FIRST_PHASES: [usize; 7] = [0, 2, 3, 4, 5, 6, 7];
/// Bandwidth samples count for this many RTTs.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Startup ends where the bandwidth has not grown by this factor
const FULL_GROWTH: f64 = 1.25;
/// for this many RTTs.
const FULL_ROUNDS: u32 = 3;
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// The window of ProbeRtt, and the least of all.
const MIN_WINDOW: f64 = 4.0;
/// The pace is this share of the estimate, which keeps the queue from growing.
const PACING_MARGIN: f64 = 0.99;

/// The state of a sender. Windows are in segments, rates in segments per second.
#[derive(Debug)]
pub(super) struct Bbr {
    mode: Mode,
    window: f64,
    /// The window before ProbeRtt.
    prior_window: f64,
    pace: Option<f64>,
    /// The largest sample of each of the last rounds.
    samples: VecDeque<(u64, f64)>,
    round: u64,
    /// The round ends with the acknowledgement of a packet sent after so much was delivered.
    round_end: u64,
    full: FullPipe,
    min_rtt: Option<(Duration, Time)>,
    /// Whether anything was lost since the last acknowledgement.
    has_lost: bool,
    /// The counts of delivered segments in the last ProbeRtt: packets sent then do not lower the bandwidth (Linux marks them `app_limited`).
    limited: Range<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw { phase: usize, since: Time },
    ProbeRtt { until: Option<Time>, round: u64 },
}

/// Whether the bandwidth has ceased to grow.
#[derive(Debug, Default)]
struct FullPipe {
    bandwidth: f64,
    rounds: u32,
    is_reached: bool,
}

impl Bbr {
    /// Starts with a window of so many segments, and the minimum RTT where it is known.
    pub(super) fn new(window: f64, min_rtt: Option<(Duration, Time)>) -> Self {
        Self {
            mode: Mode::Startup,
            window,
            prior_window: window,
            pace: min_rtt.map(|(rtt, _)| HIGH_GAIN * window / rtt.as_secs_f64().max(1e-6)),
            samples: VecDeque::new(),
            round: 0,
            round_end: 0,
            full: FullPipe::default(),
            min_rtt,
            has_lost: false,
            limited: 0..0,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Returns the pace; `None` before the first acknowledgement.
    pub(super) fn pace(&self) -> Option<f64> {
        self.pace
    }

    /// Begins again with Startup.
    pub(super) fn restart(&mut self) {
        (self.mode, self.full) = (Mode::Startup, FullPipe::default());
    }

    pub(super) fn lost(&mut self) {
        self.has_lost = true;
    }

    pub(super) fn acknowledged(&mut self, sample: &AckSample, now: Time) {
        let in_flight = (sample.in_flight - sample.segments) as f64;
        let is_new_round = sample.delivered_before >= self.round_end;
        if is_new_round {
            (self.round, self.round_end) = (self.round + 1, sample.delivered);
        }
        self.sample_bandwidth(sample);
        self.cycle(in_flight, now);
        if is_new_round && !self.full.is_reached {
            self.full.check(self.bandwidth());
        }
        if self.mode == Mode::Startup && self.full.is_reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && in_flight <= self.bdp() {
            self.mode = probe_bw(sample, now);
        }
        self.probe_rtt(sample, in_flight, now);
        self.set_pace(sample.rtt);
        self.set_window(sample);
        self.has_lost = false;
    }

    fn sample_bandwidth(&mut self, sample: &AckSample) {
        // Shorter than an RTT is the compression of acknowledgements.
        if self.min_rtt.is_some_and(|(rtt, _)| sample.interval < rtt) || sample.interval.is_zero() {
            return;
        }
        let rate = (sample.delivered - sample.delivered_before) as f64 / sample.interval.as_secs_f64();
        if self.limited.contains(&sample.delivered_before) && rate < self.bandwidth() {
            return;
        }
        while self.samples.front().is_some_and(|(round, _)| round + BANDWIDTH_ROUNDS <= self.round) {
            self.samples.pop_front();
        }
        while self.samples.back().is_some_and(|(_, earlier)| *earlier <= rate) {
            self.samples.pop_back();
        }
        self.samples.push_back((self.round, rate));
    }

    fn bandwidth(&self) -> f64 {
        self.samples.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn bdp(&self) -> f64 {
        self.min_rtt.map_or(INITIAL_WINDOW, |(rtt, _)| self.bandwidth() * rtt.as_secs_f64())
    }

    /// Goes on to the next gain of ProbeBw when its time is over.
    fn cycle(&mut self, in_flight: f64, now: Time) {
        let (Mode::ProbeBw { phase, since }, Some((rtt, _))) = (self.mode, self.min_rtt) else { return };
        let is_long = now.since(since) > rtt;
        let is_over = match CYCLE[phase] {
            // Until what was sent more is in flight, or is too much.
            up if up > 1.0 => is_long && (self.has_lost || in_flight >= up * self.bdp()),
            down if down < 1.0 => is_long || in_flight <= self.bdp(),
            _ => is_long,
        };
        if is_over {
            self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: now };
        }
    }

    /// Measures the minimum RTT with an empty queue, where that is too old.
    fn probe_rtt(&mut self, sample: &AckSample, in_flight: f64, now: Time) {
        let is_old = self.min_rtt.is_some_and(|(_, at)| now.since(at) > MIN_RTT_AGE);
        if is_old || self.min_rtt.is_none_or(|(rtt, _)| sample.rtt <= rtt) {
            self.min_rtt = Some((sample.rtt, now));
        }
        match self.mode {
            Mode::ProbeRtt { until: None, .. } if in_flight <= MIN_WINDOW.max(sample.segments as f64) => {
                self.mode = Mode::ProbeRtt { until: Some(now + PROBE_RTT_TIME), round: self.round };
            }
            Mode::ProbeRtt { until: Some(until), round } if now > until && self.round > round => {
                self.min_rtt = self.min_rtt.map(|(rtt, _)| (rtt, now));
                self.window = self.window.max(self.prior_window);
                self.mode = if self.full.is_reached { probe_bw(sample, now) } else { Mode::Startup };
            }
            Mode::ProbeRtt { .. } => {}
            _ if is_old => {
                self.prior_window = self.window;
                self.limited.start = sample.delivered;
                self.mode = Mode::ProbeRtt { until: None, round: self.round };
            }
            _ => {}
        }
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.limited.end = sample.delivered + in_flight as u64 + 1;
        }
    }

    fn set_pace(&mut self, rtt: Duration) {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => 1.0,
        };
        let pace = gain * self.bandwidth() * PACING_MARGIN;
        let before = self.pace.unwrap_or(HIGH_GAIN * self.window / rtt.as_secs_f64().max(1e-6));
        self.pace = Some(if self.full.is_reached { pace } else { before.max(pace) });
    }

    fn set_window(&mut self, sample: &AckSample) {
        let acknowledged = sample.segments as f64;
        let gain = if self.full.is_reached { WINDOW_GAIN } else { HIGH_GAIN };
        // What offloads hold back: three bursts.
        let target = gain * self.bdp() + 3.0 * acknowledged;
        if self.full.is_reached {
            self.window = (self.window + acknowledged).min(target);
        } else if self.window < target || (sample.delivered as f64) < INITIAL_WINDOW {
            self.window += acknowledged;
        }
        self.window = self.window.max(MIN_WINDOW);
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_WINDOW);
        }
    }
}

/// Enters ProbeBw in a phase that differs between flows; a count serves as the random number, so that a simulation repeats.
fn probe_bw(sample: &AckSample, now: Time) -> Mode {
    let drawn = (sample.delivered % FIRST_PHASES.len() as u64) as usize;
    Mode::ProbeBw { phase: FIRST_PHASES[drawn], since: now }
}

impl FullPipe {
    fn check(&mut self, bandwidth: f64) {
        if bandwidth >= self.bandwidth * FULL_GROWTH {
            (self.bandwidth, self.rounds) = (bandwidth, 0);
        } else {
            self.rounds += 1;
            self.is_reached = self.rounds >= FULL_ROUNDS;
        }
    }
}
