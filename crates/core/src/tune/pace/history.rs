//! Observations of the last RTTs.

use std::collections::VecDeque;
use std::time::Duration;

use super::Observation;
use crate::units::{Bytes, Rate};

/// One observation.
#[derive(Debug, Clone, Copy)]
struct PastObservation {
    at: Duration,
    seen: Observation,
    /// Whether anything was delivered since the previous observation: otherwise the RTT is an old one.
    is_news: bool,
}

/// Recent observations, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<PastObservation>,
}

impl History {
    /// Adds an observation, and removes those older than `keep`.
    pub(super) fn push(&mut self, seen: &Observation, keep: Duration, at: Duration) {
        let is_news = self.entries.back().is_none_or(|last| last.seen.goodput != seen.goodput);
        self.entries.push_back(PastObservation { at, seen: *seen, is_news });
        let oldest = at.saturating_sub(keep);
        while self.entries.get(1).is_some_and(|next| next.at <= oldest) {
            self.entries.pop_front();
        }
    }

    /// Returns the rate of delivery since `since`, or since the oldest entry.
    pub(super) fn delivery_rate(&self, since: Duration) -> Rate {
        self.before(since)
            .zip(self.entries.back())
            .map_or_else(Rate::default, |between| rate(between, |seen| seen.goodput))
    }

    /// Returns the rate of sending in a span of time, widened to whole intervals of observation.
    pub(super) fn sending_rate(&self, from: Duration, to: Duration) -> Rate {
        let last =
            self.entries.get(self.entries.partition_point(|entry| entry.at < to)).or(self.entries.back());
        self.before(from).zip(last).map_or_else(Rate::default, |between| rate(between, |seen| seen.sent))
    }

    /// Returns the bytes retransmitted, and those sent, since `since`.
    pub(super) fn losses(&self, since: Duration) -> (Bytes, Bytes) {
        self.before(since).zip(self.entries.back()).map_or((Bytes::ZERO, Bytes::ZERO), |(first, last)| {
            (last.seen.retransmits - first.seen.retransmits, last.seen.sent - first.seen.sent)
        })
    }

    /// Returns whether the observations go back to `since`; a pause in sending clears them.
    pub(super) fn reaches(&self, since: Duration) -> bool {
        self.entries.front().is_some_and(|first| first.at <= since)
    }

    /// Returns the smallest RTT in a span of time.
    pub(super) fn least_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.rtts(from, to).min()
    }

    /// Returns the largest RTT in a span of time.
    pub(super) fn largest_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.rtts(from, to).max()
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

    fn rtts(&self, from: Duration, to: Duration) -> impl Iterator<Item = Duration> {
        let within = move |entry: &&PastObservation| entry.is_news && (from..=to).contains(&entry.at);
        self.entries.iter().filter(within).map(|entry| entry.seen.rtt.get())
    }

    /// Returns the last observation until `since`, or the oldest.
    fn before(&self, since: Duration) -> Option<&PastObservation> {
        let next = self.entries.partition_point(|entry| entry.at <= since);
        self.entries.get(next.saturating_sub(1))
    }
}

/// Returns the rate of a counter between two observations.
fn rate(
    (first, last): (&PastObservation, &PastObservation),
    counter: impl Fn(&Observation) -> Bytes,
) -> Rate {
    if last.at > first.at {
        Rate::over(counter(&last.seen) - counter(&first.seen), last.at - first.at)
    } else {
        Rate::default()
    }
}
