//! What is asked of a path: rate, delay, queue, loss, and the hosts at its ends.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::{Bytes, ParseUnitError, Rate, Rtt};

use crate::error::LabError;
use crate::model::{Delay, DropTail, Link, RandomLoss, RateLimit};

/// Below, a packet would take seconds.
const LEAST_RATE: Rate = Rate::bits_per_sec(8_000);

/// An emulated path between two hosts, and those hosts' settings.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    /// The bottleneck's rate each way, counting IP-layer bytes; `None`: as fast as this machine.
    pub rate: Option<Rate>,
    /// The round-trip time without queueing; half of it each way.
    pub rtt: Rtt,
    /// The bottleneck's queue each way; `None`: one bandwidth-delay product, at least 64 packets.
    pub queue: Option<QueueLimit>,
    /// What share of packets is lost at random each way, 0 to 1.
    pub loss: f64,
    /// How the queue chooses what to drop.
    pub aqm: Aqm,
    /// The limits of both hosts' TCP buffers.
    pub hosts: Hosts,
    /// Both hosts' default congestion control.
    pub congestion: String,
    /// Seeds all that is random.
    pub seed: u64,
    /// Largest packet, in bytes at the IP layer.
    pub mtu: Bytes,
}

impl Default for PathSpec {
    fn default() -> Self {
        Self {
            rate: None,
            rtt: Rtt::default(),
            queue: None,
            loss: 0.0,
            aqm: Aqm::DropTail,
            hosts: Hosts::Stock,
            congestion: "cubic".to_owned(),
            seed: 1,
            mtu: Bytes::new(1500),
        }
    }
}

impl PathSpec {
    /// Refuses what no path can be.
    ///
    /// # Errors
    /// Names the first value that is out of bounds, and the bounds.
    pub fn validate(&self) -> Result<(), LabError> {
        let bad = |what, why: String| Err(LabError::Spec { what, why });
        if !(0.0..=1.0).contains(&self.loss) {
            return bad("loss", format!("{} is not a share between 0 and 1", self.loss));
        }
        if !(1280..=65_535).contains(&self.mtu.get()) {
            return bad("mtu", format!("{} is not between 1280 (IPv6's least) and 65535", self.mtu.get()));
        }
        if let Some(rate) = self.rate.filter(|rate| *rate < LEAST_RATE) {
            return bad("rate", format!("{rate} is below {LEAST_RATE}"));
        }
        if self.rtt.get() > Duration::from_secs(60) {
            return bad("rtt", format!("{} is above one minute", self.rtt));
        }
        if self.queue.is_some() && self.rate.is_none() {
            return bad("queue", "a queue needs a rate: nothing waits on an unlimited path".to_owned());
        }
        if self.queue.is_some_and(|queue| queue.holds_nothing(self.mtu)) {
            return bad("queue", format!("does not hold a single packet of {} bytes", self.mtu.get()));
        }
        if self.congestion.is_empty()
            || !self.congestion.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return bad("congestion", format!("'{}' is not a name", self.congestion));
        }
        Ok(())
    }

    /// Returns the delay each way.
    pub fn one_way(&self) -> Duration {
        self.rtt.get() / 2
    }

    /// Says whether nothing is asked that a plain veth pair does not do.
    pub fn is_plain(&self) -> bool {
        self.rate.is_none() && self.rtt.get().is_zero() && self.loss == 0.0
    }

    /// Returns the queue that applies; `None` where no rate is set.
    pub fn queue_limit(&self) -> Option<QueueLimit> {
        let least = self.mtu * 64;
        let rate = self.rate?;
        Some(self.queue.unwrap_or_else(|| QueueLimit::Bytes(rate.bdp(self.rtt).max(least))))
    }

    /// Makes the model of one direction; `stream` keeps the directions' random numbers apart.
    pub fn link(&self, stream: u64) -> Link {
        let mut link = Link::new();
        if let (Some(rate), Some(queue)) = (self.rate, self.queue_limit()) {
            let queue = match (self.aqm, queue) {
                (Aqm::DropTail, QueueLimit::Bytes(bytes)) => DropTail::Bytes(bytes),
                (Aqm::DropTail, QueueLimit::Packets(packets)) => DropTail::Packets(packets),
            };
            link = link.then(RateLimit::new(rate, queue));
        }
        // Lost on the line: a lost packet has used its share of the bottleneck.
        if self.loss > 0.0 {
            link = link.then(RandomLoss::new(self.loss, self.seed.wrapping_mul(2).wrapping_add(stream)));
        }
        if !self.rtt.get().is_zero() {
            link = link.then(Delay::new(self.one_way()));
        }
        link
    }
}

