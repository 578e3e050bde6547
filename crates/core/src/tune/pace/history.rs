//! What was observed during the last round trips.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::{Bytes, Rate};

/// One observation.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: Duration,
    delivered: Bytes,
    /// `None` where nothing has arrived since the entry before: the RTT is then that of something older.
    rtt: Option<Duration>,
    sent: Bytes,
}

/// The observations of some time, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// Adds an observation, and forgets those older than `keep`.
    pub(super) fn push(
        &mut self,
        at: Duration,
        delivered: Bytes,
        rtt: Duration,
        sent: Bytes,
        keep: Duration,
    ) {
        let news = self.entries.back().is_none_or(|last| last.delivered != delivered);
        self.entries.push_back(Entry { at, delivered, rtt: news.then_some(rtt), sent });
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

    /// Returns the rate at which was sent in a span of time.
    pub(super) fn sending_rate(&self, from: Duration, to: Duration) -> Rate {
        let first = self.entries.iter().rev().find(|e| e.at <= from).or(self.entries.front());
        // A span of less than an entry is that entry's.
        let last = self.entries.iter().find(|e| e.at >= to).or(self.entries.back());
        rate(first.zip(last), |e| e.sent)
    }

    /// Returns whether it goes back to `since`: it begins anew after a time in which nothing was sent.
    pub(super) fn reaches(&self, since: Duration) -> bool {
        self.entries.front().is_some_and(|first| first.at <= since)
    }

    /// Returns the least RTT seen in a span of time.
    pub(super) fn least_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.within(from, to).min()
    }

    /// Returns the least RTT seen since `since`, and last before; `None` where nothing has arrived since then.
    ///
    /// So that an acknowledgement that was held up, and nothing before it, is no queue that stands.
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

    /// Returns the largest RTT seen in a span of time.
    pub(super) fn largest_rtt(&self, from: Duration, to: Duration) -> Option<Duration> {
        self.within(from, to).max()
    }

    fn within(&self, from: Duration, to: Duration) -> impl Iterator<Item = Duration> {
        self.entries.iter().filter(move |e| (from..=to).contains(&e.at)).filter_map(|e| e.rtt)
    }
}

/// Returns the rate of what is counted between two entries.
fn rate(between: Option<(&Entry, &Entry)>, counted: impl Fn(&Entry) -> Bytes) -> Rate {
    match between {
        Some((first, last)) if last.at > first.at => {
            Rate::over(counted(last) - counted(first), last.at - first.at)
        }
        _ => Rate::default(),
    }
}
