//! Automatic pacing: a cap on a sender's rate that keeps short queues from overflowing. Losses
//! alone lower it.
//!
//! | phase | condition | cap | next phase |
//! |---|---|---|---|
//! | Start | two packet trains agree, on less than 3 Gbit/s | their rate, less the uncertainty; a known rate within that | Hold |
//! | Start | 20 RTTs without trains; an RTT below 10 ms; 3 Gbit/s delivered | none | Free |
//! | Hold | the cap is used, and a test is due | | Test |
//! | Test | the RTT of a short faster burst shows how much the path forwards | 0.99 of that, if it is more | Hold |
//! | Test | noise hides that | raised by the burst's gain; after losses by an eighth, once in two RTTs | Hold |
//! | any | 2 % lost in an RTT | 0.99 of what was delivered meanwhile | Hold |
//! | any | the last lowering has not halved the losses, or the queue is long | none | Free |
//!
//! **Invariants** (property tests in `tests/invariants.rs`). Without losses the cap never falls,
//! and until the first losses a raised cap is at least 1.25 times the highest rate of delivery of
//! the last ten RTTs, and twice the last RTT's while the window grows. Losses lower it once in two
//! RTTs, to 0.99 of what is delivered. A queue stops or slows a raise; what cannot be measured
//! counts as raised. So noise may keep pacing from helping, and a cap that is too low by 1000 is
//! gone within 25 RTTs.
//!
//! The pacer is a function of its observations. A remote sender is held by its window
//! ([`receive_window`](super::receive_window)).

mod history;
mod probe;
#[cfg(test)]
mod tests;
mod train;

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

pub use super::held_rate::HeldRate;
use history::History;
use probe::{Probe, ProbeResult};
use train::PacketTrains;

/// A sending connection's state at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    /// Bytes lost so far.
    pub lost: Bytes,
}

/// The constants of a [`Pacer`]. Those without another source were chosen by `longhaul-bench --only
/// pacing-simulated` (docs/measurements.md).
struct Params;

impl Params {
    /// Shorter paths are not paced: acknowledgements return soon enough to clock the sender.
    const MIN_RTT: Duration = Duration::from_millis(10);
    /// A path that delivers more without losses is not paced. The kernel paces by a timer for each
    /// 64 KiB: at 10 Gbit/s a host of two cores sends 6 of a pace of 9.9 Gbit/s, and without a pace
    /// fills the path.
    const UNPACED_FROM: Rate = Rate::bits_per_sec(3_000_000_000);
    /// The largest error of a train's rate. A cap counts as used from this share less of it.
    const UNCERTAINTY: f64 = 0.15;
    /// Slow start is measured for this many RTTs: from ten segments (RFC 6928) to 10 Gbit/s at 300
    /// ms are log2(375 MB / 14.5 kB) = 15.
    const START_RTTS: u32 = 20;
    /// The queue that a test adds where the path is full: less than half of a queue of 8 ms, ten
    /// times the jitter of a LAN.
    const TEST_QUEUE: Duration = Duration::from_micros(3500);
    /// A raised cap over what is delivered, and the first test over the cap: BBR's
    /// `bbr_pacing_gain` (Linux, tcp_bbr.c). An RTT of it builds a queue of 0.25 RTTs; a longer one
    /// is the window's, which a cap does not shorten.
    const ROOM: f64 = 1.25;
    /// The cap over what the path was measured to forward: a standing queue shrinks by 0.01 RTTs
    /// each RTT.
    const HEADROOM: f64 = 0.99;
    /// Losses of a larger share over an RTT are congestion (BBRv3's `BBRLossThresh`, 2 %),
    const LOSS: f64 = 0.02;
    /// and of more bytes than this: a sixteenth of a window of 400 kB. A smaller share of a window
    /// is single packets, which decide nothing.
    const FEW_PACKETS: Bytes = Bytes::kib(24);
    /// The RTTs for which the highest rate of delivery counts, for which losses may lower the cap,
    /// and until a cap that they set or removed is tested or set again; the last is doubled each
    /// time, until a test shows room.
    const MEMORY_RTTS: u32 = 10;
}

/// Chooses a connection's pace, many times per RTT.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    phase: PacerPhase,
    /// The rate that the path held when it was last used.
    known: Option<Rate>,
    cap: Option<Rate>,
    set_by: CapOrigin,
    history: History,
    /// When the first observation after a pause was made.
    since: Option<Duration>,
    /// The excess of the next test over the cap, as a share; after each raise four times as much,
    /// or twice after losses.
    gain: f64,
    losses: LossEpisodes,
    restart: SlowStartRestart,
    /// The path's rate, measured by a test or by losses.
    found: Option<Rate>,
}

