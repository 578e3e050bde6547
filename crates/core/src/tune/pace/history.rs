//! Observations of the last RTTs.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Observation, Params};
use crate::units::{Bytes, Rate};

/// Recent observations, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<PastObservation>,
}

/// One observation.
#[derive(Debug, Clone, Copy)]
struct PastObservation {
    at: Duration,
    seen: Observation,
    /// Whether anything was delivered since the previous observation: otherwise the RTT is an old one.
    is_news: bool,
}

impl History {
    /// Adds an observation, and removes those that no question goes back to.
    pub(super) fn push(&mut self, seen: &Observation, at: Duration) {
        let is_news = self.entries.back().is_none_or(|last| last.seen.goodput != seen.goodput);
        self.entries.push_back(PastObservation { at, seen: *seen, is_news });
        let keep = seen.min_rtt.get() * (2 * Params::REACTION_RTTS);
        let oldest = at.saturating_sub(keep.max(Params::EMPTY_TIME * 2));
        while self.entries.get(1).is_some_and(|next| next.at <= oldest) {
            self.entries.pop_front();
        }
    }

    /// Returns the rate of delivery since `since`, or since the oldest entry.
    pub(super) fn delivery_rate(&self, since: Duration) -> Rate {
        self.rate(since, self.entries.len(), |seen| seen.goodput)
    }

    /// Returns the rate of sending in a span of time, widened to whole intervals of observation.
    pub(super) fn sending_rate(&self, from: Duration, to: Duration) -> Rate {
        self.rate(from, self.entries.partition_point(|entry| entry.at < to), |seen| seen.sent)
    }

    /// Returns the rate of a counter from `from` to an entry, or to the last one.
    fn rate(&self, from: Duration, to: usize, counter: impl Fn(&Observation) -> Bytes) -> Rate {
        let to = self.entries.get(to).or(self.entries.back());
        match self.before(from).zip(to) {
            Some((first, last)) if last.at > first.at => {
                Rate::over(counter(&last.seen) - counter(&first.seen), last.at - first.at)
            }
            _ => Rate::default(),
        }
    }

    /// Returns whether more than `least` bytes, and more than this share of those sent, were lost since `since`.
    pub(super) fn has_lost(&self, share: f64, least: Bytes, since: Duration) -> bool {
        self.before(since).zip(self.entries.back()).is_some_and(|(first, last)| {
            let lost = last.seen.retransmits - first.seen.retransmits;
            lost > least && lost.get() as f64 > share * (last.seen.sent - first.seen.sent).get() as f64
        })
    }

    /// Returns whether the observations go back to `since`; a pause in sending clears them.
    pub(super) fn reaches(&self, since: Duration) -> bool {
        self.entries.front().is_some_and(|first| first.at <= since)
    }

    /// Returns the RTTs that were measured in a span of time.
    pub(super) fn rtts(&self, from: Duration, to: Duration) -> impl Iterator<Item = Duration> {
        let within = move |entry: &&PastObservation| entry.is_news && (from..=to).contains(&entry.at);
        self.entries.iter().filter(within).map(|entry| entry.seen.rtt.get())
    }

    /// Returns the mean deviation of the RTT from its minimum in a span of time.
    pub(super) fn jitter(&self, from: Duration, to: Duration) -> Duration {
        let least = self.rtts(from, to).min().unwrap_or_default();
        let (sum, count) =
            self.rtts(from, to).fold((Duration::ZERO, 0), |(sum, count), rtt| (sum + rtt - least, count + 1));
        sum / count.max(1)
    }

    /// Returns the smallest RTT since `since`, including the last one before; `None` where nothing was delivered since then.
    ///
    /// Including the one before, a single delayed acknowledgement does not count as a standing queue.
    pub(super) fn standing_rtt(&self, since: Duration) -> Option<Duration> {
        let mut news = self.entries.iter().rev().filter(|entry| entry.is_news);
        let mut entry = news.next().filter(|entry| entry.at >= since)?;
        let mut least = entry.seen.rtt.get();
        while entry.at >= since
            && let Some(earlier) = news.next()
        {
            (entry, least) = (earlier, least.min(earlier.seen.rtt.get()));
        }
        Some(least)
    }

    /// Returns the share of the RTTs measured since `since` that are longer than `limit`; `None` where nothing was delivered since then.
    pub(super) fn share_above(&self, limit: Duration, since: Duration) -> Option<f64> {
        let (above, all) = self
            .rtts(since, Duration::MAX)
            .fold((0, 0), |(above, all), rtt| (above + u32::from(rtt > limit), all + 1));
        (all > 0).then(|| f64::from(above) / f64::from(all))
    }

    /// Returns the last observation until `since`, or the oldest.
    fn before(&self, since: Duration) -> Option<&PastObservation> {
        let next = self.entries.partition_point(|entry| entry.at <= since);
        self.entries.get(next.saturating_sub(1))
    }
}
