//! The specification of a path: rate, delay, queue, loss, and the hosts at its ends.

mod aqm;
mod background;
mod cross_flows;
mod fields;
mod gemodel;
mod hosts;
mod queue;

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::error::LabError;
use crate::model::{
    AckCompression, Background, BurstLoss, Delay, DropTail, Link, RandomLoss, RateLimit, Red,
};

pub use aqm::{Aqm, ParseAqmError};
pub use background::{BackgroundSteps, ParseBackgroundError};
pub use cross_flows::{CrossFlows, ParseCrossFlowsError};
pub use gemodel::{GeModel, ParseGeModelError};
pub use hosts::Hosts;
pub use queue::QueueLimit;

/// Below, a packet would take seconds.
const LEAST_RATE: Rate = Rate::bits_per_sec(8_000);

/// More would keep the thread that serves them from its rounds.
const MOST_CROSS_FLOWS: u16 = 64;

/// The others send packets of this size, or of the MTU where that is less.
const BACKGROUND_PACKET: Bytes = Bytes::new(1500);

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
    /// Packets lost in bursts each way, beside `loss`.
    pub gemodel: GeModel,
    /// How the queue chooses what to drop.
    pub aqm: Aqm,
    /// The others' packets, Poisson, that share the bottleneck and its queue; each way as many.
    pub background: BackgroundSteps,
    /// The others' bulk TCP flows, from the far host to the near one.
    pub cross_flows: CrossFlows,
    /// How long, at most, pure acknowledgements are held to leave together, each way; zero: not at all.
    pub ack_compression: Rtt,
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
            gemodel: GeModel::default(),
            aqm: Aqm::DropTail,
            background: BackgroundSteps::default(),
            cross_flows: CrossFlows::default(),
            ack_compression: Rtt::default(),
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
        if self.cross_flows.count > MOST_CROSS_FLOWS {
            return bad("cross_flows", format!("{} are above {MOST_CROSS_FLOWS}", self.cross_flows.count));
        }
        if self.ack_compression.get() > Duration::from_secs(1) {
            return bad("ack_compression", format!("{} is above one second", self.ack_compression));
        }
        if self.queue.is_some() && self.rate.is_none() {
            return bad("queue", "a queue needs a rate: nothing waits on an unlimited path".to_owned());
        }
        if self.queue.is_some_and(|queue| queue.holds_nothing(self.mtu)) {
            return bad("queue", format!("does not hold a single packet of {} bytes", self.mtu.get()));
        }
        self.validate_aqm()?;
        self.validate_background()?;
        if self.congestion.is_empty()
            || !self.congestion.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return bad("congestion", format!("'{}' is not a name", self.congestion));
        }
        Ok(())
    }

    fn validate_aqm(&self) -> Result<(), LabError> {
        let bad = |why: String| Err(LabError::Spec { what: "aqm", why });
        match self.queue_limit() {
            Some(queue) => self.aqm.fault(queue.in_packets(self.mtu)).map_or(Ok(()), bad),
            None if self.aqm == Aqm::DropTail => Ok(()),
            None => bad("what drops early needs a rate: nothing waits on an unlimited path".to_owned()),
        }
    }

    fn validate_background(&self) -> Result<(), LabError> {
        let bad = |why: String| Err(LabError::Spec { what: "background", why });
        if self.background.is_none() {
            return Ok(());
        }
        let Some(path) = self.rate else {
            return bad("background traffic needs a rate: an unlimited path is never shared".to_owned());
        };
        match self.background.on(path).into_iter().find(|(_, rate)| *rate >= path) {
            Some((_, rate)) => bad(format!("{rate} leave nothing of the path's {path}")),
            None => Ok(()),
        }
    }

    /// Returns the delay each way.
    pub fn one_way(&self) -> Duration {
        self.rtt.get() / 2
    }

    /// Says whether nothing is asked that a plain veth pair does not do.
    pub fn is_plain(&self) -> bool {
        self.rate.is_none()
            && self.rtt.get().is_zero()
            && self.loss == 0.0
            && self.gemodel.is_none()
            && self.ack_compression.get().is_zero()
    }

    /// Says whether a packet waits only for those that the hosts sent before it.
    pub(crate) fn is_alone(&self) -> bool {
        self.background.is_none() && self.ack_compression.get().is_zero()
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
            let limit = match queue {
                QueueLimit::Bytes(bytes) => DropTail::Bytes(bytes),
                QueueLimit::Packets(packets) => DropTail::Packets(packets),
            };
            let mut bottleneck = match self.aqm {
                Aqm::DropTail => RateLimit::new(rate, limit),
                Aqm::Red(parameters) => {
                    RateLimit::new(rate, Red::new(parameters, limit, rate, self.mtu, self.seed_of(stream)))
                }
            };
            if !self.background.is_none() {
                let size = BACKGROUND_PACKET.min(self.mtu);
                let background = Background::new(self.background.on(rate), size, self.seed_of(stream));
                bottleneck = bottleneck.shared_with(background);
            }
            link = link.then(bottleneck);
        }
        // Lost on the line: a lost packet has used its share of the bottleneck.
        if self.loss > 0.0 {
            link = link.then(RandomLoss::new(self.loss, self.seed_of(stream)));
        }
        if let GeModel(Some(parameters)) = self.gemodel {
            // Not the seed of the other losses, with which they would fall together.
            link = link.then(BurstLoss::new(parameters, !self.seed_of(stream)));
        }
        if !self.ack_compression.get().is_zero() {
            link = link.then(AckCompression::new(self.ack_compression.get()));
        }
        if !self.rtt.get().is_zero() {
            link = link.then(Delay::new(self.one_way()));
        }
        link
    }

    fn seed_of(&self, stream: u64) -> u64 {
        self.seed.wrapping_mul(2).wrapping_add(stream)
    }
}

