//! The specification of a path: rate, delay, queue, loss, and the hosts at its ends.

mod aqm;
mod background;
mod bounds;
mod cross_flows;
mod fields;
mod gemodel;
mod hosts;
mod lateness;
mod loss;
mod model;
mod overrides;
mod pairs;
mod payload_capacity;
mod queue;
mod reorder;
mod schedule;

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

pub use aqm::{Aqm, ParseAqmError};
pub use background::{BackgroundSteps, ParseBackgroundError};
pub use cross_flows::{CrossFlows, ParseCrossFlowsError};
pub use gemodel::{GeModel, ParseGeModelError};
pub use hosts::Hosts;
pub use loss::{PacketShare, ParseShareError};
pub use overrides::{Overrides, ParseOverridesError};
pub use pairs::{Pair, Pairs, ParsePairsError};
pub use payload_capacity::PayloadCapacity;
pub use queue::QueueLimit;
pub use reorder::{ParseReorderError, Reorder};
pub use schedule::{ParseScheduleError, RateSchedule};

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
    /// The others' bulk TCP flows, from the server to the client.
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
    /// How the rate changes; `rate` is then what stands for all of it.
    pub schedule: RateSchedule,
    /// By how much the delay varies from packet to packet, up and down; packets keep their order.
    pub jitter: Rtt,
    /// Packets that others overtake.
    pub reorder: Reorder,
    /// What share of packets arrives twice.
    pub duplicate: PacketShare,
    /// Of what share of packets a bit is flipped.
    pub corrupt: PacketShare,
    /// Whether the hosts negotiate ECN, and the queue marks instead of dropping early.
    pub ecn: bool,
    /// What differs from the client to the server.
    pub up: Overrides,
    /// What differs from the server to the client.
    pub down: Overrides,
    /// A second bottleneck behind the first, as it differs from that.
    pub second: Overrides,
    /// The pairs of hosts, where they are not one.
    pub pairs: Pairs,
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
            schedule: RateSchedule::None,
            jitter: Rtt::default(),
            reorder: Reorder::default(),
            duplicate: PacketShare::default(),
            corrupt: PacketShare::default(),
            ecn: false,
            up: Overrides::default(),
            down: Overrides::default(),
            second: Overrides::default(),
            pairs: Pairs::default(),
        }
    }
}

impl PathSpec {
    /// Returns the least delay each way, of the pairs where there are several.
    pub fn one_way(&self) -> Duration {
        self.delays().into_iter().min().unwrap_or_default()
    }

    /// Returns the one-way delay of each pair of hosts.
    pub(crate) fn delays(&self) -> Vec<Duration> {
        self.pairs.delays(self.rtt.get() / 2)
    }

    /// Returns the longest time that a packet is on its way behind the bottlenecks.
    pub(crate) fn longest_way(&self) -> Duration {
        self.delays().into_iter().max().unwrap_or_default() + self.jitter.get() + self.reorder.by
    }

    /// Returns the round-trip time without queueing of the first pair.
    pub fn round_trip(&self) -> Duration {
        [0, 1].into_iter().filter_map(|stream| self.direction(stream).delays().first().copied()).sum()
    }

    /// Returns the path as it is in one direction: 0 from the client to the server, 1 back.
    pub fn direction(&self, stream: u64) -> Self {
        let mut spec = self.clone();
        let own = if stream == 0 { &self.up } else { &self.down };
        own.apply(&mut spec);
        (spec.up, spec.down) = (Overrides::default(), Overrides::default());
        spec
    }

    /// Returns the second bottleneck as if it were a path.
    fn second_bottleneck(&self) -> Self {
        let mut spec = Self { background: BackgroundSteps::default(), ..self.clone() };
        self.second.apply(&mut spec);
        spec.second = Overrides::default();
        spec
    }

    /// Says whether what becomes of a packet is not known when it arrives, or packets do not keep their order.
    pub(crate) fn is_held(&self) -> bool {
        self.aqm.decides_on_leaving()
            || self.ecn
            || [self.reorder.share, self.duplicate, self.corrupt].iter().any(|share| share.get() > 0.0)
            || !self.pairs.0.is_empty()
            || !self.second.is_none()
    }

    /// Says whether nothing is asked that a plain veth pair does not do.
    pub fn is_plain(&self) -> bool {
        [self.direction(0), self.direction(1)].iter().all(Self::is_plain_direction)
    }

    fn is_plain_direction(&self) -> bool {
        self.rate.is_none()
            && !self.is_held()
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
        let longest = self.pairs.0.iter().map(|pair| pair.rtt).max().unwrap_or(self.rtt);
        Some(self.queue.unwrap_or_else(|| QueueLimit::Bytes(rate.bdp(longest).max(least))))
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
}