/// A queue's limit, written "250MB" or "1000p".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// In bytes at the IP layer.
    Bytes(Bytes),
    /// In packets of any size.
    Packets(u64),
}

impl QueueLimit {
    fn holds_nothing(self, mtu: Bytes) -> bool {
        match self {
            Self::Bytes(bytes) => bytes < mtu,
            Self::Packets(packets) => packets == 0,
        }
    }
}

impl FromStr for QueueLimit {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().strip_suffix('p').and_then(|number| number.trim().parse().ok()) {
            Some(packets) => Ok(Self::Packets(packets)),
            None => text.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}

/// Why a word is not one of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not one of {choices}")]
pub struct ParseChoiceError {
    given: String,
    choices: &'static str,
}

/// How a queue chooses what to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aqm {
    /// Takes packets until it is full.
    #[default]
    DropTail,
}

impl FromStr for Aqm {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "droptail" => Ok(Self::DropTail),
            _ => Err(ParseChoiceError { given: text.to_owned(), choices: "droptail" }),
        }
    }
}

impl fmt::Display for Aqm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DropTail => "droptail",
        })
    }
}

/// The limits of the hosts' TCP buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hosts {
    /// Debian's defaults: windows of a few MiB.
    #[default]
    Stock,
    /// Receive and send buffers of up to 1 GiB, the largest that TCP's window scale allows.
    Tuned,
}

impl Hosts {
    /// Returns `tcp_rmem`: least, default and largest receive buffer in bytes.
    pub fn tcp_rmem(self) -> &'static str {
        match self {
            Self::Stock => "4096 131072 6291456",
            Self::Tuned => "4096 131072 1073741824",
        }
    }

    /// Returns `tcp_wmem`: least, default and largest send buffer in bytes.
    pub fn tcp_wmem(self) -> &'static str {
        match self {
            Self::Stock => "4096 16384 4194304",
            Self::Tuned => "4096 16384 1073741824",
        }
    }

    /// Returns `tcp_notsent_lowat`: how much unsent data a send buffer takes, in bytes.
    ///
    /// Both hosts share one kernel's `tcp_mem`, where a machine of its own each would have it alone.
    /// Unsent data serves nothing beyond a few milliseconds, and without a bound it is as much as what is in flight:
    /// with it, 10 Gbit/s at 200 ms stays clear of TCP memory pressure, in which the kernel drops what it has received.
    pub fn tcp_notsent_lowat(self) -> &'static str {
        match self {
            Self::Stock => "4294967295",
            Self::Tuned => "16777216",
        }
    }
}

impl FromStr for Hosts {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "stock" => Ok(Self::Stock),
            "tuned" => Ok(Self::Tuned),
            _ => Err(ParseChoiceError { given: text.to_owned(), choices: "stock, tuned" }),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stock => "stock",
            Self::Tuned => "tuned",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_queues_in_bytes_and_packets() {
        assert_eq!("250MB".parse(), Ok(QueueLimit::Bytes(Bytes::new(250_000_000))));
        assert_eq!("1000p".parse(), Ok(QueueLimit::Packets(1000)));
        for text in ["p", "-1p", "1.5p", "many", ""] {
            assert!(text.parse::<QueueLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_default_queue_is_one_bdp() {
        let spec = PathSpec {
            rate: "10Gbit".parse().ok(),
            rtt: Rtt::new(Duration::from_millis(200)),
            ..PathSpec::default()
        };
        assert_eq!(spec.queue_limit(), Some(QueueLimit::Bytes(Bytes::new(250_000_000))));
        let short = PathSpec { rtt: Rtt::default(), ..spec };
        assert_eq!(short.queue_limit(), Some(QueueLimit::Bytes(Bytes::new(96_000))));
    }

    #[test]
    fn refuses_what_no_path_can_be() {
        let rate = "10Gbit".parse().ok();
        let good = PathSpec { rate, ..PathSpec::default() };
        assert!(good.validate().is_ok());
        for bad in [
            PathSpec { loss: 1.5, ..good.clone() },
            PathSpec { loss: f64::NAN, ..good.clone() },
            PathSpec { mtu: Bytes::new(576), ..good.clone() },
            PathSpec { rate: Some(Rate::bits_per_sec(0)), ..good.clone() },
            PathSpec { queue: Some(QueueLimit::Packets(0)), ..good.clone() },
            PathSpec { queue: Some(QueueLimit::Packets(10)), rate: None, ..good.clone() },
            PathSpec { congestion: "cubic\n".to_owned(), ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
