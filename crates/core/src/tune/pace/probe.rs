//! Tests whether the path has room: sends faster for a moment, and checks an RTT later whether the
//! RTT has risen.

use std::time::Duration;

use super::history::History;
use super::{Observation, Params};
use crate::units::{Bytes, Rate};

/// A burst of `1 + gain` times the cap that lasts until it has sent what the cap forwards in
/// [`Params::TEST_QUEUE`] more. On a full path that data queues, and an RTT later the RTT is longer
/// by that time; on a free one the RTT stays.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pace: Rate,
    gain: f64,
    /// The queue that it adds on a full path.
    queue: Duration,
    /// The RTT before it, and its minimum.
    rtt: (Duration, Duration),
    from: Duration,
    to: Duration,
    sent_before: Bytes,
    /// The rate of sending during the burst, once that is over.
    sent: Option<Rate>,
}

/// What a test has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// A queue: the path forwards this rate.
    Full(Rate),
    /// No queue: the path forwards at least this rate.
    Room(Rate),
    /// Noise as large as the queue, or no acknowledgements: nothing was measured.
    Hidden,
    /// The congestion control sent no faster than before: by its window, or by a pace of its own.
    HeldBack { by_window: bool },
}

impl Probe {
    /// Starts a burst over `cap` at `now`.
    pub(super) fn new(cap: Rate, gain: f64, seen: &Observation, now: Duration) -> Self {
        // At most half of a queue of 0.1 BDP.
        let queue = Params::TEST_QUEUE.min(seen.min_rtt.get() / 20);
        let to = now + queue.div_f64(gain);
        // A longer queue is not the burst's.
        let rtt = (seen.rtt.get().min(seen.min_rtt.get().mul_f64(Params::ROOM)), seen.min_rtt.get());
        let (pace, sent_before) = (cap.scaled(1.0 + gain), seen.sent);
        Self { pace, gain, queue, rtt, from: now, to, sent_before, sent: None }
    }

    /// Returns the pace to set now, if it is above the cap.
    pub(super) fn pace(&self, now: Duration) -> Rate {
        if now < self.to { self.pace } else { Rate::default() }
    }

    /// Returns the interval at which the end of the echo is observed.
    pub(super) fn interval(&self) -> Duration {
        (self.queue / 2).max(Params::MIN_RTT / 50)
    }

    /// Observes the connection; returns the result once the echo of the burst is over.
    pub(super) fn observe(
        &mut self,
        history: &History,
        seen: &Observation,
        now: Duration,
    ) -> Option<ProbeResult> {
        if now < self.to {
            return None;
        }
        let sent = *self.sent.get_or_insert_with(|| {
            // A late observation has lengthened the burst.
            self.to = now;
            Rate::over(seen.sent - self.sent_before, now - self.from)
        });
        // The end of the echo may be acknowledged late.
        let until = self.to + self.rtt.0 + self.queue * 2;
        let by_window = seen.window < self.pace.bdp(seen.rtt);
        (now >= until).then(|| self.result(history, sent.min(self.pace), until, by_window))
    }

    fn result(&self, history: &History, sent: Rate, until: Duration, by_window: bool) -> ProbeResult {
        let (rtt, min_rtt) = self.rtt;
        let echo = self.from + min_rtt;
        let before = history.median_rtt(echo.saturating_sub(min_rtt / 4), echo);
        // The queue is longest at the end of the burst, and stays so.
        let after = history.median_rtt(self.to + rtt, until);
        let Some(((before, after), jitter)) =
            before.zip(after).zip(history.jitter(echo.saturating_sub(min_rtt / 2), echo))
        else {
            return ProbeResult::Hidden;
        };
        let rise = after.saturating_sub(before);
        if jitter > self.queue / 2 {
            ProbeResult::Hidden
        } else if sent < self.pace.scaled((1.0 + self.gain / 2.0) / (1.0 + self.gain)) {
            ProbeResult::HeldBack { by_window }
        } else {
            // The queue grows by sent / capacity - 1; the smoothed RTT follows it late.
            let error = self.queue / 16;
            let forwarded = |rise: Duration| {
                let growth = (rise + error).as_secs_f64() / (self.to - self.from).as_secs_f64().max(1e-6);
                sent.scaled(1.0 / (1.0 + growth))
            };
            if rise > error.max(jitter * 3) {
                ProbeResult::Full(forwarded(rise))
            } else {
                ProbeResult::Room(forwarded(Duration::ZERO))
            }
        }
    }
}
