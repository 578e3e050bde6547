//! The rates of the last intervals: whether they have settled, grow, or stop and go.

use std::collections::VecDeque;
use std::time::Duration;

use super::params;
use crate::units::{Bytes, Rate};

/// The time that the intervals cover.
pub(super) const COVERED: Duration = Duration::from_millis(2500);
/// Growth that shows TCP speeding up.
pub(super) const GROWTH: f64 = 1.05;
/// A rate that grows by less than this share in a second or so has settled.
const FLAT: f64 = 0.15;
/// The share of the intervals without bytes from which on the sender stops and starts.
const STOP_AND_GO: f64 = 0.3;
/// Single intervals jitter: so many are averaged.
const FEW: usize = 4;
/// The share of an earlier rate below which a rate has fallen: means of a few vary by a quarter, of
/// bursts that an interval holds one or two of.
const FALLEN: f64 = 0.7;

/// The rates of the last intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct RecentRates {
    rates: VecDeque<PastRate>,
    /// The end of the last interval of slow start: rates before it say nothing of those that
    /// settle.
    grew_until: Duration,
    /// The highest mean of a few rates since a packet was lost.
    carried: f64,
}

/// The rate of an interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastRate {
    /// When the interval ended.
    pub(super) end: Duration,
    pub(super) rate: Rate,
    /// All bytes that had arrived by then.
    pub(super) arrived: Bytes,
    /// Whether the connection may have waited for a retransmission.
    pub(super) after_loss: bool,
}

impl RecentRates {
    pub(super) fn push(&mut self, latest: PastRate) {
        self.rates.push_back(latest);
        while self.rates.front().is_some_and(|past| past.end + COVERED < latest.end) {
            self.rates.pop_front();
        }
        self.carried = if latest.after_loss { 0.0 } else { self.carried.max(self.mean_of_last(FEW)) };
    }

    /// Notes that the latest interval was one of slow start.
    pub(super) fn note_growth(&mut self) {
        self.grew_until = self.rates.back().map_or(Duration::ZERO, |past| past.end);
    }

    /// Returns whether they have settled well below what has arrived since a packet was lost.
    pub(super) fn have_fallen(&self) -> bool {
        self.settled().is_some_and(|rate| (rate.as_bits_per_sec() as f64) < self.carried * FALLEN)
    }

    /// Returns the highest of them.
    pub(super) fn highest(&self) -> Rate {
        self.rates.iter().map(|past| past.rate).max().unwrap_or_default()
    }

    /// Returns their mean, where they do not grow, or that of the last few, where those are alike.
    pub(super) fn settled(&self) -> Option<Rate> {
        let few = self.mean_of_last(FEW);
        let alike = |rate: f64| (rate - few).abs() <= few * FLAT;
        let settling = self.settling();
        let mean = if self.is_settled() {
            self.mean_of_last(settling)
        } else if settling >= FEW && self.bits().rev().take(FEW).all(alike) {
            few
        } else {
            return None;
        };
        Some(Rate::bits_per_sec(mean as u64))
    }

    /// Returns the rates at which data have arrived over all of the time since slow start, and over
    /// its later half, where those are a few intervals. What a reader fetches late had arrived at
    /// the sender's rate, and a reply begins with a burst.
    pub(super) fn long_means(&self) -> impl Iterator<Item = Rate> {
        let settling = self.settling();
        let since = |count: usize| {
            let (first, last) = (self.rates.iter().rev().nth(count)?, self.rates.back()?);
            Some(Rate::over(last.arrived.saturating_sub(first.arrived), last.end - first.end))
        };
        let counts = [settling.saturating_sub(1), settling / 2].into_iter().filter(|count| *count >= FEW);
        counts.filter_map(since)
    }

    /// Returns the rate before a loss: the settled one, or where an earlier loss has lowered that,
    /// what it had grown to since.
    pub(super) fn before_loss(&self) -> Option<Rate> {
        let settled = self.settled()?;
        if !self.rates.iter().any(|past| past.after_loss) {
            return Some(settled);
        }
        let rates: Vec<_> = self.bits().collect();
        let means = rates.windows(FEW).map(|few| few.iter().sum::<f64>() / FEW as f64);
        Some(means.map(|mean| Rate::bits_per_sec(mean as u64)).fold(settled, Rate::max))
    }

    /// Returns whether they have grown since a moment.
    pub(super) fn grows_since(&self, moment: Duration) -> bool {
        const FEWEST: usize = 6;
        let rates = self.rates.iter().filter(|past| past.end > moment);
        let rates: Vec<_> = rates.map(|past| past.rate.as_bits_per_sec() as f64).collect();
        let half = rates.len() / 2;
        let earlier: f64 = rates[..half].iter().sum();
        let later: f64 = rates[rates.len() - half..].iter().sum();
        half * 2 >= FEWEST - 1 && later > earlier * GROWTH
    }

    /// Returns whether bursts alternate with gaps that no retransmission explains.
    pub(super) fn stop_and_go(&self) -> bool {
        let idle = self.highest().as_bits_per_sec() / 20;
        let gaps = self.rates.iter().filter(|past| !past.after_loss && past.rate.as_bits_per_sec() < idle);
        gaps.count() as f64 >= STOP_AND_GO * self.rates.len() as f64
    }

    /// Returns whether the mean of the later half is not above that of the earlier one by more than
    /// their jitter explains.
    ///
    /// Single intervals differ where the sender sends a buffer at a time, and an interval is no
    /// multiple of its period.
    fn is_settled(&self) -> bool {
        let settling = self.settling();
        let half = settling / 2;
        if settling < FEW {
            return false;
        }
        let rates: Vec<_> = self.bits().rev().take(settling).collect();
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let squares = |part: &[f64]| part.iter().map(|rate| (rate - mean(part)).powi(2)).sum::<f64>();
        let (later, earlier) = (&rates[..half], &rates[half..half * 2]);
        let variance = (squares(later) + squares(earlier)) / (2 * half - 2).max(1) as f64;
        // Two standard errors of the difference between the means.
        let jitter = 2.0 * (variance * 2.0 / half as f64).sqrt();
        mean(later) - mean(earlier) <= jitter.max(mean(earlier) * FLAT)
    }

    /// Returns whether the rates since slow start vary little.
    pub(super) fn are_even(&self) -> bool {
        let settling = self.settling();
        let mean = self.mean_of_last(settling);
        let squares = self.bits().rev().take(settling).map(|rate| (rate - mean).powi(2)).sum::<f64>();
        (squares / settling.max(1) as f64).sqrt() <= mean * params::EVEN_SHARE
    }

    /// Returns the number of rates since slow start.
    fn settling(&self) -> usize {
        self.rates.iter().rev().take_while(|past| past.end > self.grew_until).count()
    }

    fn mean_of_last(&self, count: usize) -> f64 {
        self.bits().rev().take(count).sum::<f64>() / count.max(1) as f64
    }

    fn bits(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.rates.iter().map(|past| past.rate.as_bits_per_sec() as f64)
    }
}