/// The losses that may lower the cap.
#[derive(Debug, Clone, Copy, Default)]
struct LossEpisodes {
    /// Losses until then are of data sent before the cap was set or removed.
    ignored_until: Duration,
    /// The largest share lost in an RTT since losses last lowered the cap; zero once it was tested.
    worst: f64,
    /// Times at which losses began, without a passed test in between.
    count: u32,
}

/// When the congestion control's slow start is restarted.
#[derive(Debug, Clone, Copy, Default)]
struct SlowStartRestart {
    /// Not before.
    from: Duration,
    /// Whether the congestion control's own pace hid what the last test would have shown: BBR
    /// follows the rate that a cap bounds.
    is_wanted: bool,
}

#[derive(Debug, Clone)]
enum PacerPhase {
    /// Slow start, without a cap: trains measure the bottleneck.
    Start(PacketTrains),
    /// The cap holds until the next test.
    Hold { until: Duration },
    /// A burst above the cap, and its echo.
    Test(Probe),
    /// No cap.
    Free,
}

impl Default for PacerPhase {
    fn default() -> Self {
        Self::Start(PacketTrains::default())
    }
}

/// What the cap was set by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CapOrigin {
    #[default]
    Trains,
    /// A raise, before any losses.
    Raise,
    /// Losses, or a raise after them.
    Losses,
}

impl Pacer {
    /// Faster paths are not paced, unless packets were lost at a short queue.
    pub const PACED_BELOW: Rate = Params::UNPACED_FROM;

    /// Starts on a path that held the rate `known` when it was last used: a fast path gets no cap,
    /// and its trains are not measured.
    pub fn with_known_rate(known: Rate) -> Self {
        Self { known: Some(known), ..Self::default() }
    }

    /// Starts with the cap `first`, at which a large initial window is sent.
    pub fn with_first_cap(first: Rate) -> Self {
        let phase = PacerPhase::Hold { until: Duration::ZERO };
        Self { phase, cap: Some(first), gain: Params::ROOM - 1.0, ..Self::default() }
    }

    /// Returns the measured rate of the path; `None` where neither a test nor losses have shown it.
    pub fn found(&self) -> Option<Rate> {
        self.found.max(self.fast())
    }

    /// Returns the rate of delivery, if that is too high for pacing.
    fn fast(&self) -> Option<Rate> {
        let rate = self.history.peak_delivery();
        (rate.scaled(Params::HEADROOM) > Params::UNPACED_FROM).then_some(rate)
    }

    /// Returns whether the path's rate is still being measured, in slow start. That of a fast path
    /// ends at an eighth of its BDP: HyStart, which finds the BDP, needs two or three RTTs before.
    pub fn is_starting(&self) -> bool {
        let PacerPhase::Start(trains) = &self.phase else { return false };
        let fast = trains.before.max(self.known).filter(|rate| *rate > Params::UNPACED_FROM);
        fast.zip(self.history.last()).is_none_or(|(rate, seen)| {
            // A queue shows that the path is not as fast as it was.
            seen.window * 8 < rate.bdp(seen.min_rtt)
                && seen.rtt.get() <= seen.min_rtt.get().mul_f64(Params::ROOM)
        })
    }

    /// Returns whether slow start should be restarted: the congestion window is less than a
    /// measured cap needs, which protects the queue, and no longer doubles, by losses or by
    /// HyStart, which takes jitter for a queue; or the congestion control paced below a test. At
    /// most once in ten RTTs.
    pub fn is_held_back(&mut self, seen: &Observation, now: Duration) -> bool {
        let is_small = self.cap.is_some_and(|cap| seen.window < cap.bdp(seen.min_rtt));
        let has_ended = self.set_by == CapOrigin::Losses
            || (self.set_by == CapOrigin::Trains && !self.history.window_grows(Params::ROOM));
        let is_wanted = self.restart.is_wanted || (is_small && has_ended);
        let is_due = is_wanted && now >= self.restart.from.max(self.losses.ignored_until);
        if is_due {
            (self.restart.is_wanted, self.restart.from) = (false, now + seen.rtt.get() * Params::MEMORY_RTTS);
        }
        is_due
    }

    /// Returns the phase, for traces.
    pub fn phase(&self) -> &impl std::fmt::Debug {
        &self.phase
    }

