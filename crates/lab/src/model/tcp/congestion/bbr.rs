//! BBRv1 (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016; Linux
//! `tcp_bbr.c`).
//!
//! ```text
//! Startup -- bandwidth has not grown by a quarter for 3 RTTs --> Drain -- one BDP in flight --> ProbeBw
//!                        any -- min_rtt is 10 s old --> ProbeRtt -- 200 ms --> ProbeBw or Startup
//! ```
//!
//! Not modelled: policer detection (`lt_bw`), packet conservation in the first RTT of a recovery,
//! the allowance for ACK aggregation, and the window restored after a timeout. On a path that loses
//! only by its queue, none of them acts for more than one RTT per loss episode.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::{AckSample, CongestionControl};
use crate::model::Time;

/// Startup's gain: 2 / ln 2, the minimum that doubles the rate each RTT.
const HIGH_GAIN: f64 = 2.885;
/// Window gain after Startup, in BDPs.
const WINDOW_GAIN: f64 = 2.0;
/// ProbeBw's pacing gains, one RTT each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Possible first phases of ProbeBw: the kernel excludes the draining phase.
const FIRST_PHASES: [usize; 7] = [0, 2, 3, 4, 5, 6, 7];
/// RTTs for which bandwidth samples remain valid.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Bandwidth growth factor below which Startup ends,
const FULL_GROWTH: f64 = 1.25;
/// after this many RTTs.
const FULL_ROUNDS: u32 = 3;
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// ProbeRtt's window in segments, and the minimum window.
const MIN_WINDOW: f64 = 4.0;
/// Delivered segments until which the window grows without a bandwidth (`TCP_INIT_CWND`).
const INITIAL_WINDOW: u64 = 10;
/// Ratio of pace to estimated bandwidth; below 1, so that the queue drains.
const PACING_MARGIN: f64 = 0.99;

/// State of a BBR sender. Windows are in segments, rates in segments per second.
#[derive(Debug)]
pub(super) struct Bbr {
    mode: BbrMode,
    window: f64,
    /// The window before ProbeRtt.
    prior_window: f64,
    pace: f64,
    bandwidth: BandwidthFilter,
    full: FullPipe,
    min_rtt: (Duration, Time),
}

/// The maximum bandwidth of recent rounds.
#[derive(Debug, Default)]
struct BandwidthFilter {
    /// The largest sample of each round.
    samples: VecDeque<(u64, f64)>,
    round: u64,
    /// The round ends when a packet is acknowledged that was sent after this many deliveries.
    round_end: u64,
    /// Delivery counts during the last ProbeRtt: packets sent then do not lower the bandwidth
    /// (`app_limited` in Linux).
    limited: Range<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBw { phase: usize, since: Time },
    ProbeRtt { until: Option<Time>, round: u64 },
}

/// Detects that the bandwidth has stopped growing.
#[derive(Debug, Default)]
struct FullPipe {
    bandwidth: f64,
    rounds: u32,
    is_reached: bool,
}

impl Bbr {
    /// Starts with `window` segments, and the minimum RTT with its time.
    pub(super) fn new(window: f64, min_rtt: (Duration, Time)) -> Self {
        Self {
            mode: BbrMode::Startup,
            window,
            prior_window: window,
            pace: HIGH_GAIN * window / min_rtt.0.as_secs_f64().max(1e-6),
            bandwidth: BandwidthFilter::default(),
            full: FullPipe::default(),
            min_rtt,
        }
    }
}

impl CongestionControl for Bbr {
    fn window(&self) -> f64 {
        self.window
    }

    fn own_pace(&self) -> Option<f64> {
        Some(self.pace)
    }

    fn acknowledged(&mut self, sample: &AckSample) {
        let in_flight = sample.in_flight.saturating_sub(sample.segments) as f64;
        let is_new_round = self.bandwidth.record(sample, self.min_rtt.0);
        self.cycle(sample, in_flight);
        if is_new_round && !self.full.is_reached {
            self.full.check(self.bandwidth.max());
        }
        if self.mode == BbrMode::Startup && self.full.is_reached {
            self.mode = BbrMode::Drain;
        }
        if self.mode == BbrMode::Drain && in_flight <= self.bdp() {
            self.mode = probe_bw(sample);
        }
        self.probe_rtt(sample, in_flight);
        self.set_pace();
        self.set_window(sample);
    }

    fn timed_out(&mut self, _: u64, _: bool) {
        (self.window, self.full.bandwidth) = (MIN_WINDOW, 0.0);
    }

    /// Restarts with Startup.
    fn restart(&mut self) {
        (self.mode, self.full) = (BbrMode::Startup, FullPipe::default());
    }
}