/// Why a word is not one of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not one of {choices}")]
pub struct ParseChoiceError {
    given: String,
    choices: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(PathSpec { background: "0,9999M@3s".parse().unwrap(), ..good.clone() }.validate().is_ok());
        assert!(PathSpec { background: "0".parse().unwrap(), rate: None, ..good.clone() }.validate().is_ok());
        assert!(PathSpec { aqm: "red".parse().unwrap(), ..good.clone() }.validate().is_ok());
        assert!(PathSpec { aqm: "red:max_th=64".parse().unwrap(), ..good.clone() }.validate().is_ok());
        for bad in [
            PathSpec { loss: 1.5, ..good.clone() },
            PathSpec { loss: f64::NAN, ..good.clone() },
            PathSpec { mtu: Bytes::new(576), ..good.clone() },
            PathSpec { rate: Some(Rate::bits_per_sec(0)), ..good.clone() },
            PathSpec { queue: Some(QueueLimit::Packets(0)), ..good.clone() },
            PathSpec { queue: Some(QueueLimit::Packets(10)), rate: None, ..good.clone() },
            PathSpec { aqm: "red".parse().unwrap(), rate: None, ..good.clone() },
            PathSpec { aqm: "red:max_th=65".parse().unwrap(), ..good.clone() },
            PathSpec {
                aqm: "red".parse().unwrap(),
                queue: Some(QueueLimit::Bytes(Bytes::new(22_499))),
                ..good.clone()
            },
            PathSpec { congestion: "cubic\n".to_owned(), ..good.clone() },
            PathSpec { ack_compression: Rtt::new(Duration::from_millis(1001)), ..good.clone() },
            PathSpec { cross_flows: "65".parse().unwrap(), ..good.clone() },
            PathSpec { background: "10Gbit".parse().unwrap(), ..good.clone() },
            PathSpec { background: "0,100%@3s".parse().unwrap(), ..good.clone() },
            PathSpec { background: "20%".parse().unwrap(), rate: None, ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