    /// Returns the interval until the next observation.
    pub fn interval(&self) -> Duration {
        let rtt = self.history.last().map_or(Duration::ZERO, |seen| seen.min_rtt.get());
        match self.phase {
            // Trains of 0.025 RTTs must be measured: a queue of 0.1 BDP overflows two RTTs later.
            PacerPhase::Start(_) if self.known <= Some(Params::UNPACED_FROM) && self.is_starting() => {
                (rtt / 40).mul_f64(Params::UNCERTAINTY).clamp(Params::MIN_RTT / 200, Params::MIN_RTT / 50)
            }
            PacerPhase::Start(_) | PacerPhase::Free => {
                (rtt / 4).clamp(Params::MIN_RTT * 3 / 10, Params::MIN_RTT * 10)
            }
            PacerPhase::Test(ref probe) => probe.interval(),
            PacerPhase::Hold { .. } => Params::MIN_RTT * 3 / 10,
        }
    }

    /// Resumes after a pause in sending, which makes earlier observations useless.
    pub fn resume(&mut self) {
        (self.history, self.since, self.losses.worst) = (History::default(), None, 0.0);
        match self.phase {
            PacerPhase::Start(_) => self.phase = PacerPhase::default(),
            PacerPhase::Test(_) => self.phase = PacerPhase::Hold { until: Duration::ZERO },
            PacerPhase::Hold { .. } | PacerPhase::Free => {}
        }
    }

    /// Observes the connection at `now`, since any fixed moment; returns the pace to set, `None`
    /// for no pacing.
    ///
    /// To be called at the interval of [`Self::interval`].
    pub fn observe(&mut self, seen: &Observation, now: Duration) -> Option<Rate> {
        self.history.push(seen, now);
        let (age, rtt) = (now.saturating_sub(*self.since.get_or_insert(now)), seen.min_rtt.get());
        let is_fast = self.fast().is_some();
        if (is_fast && self.set_by != CapOrigin::Losses) || rtt < Params::MIN_RTT {
            self.release();
        }
        let lost = self.history.lost_share(Params::FEW_PACKETS);
        if lost > Params::LOSS && rtt >= Params::MIN_RTT {
            if now >= self.losses.ignored_until {
                self.react_to_losses(lost, seen, now);
            } else if self.cap.is_none() {
                // Those of others, which a cap did not end, go on.
                self.losses.ignored_until = self.losses.ignored_until.max(now + rtt * Params::MEMORY_RTTS);
            } else {
                self.losses.worst = self.losses.worst.max(lost);
            }
        }
        if let PacerPhase::Test(probe) = &mut self.phase
            && let Some(result) = probe.observe(&self.history, seen, now)
        {
            self.conclude(result, rtt, now);
        }
        match &mut self.phase {
            PacerPhase::Start(trains) => {
                let agreed = trains.observe(seen.goodput, rtt, now);
                let paced = agreed.filter(|rate| self.known.max(Some(*rate)) <= Some(Params::UNPACED_FROM));
                if let Some(rate) = paced {
                    // Within the trains' error a known rate is closer, if it is more.
                    let most = rate.scaled(1.0 / (1.0 - Params::UNCERTAINTY));
                    let rate = self.known.map_or(rate, |known| rate.max(known.min(most)));
                    self.hold(rate.scaled(Params::HEADROOM), CapOrigin::Trains, now + rtt);
                    (self.gain, self.losses.ignored_until) = (Params::ROOM - 1.0, now + rtt * 2);
                } else if age > rtt * Params::START_RTTS {
                    self.release();
                }
            }
            PacerPhase::Hold { until } if now >= *until => {
                let cap = self.cap.unwrap_or_default();
                // A cap that is not used proves nothing, and costs nothing.
                if self.history.rate_over(rtt / 4, |seen| seen.sent) >= cap.scaled(1.0 - Params::UNCERTAINTY)
                {
                    self.losses.worst = 0.0;
                    self.phase = PacerPhase::Test(Probe::new(cap, self.gain, seen, now));
                } else if is_fast && seen.window >= cap.bdp(seen.min_rtt) {
                    // The host cannot send at this pace.
                    self.release();
                } else {
                    *until = now + rtt / 16;
                }
            }
            PacerPhase::Hold { .. } | PacerPhase::Test(_) | PacerPhase::Free => {}
        }
        if self.set_by == CapOrigin::Raise {
            let room = self.history.peak_delivery().scaled(Params::ROOM);
            let growth =
                if self.history.window_grows(1.0) { self.history.delivery().scaled(2.0) } else { room };
            self.cap = self.cap.map(|cap| cap.max(room).max(growth));
        }
        match &self.phase {
            PacerPhase::Test(probe) => self.cap.map(|cap| cap.max(probe.pace(now))),
            _ => self.cap,
        }
    }

