//! An interval of a transfer, which is assigned to one limit.

use std::time::Duration;

use super::TIMESTAMP_TICK;
use super::params;
use super::reading::{End, Reading};
use crate::units::{Bytes, Rate, Rtt};

/// Two readings, and the time between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    /// When it ends, since the transfer's start.
    pub(super) end: Duration,
    /// How long it is.
    pub(super) span: Duration,
    /// The reading at its start.
    pub(super) before: Reading,
    /// The reading at its end.
    pub(super) now: Reading,
    /// The highest RTT of the data of all readings in it, and of those before its first loss.
    pub(super) highest_data_rtt: Option<Rtt>,
    pub(super) highest_before_loss: Option<Rtt>,
    /// The time since data had arrived, the mean of all readings in it.
    pub(super) data_age: Duration,
}

impl Interval {
    pub(super) fn moved(&self) -> Bytes {
        self.now.moved.saturating_sub(self.before.moved)
    }

    pub(super) fn rate(&self) -> Rate {
        Rate::over(self.moved(), self.span)
    }

    /// Returns the rate at which data arrived. This program counts what it has read, and reads at
    /// once what waited in the socket while it did not.
    pub(super) fn rate_on_path(&self) -> Rate {
        if self.now.threads.is_none() {
            return self.rate();
        }
        let arrived = |reading: &Reading| reading.moved + reading.unread;
        Rate::over(arrived(&self.now) - arrived(&self.before), self.span)
    }

    pub(super) fn lost(&self) -> u64 {
        self.now.packets.lost.saturating_sub(self.before.packets.lost)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.now.packets.arrived.saturating_sub(self.before.packets.arrived)
    }

    /// Returns whether enough packets were lost, or followed a lost one, for the interval to be
    /// lossy. A receiver counts each packet that follows a lost one, a sender the lost ones.
    pub(super) fn is_lossy(&self, end: End) -> bool {
        let share = match end {
            End::Receiver => params::DISORDERED_SHARE,
            End::Sender => params::LOST_SHARE,
        };
        self.arrived() > 0 && self.lost() as f64 >= share * self.arrived() as f64
    }

    /// Returns the packets a second that arrived, in order or not.
    pub(super) fn arrival_rate(&self) -> f64 {
        self.arrived() as f64 / self.span.as_secs_f64().max(1e-9)
    }

    pub(super) fn min_rtt(&self) -> Option<Rtt> {
        // A record may hold any number; longer than a minute is no round trip (RFC 6298, 2.4).
        let most = Rtt::new(Duration::from_secs(60));
        self.now.path.min_rtt.or(self.before.path.min_rtt).map(|rtt| rtt.min(most))
    }

    /// Returns the RTT of the empty path; zero where it is not known.
    pub(super) fn base_rtt(&self) -> Duration {
        self.min_rtt().map_or(Duration::ZERO, Rtt::get)
    }

    /// Returns whether data with this RTT were later than the jitter of the empty path explains.
    pub(super) fn is_late(&self, data: Rtt) -> bool {
        let latest =
            |least: Rtt| least.get().mul_f64(params::QUEUED_RTT_FACTOR).max(least.get() + TIMESTAMP_TICK);
        self.min_rtt().is_some_and(|least| data.get() > latest(least))
    }

    /// Returns whether the peer is on this host. A coarse clock shows no RTT at all.
    pub(super) fn is_local(&self) -> bool {
        let rtt = self.base_rtt();
        rtt > Duration::ZERO && rtt < params::MIN_WIRE_RTT
    }

    /// Returns the bytes in flight: as measured, or the rate times the RTT of the empty path.
    pub(super) fn in_flight(&self) -> Bytes {
        let of_rate = || self.min_rtt().map_or(Bytes::ZERO, |rtt| self.rate().bdp(rtt));
        self.now.path.in_flight.unwrap_or_else(of_rate)
    }

    /// Returns the connections at work; at least one.
    pub(super) fn streams(&self) -> u64 {
        self.now.streams.max(self.before.streams).max(1) as u64
    }

    /// Returns the growth of a time that is summed over the connections, as a share of this
    /// interval.
    pub(super) fn share(&self, of: impl Fn(&Reading) -> Option<Duration>) -> f64 {
        let grown = of(&self.now).unwrap_or_default().saturating_sub(of(&self.before).unwrap_or_default());
        grown.as_secs_f64() / (self.span.as_secs_f64() * self.streams() as f64).max(1e-9)
    }

    /// Returns the share of this interval in which a sender's kernel had data to send.
    pub(super) fn busy_share(&self) -> f64 {
        self.share(|reading| reading.sender.times.map(|times| times.busy))
    }
}
