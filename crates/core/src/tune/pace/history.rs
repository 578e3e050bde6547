//! Observations of the last RTTs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::{Bytes, Rate};

/// One observation.
#[derive(Debug, Clone, Copy)]
struct PastObservation {
    at: Duration,
    delivered: Bytes,
    /// `None` where nothing was delivered since the previous observation: the RTT is an old one then.
    rtt: Option<Duration>,
    sent: Bytes,
}

/// Recent observations, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<PastObservation>,
}

impl History {
    /// Adds an observation, and removes those older than `keep`.
    pub(super) fn push(
        &mut self,
        at: Duration,
        delivered: Bytes,
        rtt: Duration,
        sent: Bytes,
        keep: Duration,
    ) {
        let news = self.entries.back().is_none_or(|last| last.delivered != delivered);
        self.entries.push_back(PastObservation { at, delivered, rtt: news.then_some(rtt), sent });
        let oldest = at.saturating_sub(keep);
        while self.entries.get(1).is_some_and(|next| next.at <= oldest) {
            self.entries.pop_front();
        }
    }

    /// Returns the rate of delivery since `since`, or since the oldest entry.
    pub(super) fn delivery_rate(&self, since: Duration) -> Rate {
        let first = self.entries.iter().rev().find(|e| e.at <= since).or(self.entries.front());
        rate(first.zip(self.entries.back()), |e| e.delivered)
    }

    /// Returns the rate of sending in a span of time.
    pub(super) fn sending_rate(&self, from: Duration, to: Duration) -> Rate {
        let first = self.entries.iter().rev().find(|e| e.at <= from).or(self.entries.front());
        // A span shorter than the interval of observation is widened to one interval.
        let last = self.entries.iter().find(|e| e.at >= to).or(self.entries.back());
        rate(first.zip(last), |e| e.sent)
    }

    /// Returns whether the observations go back to `since`; a pause in sending clears them.
    pub(super) fn reaches(&self, since: Duration) -> bool {
        self.entries.front().is_some_and(|first| first.at <= since)
    }

    /// Returns the smallest RTT in a span of time.
    pub(super) fn least_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.within(from, to).min()
    }

    /// Returns the smallest RTT since `since`, including the last one before; `None` where nothing was delivered since then.
    ///
    /// Including the one before, a single delayed acknowledgement does not count as a standing queue.
    pub(super) fn standing_rtt(&self, since: Duration) -> Option<Duration> {
        let mut seen = self.entries.iter().rev().filter_map(|e| Some((e.at, e.rtt?)));
        let (mut at, mut least) = seen.next().filter(|(at, _)| *at >= since)?;
        while at >= since
            && let Some((earlier, rtt)) = seen.next()
        {
            (at, least) = (earlier, least.min(rtt));
        }
        Some(least)
    }

    /// Returns the largest RTT in a span of time.
    pub(super) fn largest_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.within(from, to).max()
    }

    fn within(&self, from: Duration, to: Duration) -> impl Iterator<Item = Duration> {
        self.entries.iter().filter(move |e| (from..=to).contains(&e.at)).filter_map(|e| e.rtt)
    }
}

/// Returns the rate of a counter between two observations.
fn rate(
    between: Option<(&PastObservation, &PastObservation)>,
    counted: impl Fn(&PastObservation) -> Bytes,
) -> Rate {
    match between {
        Some((first, last)) if last.at > first.at => {
            Rate::over(counted(last) - counted(first), last.at - first.at)
        }
        _ => Rate::default(),
    }
}