impl BandwidthFilter {
    /// Adds a sample; returns whether a round begins with it.
    fn record(&mut self, sample: &AckSample, min_rtt: Duration) -> bool {
        let is_new_round = sample.delivered_before >= self.round_end;
        if is_new_round {
            (self.round, self.round_end) = (self.round + 1, sample.delivered);
        }
        let rate = (sample.delivered - sample.delivered_before) as f64 / sample.interval.as_secs_f64();
        // An interval shorter than the RTT results from ACK compression.
        let is_valid = sample.interval >= min_rtt && !sample.interval.is_zero();
        let is_limited = self.limited.contains(&sample.delivered_before) && rate < self.max();
        if is_valid && !is_limited {
            while self.samples.front().is_some_and(|(round, _)| round + BANDWIDTH_ROUNDS <= self.round) {
                self.samples.pop_front();
            }
            while self.samples.back().is_some_and(|(_, earlier)| *earlier <= rate) {
                self.samples.pop_back();
            }
            self.samples.push_back((self.round, rate));
        }
        is_new_round
    }

    fn max(&self) -> f64 {
        self.samples.front().map_or(0.0, |(_, rate)| *rate)
    }
}

impl Bbr {
    fn bdp(&self) -> f64 {
        self.bandwidth.max() * self.min_rtt.0.as_secs_f64()
    }

    /// Advances to the next gain of ProbeBw at the end of a phase.
    fn cycle(&mut self, sample: &AckSample, in_flight: f64) {
        let BbrMode::ProbeBw { phase, since } = self.mode else { return };
        let is_long = sample.now.since(since) > self.min_rtt.0;
        let is_over = match CYCLE[phase] {
            // Until the increased inflight is reached, or causes loss.
            up if up > 1.0 => is_long && (sample.has_losses || in_flight >= up * self.bdp()),
            down if down < 1.0 => is_long || in_flight <= self.bdp(),
            _ => is_long,
        };
        if is_over {
            self.mode = BbrMode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: sample.now };
        }
    }

    /// Enters ProbeRtt when the minimum RTT is too old, and leaves it after the measurement.
    fn probe_rtt(&mut self, sample: &AckSample, in_flight: f64) {
        let (now, round) = (sample.now, self.bandwidth.round);
        let is_old = now.since(self.min_rtt.1) > MIN_RTT_AGE;
        if is_old || sample.rtt <= self.min_rtt.0 {
            self.min_rtt = (sample.rtt, now);
        }
        match self.mode {
            BbrMode::ProbeRtt { until: None, .. } if in_flight <= MIN_WINDOW.max(sample.segments as f64) => {
                self.mode = BbrMode::ProbeRtt { until: Some(now + PROBE_RTT_TIME), round };
            }
            BbrMode::ProbeRtt { until: Some(until), round: before } if now > until && round > before => {
                self.min_rtt.1 = now;
                self.window = self.window.max(self.prior_window);
                self.mode = if self.full.is_reached { probe_bw(sample) } else { BbrMode::Startup };
            }
            BbrMode::ProbeRtt { .. } => {}
            _ if is_old => {
                self.prior_window = self.window;
                self.bandwidth.limited.start = sample.delivered;
                self.mode = BbrMode::ProbeRtt { until: None, round };
            }
            _ => {}
        }
        if matches!(self.mode, BbrMode::ProbeRtt { .. }) {
            self.bandwidth.limited.end = sample.delivered + in_flight as u64 + 1;
        }
    }

    fn set_pace(&mut self) {
        let gain = match self.mode {
            BbrMode::Startup => HIGH_GAIN,
            BbrMode::Drain => 1.0 / HIGH_GAIN,
            BbrMode::ProbeBw { phase, .. } => CYCLE[phase],
            BbrMode::ProbeRtt { .. } => 1.0,
        };
        let pace = gain * self.bandwidth.max() * PACING_MARGIN;
        self.pace = if self.full.is_reached { pace } else { self.pace.max(pace) };
    }

    fn set_window(&mut self, sample: &AckSample) {
        let acknowledged = sample.segments as f64;
        let gain = if self.full.is_reached { WINDOW_GAIN } else { HIGH_GAIN };
        // Allowance for offloads: three bursts.
        let target = gain * self.bdp() + 3.0 * acknowledged;
        if self.full.is_reached {
            self.window = (self.window + acknowledged).min(target);
        } else if self.window < target || sample.delivered < INITIAL_WINDOW {
            self.window += acknowledged;
        }
        self.window = self.window.max(MIN_WINDOW);
        if matches!(self.mode, BbrMode::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_WINDOW);
        }
    }
}

/// Enters ProbeBw in a phase that differs between flows; derived from a count, so that simulations
/// are deterministic.
fn probe_bw(sample: &AckSample) -> BbrMode {
    let drawn = (sample.delivered % FIRST_PHASES.len() as u64) as usize;
    BbrMode::ProbeBw { phase: FIRST_PHASES[drawn], since: sample.now }
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