    /// Raises the cap, unless the test has shown a queue; then the cap becomes what the path is
    /// known to forward, if that is more.
    fn conclude(&mut self, result: ProbeResult, rtt: Duration, now: Duration) {
        let cap = self.cap.unwrap_or_default();
        let (cap, set_by, until) = match result {
            ProbeResult::Full(capacity) => {
                // A cap that one overestimate raises would stay too high.
                let least = self.found.replace(capacity).map_or(capacity, |before| before.min(capacity));
                self.gain = (self.gain / 2.0).max(Self::MIN_GAIN);
                (cap.max(least.scaled(Params::HEADROOM)), self.set_by, now + rtt * 4)
            }
            ProbeResult::HeldBack { by_window } if by_window || self.set_by == CapOrigin::Losses => {
                self.gain = self.gain.min(Params::ROOM - 1.0);
                (cap, self.set_by, now + rtt)
            }
            ProbeResult::Hidden if self.set_by == CapOrigin::Losses => {
                // The losses of a raise arrive before the next.
                self.gain = Self::MIN_GAIN;
                (cap.scaled((1.0 + self.gain) * Params::HEADROOM), self.set_by, now + rtt * 2)
            }
            ProbeResult::Room(_) | ProbeResult::Hidden | ProbeResult::HeldBack { .. } => {
                self.restart.is_wanted |= matches!(result, ProbeResult::HeldBack { .. });
                let raised = match result {
                    ProbeResult::Room(rate) => {
                        self.losses.count = 0;
                        cap.max(rate.scaled(Params::HEADROOM))
                    }
                    _ => cap.scaled((1.0 + self.gain) * Params::HEADROOM),
                };
                // The first raise is within the trains' error.
                let is_beyond_error = self.set_by == CapOrigin::Trains && self.gain > Params::ROOM - 1.0;
                let set_by = if is_beyond_error { CapOrigin::Raise } else { self.set_by };
                let growth = if set_by == CapOrigin::Losses { 2.0 } else { 4.0 };
                self.gain = (self.gain * growth).min(1.0);
                (raised, set_by, now)
            }
        };
        self.hold(cap, set_by, until);
    }

    /// Lowers the cap to what was delivered while `lost` was lost, again each second RTT while that
    /// halves the losses. Removes it where it does not, or the queue is long: then others fill the
    /// queue; and where nothing is delivered.
    fn react_to_losses(&mut self, lost: f64, seen: &Observation, now: Duration) {
        let rtt = seen.rtt.get();
        let before = std::mem::replace(&mut self.losses.worst, lost);
        let is_long = self.history.longest_rtt() > seen.min_rtt.get().mul_f64(Params::ROOM);
        self.losses.count += u32::from(before == 0.0);
        let rest = now + rtt * (Params::MEMORY_RTTS << self.losses.count.saturating_sub(1).min(3));
        // In slow start the bottleneck forwards a burst, and then nothing; the last burst's rate
        // needs no second one that agrees.
        let burst = if let PacerPhase::Start(trains) = &self.phase { trains.before } else { None };
        let recent = self.history.rate_over(rtt / 16, |seen| seen.goodput);
        let delivered = self.history.delivery().max(recent).max(burst.unwrap_or_default());
        if is_long || (before > 0.0 && lost > before / 2.0) || delivered == Rate::default() {
            (self.losses.worst, self.losses.ignored_until) = (0.0, rest);
            return self.release();
        }
        let lowered = delivered.scaled(Params::HEADROOM).max(self.history.peak_delivery().scaled(0.5));
        (self.found, self.gain, self.losses.ignored_until) = (Some(delivered), Self::MIN_GAIN, now + rtt * 2);
        let cap = self.cap.unwrap_or(lowered).min(lowered);
        self.hold(cap, CapOrigin::Losses, rest);
    }

    fn hold(&mut self, cap: Rate, set_by: CapOrigin, until: Duration) {
        (self.phase, self.cap, self.set_by) = (PacerPhase::Hold { until }, Some(cap), set_by);
    }

    fn release(&mut self) {
        (self.phase, self.cap) = (PacerPhase::Free, None);
    }

    /// The least gain of a test: it lasts eight times as long as the queue that it adds, which
    /// averages the jitter.
    const MIN_GAIN: f64 = (Params::ROOM - 1.0) / 2.0;
}
