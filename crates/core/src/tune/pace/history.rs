//! Observations of the last RTTs.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Observation, Params};
use crate::units::{Bytes, Rate};

/// Recent observations, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<(Duration, Observation)>,
    /// Rates of delivery over an RTT, falling, of the last ten RTTs.
    peaks: VecDeque<(Duration, Rate)>,
}

impl History {
    /// Adds an observation, and removes those of more than four RTTs ago.
    pub(super) fn push(&mut self, seen: &Observation, now: Duration) {
        self.entries.push_back((now, *seen));
        let oldest = now.saturating_sub(seen.rtt.get().max(seen.min_rtt.get()) * 4);
        while self.entries.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.entries.pop_front();
        }
        let rate = self.delivery();
        while self.peaks.pop_back_if(|(_, earlier)| *earlier <= rate).is_some() {}
        self.peaks.push_back((now, rate));
        let oldest = now.saturating_sub(seen.min_rtt.get() * Params::MEMORY_RTTS);
        while self.peaks.pop_front_if(|(at, _)| *at < oldest).is_some() {}
    }

    /// Returns the last observation.
    pub(super) fn last(&self) -> Option<&Observation> {
        self.entries.back().map(|(_, seen)| seen)
    }

    /// Returns the rate of delivery over the last RTT; zero before one has passed.
    ///
    /// Compressed acknowledgements arrive faster than the data did, but not faster than it was
    /// sent.
    pub(super) fn delivery(&self) -> Rate {
        let Some((now, seen)) = self.entries.back() else { return Rate::default() };
        let rtt = seen.min_rtt.get();
        if self.entries.front().is_none_or(|(first, _)| now.saturating_sub(*first) < rtt) {
            return Rate::default();
        }
        let sent = self.rate(now.saturating_sub(rtt * 2), now.saturating_sub(rtt), |seen| seen.sent);
        self.rate(now.saturating_sub(rtt), *now, |seen| seen.goodput).min(sent)
    }

    /// Returns the highest rate of delivery of the last ten RTTs.
    pub(super) fn peak_delivery(&self) -> Rate {
        self.peaks.front().map_or(Rate::default(), |(_, rate)| *rate)
    }

    /// Returns the rate of a counter over the last `span`.
    pub(super) fn rate_over(&self, span: Duration, counter: impl Fn(&Observation) -> Bytes) -> Rate {
        let now = self.entries.back().map_or(Duration::ZERO, |(now, _)| *now);
        self.rate(now.saturating_sub(span), now, counter)
    }

    /// Returns whether the congestion window has grown by more than this factor in the last RTT.
    pub(super) fn window_grows(&self, factor: f64) -> bool {
        let Some((now, seen)) = self.entries.back() else { return false };
        let before = self.before(now.saturating_sub(seen.min_rtt.get()));
        before.is_some_and(|(_, old)| old.window.get() as f64 * factor < seen.window.get() as f64)
    }

    /// Returns the share of the bytes sent in the last RTT that was lost; zero where that is `few`
    /// bytes at most.
    pub(super) fn lost_share(&self, few: Bytes) -> f64 {
        let Some((now, seen)) = self.entries.back() else { return 0.0 };
        let from = now.saturating_sub(seen.rtt.get());
        let Some((_, old)) = self.before(from).filter(|(at, _)| *at <= from) else { return 0.0 };
        let lost = seen.lost - old.lost;
        if lost > few { lost.get() as f64 / (seen.sent - old.sent).get().max(1) as f64 } else { 0.0 }
    }

    /// Returns the longest RTT of the last two.
    pub(super) fn longest_rtt(&self) -> Duration {
        let Some((now, seen)) = self.entries.back() else { return Duration::ZERO };
        self.rtts(now.saturating_sub(seen.rtt.get() * 2), *now).max().unwrap_or_default()
    }

    /// Returns the RTTs that were measured in a span of time: those of observations to which
    /// something was delivered.
    pub(super) fn rtts(&self, from: Duration, to: Duration) -> impl Iterator<Item = Duration> {
        let pairs = self.entries.iter().zip(self.entries.iter().skip(1));
        let news = pairs.filter(|((_, old), (_, new))| old.goodput != new.goodput).map(|(_, new)| new);
        news.filter(move |(at, _)| (from..=to).contains(at)).map(|(_, seen)| seen.rtt.get())
    }

    /// Returns the median of the RTTs that were measured in a span of time.
    pub(super) fn median_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        let mut rtts: Vec<_> = self.rtts(from, to).collect();
        rtts.sort_unstable();
        rtts.get(rtts.len() / 2).copied()
    }

    /// Returns the mean deviation of the RTT from its minimum in a span of time; `None` if fewer
    /// than five were measured, which may agree by chance.
    pub(super) fn jitter(&self, from: Duration, to: Duration) -> Option<Duration> {
        let least = self.rtts(from, to).min()?;
        let (sum, count) =
            self.rtts(from, to).fold((Duration::ZERO, 0), |(sum, count), rtt| (sum + rtt - least, count + 1));
        (count >= 5).then(|| sum / count)
    }

    /// Returns the rate of a counter between the last observations until `from` and until `to`.
    fn rate(&self, from: Duration, to: Duration, counter: impl Fn(&Observation) -> Bytes) -> Rate {
        match self.before(from).zip(self.before(to)) {
            Some(((first, old), (last, new))) if last > first => {
                Rate::over(counter(new) - counter(old), *last - *first)
            }
            _ => Rate::default(),
        }
    }

    /// Returns the last observation until `at`, or the oldest.
    fn before(&self, at: Duration) -> Option<&(Duration, Observation)> {
        let next = self.entries.partition_point(|(seen_at, _)| *seen_at <= at);
        self.entries.get(next.saturating_sub(1))
    }
}
