//! The specification of a path: rate, delay, queue, loss, and the hosts at its ends.

mod allowed_lateness;
mod aqm;
mod background;
mod bounds;
mod cross_flows;
mod fields;
mod gemodel;
mod hosts;
mod link_models;
mod loss;
mod overrides;
mod pairs;
mod payload_capacity;
mod reorder;
mod schedule;
mod steps;

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

pub use crate::model::QueueLimit;
pub use aqm::Aqm;
pub use background::BackgroundSteps;
pub use cross_flows::CrossFlows;
pub use gemodel::GeModel;
pub use hosts::Hosts;
pub use loss::PacketShare;
pub use overrides::Overrides;
pub use pairs::{Pair, Pairs};
pub use payload_capacity::PayloadCapacity;
pub use reorder::Reorder;
pub use schedule::RateSchedule;

/// An emulated path between two hosts, and the hosts' settings.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSpec {
    /// Rate of the bottleneck per direction, counting IP-layer bytes; `None`: as fast as the
    /// machine.
    pub rate: Option<Rate>,
    /// Schedule of the rate; `rate` then holds its nominal rate.
    pub schedule: RateSchedule,
    /// RTT without queueing; half of it per direction.
    pub rtt: Rtt,
    /// Queue of the bottleneck per direction; `None`: one BDP, at least 64 packets.
    pub queue: Option<QueueLimit>,
    /// Algorithm that drops packets of the queue.
    pub aqm: Aqm,
    /// What happens to packets.
    pub impairments: ImpairmentSpec,
    /// What shares the path.
    pub traffic: TrafficSpec,
    /// The hosts at its ends.
    pub ends: EndSpec,
    /// What differs in a part of the path.
    pub overrides: PartOverrides,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// What happens to packets per direction, besides the queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImpairmentSpec {
    /// Share of packets lost at random, 0 to 1.
    pub loss: f64,
    /// Burst loss, in addition to `loss`.
    pub gemodel: GeModel,
    /// Maximum deviation of the delay per packet, up and down; packets keep their order.
    pub jitter: Rtt,
    /// Packets to be reordered.
    pub reorder: Reorder,
    /// Share of packets that arrive twice.
    pub duplicate: PacketShare,
    /// Share of packets with one flipped bit.
    pub corrupt: PacketShare,
}

/// What shares the path with the measured transfer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrafficSpec {
    /// Poisson traffic that shares the bottleneck and its queue, per direction.
    pub background: BackgroundSteps,
    /// Bulk TCP flows from the server to the client that share the path.
    pub cross_flows: CrossFlows,
    /// Period at which pure acknowledgements are released together, per direction; zero: none.
    pub ack_compression: Rtt,
}

/// The settings of both hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct EndSpec {
    /// Maximum TCP buffers.
    pub hosts: Hosts,
    /// Default congestion control.
    pub congestion: String,
    /// Whether the hosts negotiate ECN, and the queue marks instead of dropping early.
    pub ecn: bool,
    /// Largest packet in bytes at the IP layer.
    pub mtu: Bytes,
    /// Pairs of hosts; by default one.
    pub pairs: Pairs,
}

/// Values that differ in a part of the path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartOverrides {
    /// Values that differ from the client to the server.
    pub up: Overrides,
    /// Values that differ from the server to the client.
    pub down: Overrides,
    /// A second bottleneck behind the first, by its differences.
    pub second: Overrides,
}

impl ImpairmentSpec {
    /// Returns whether a packet's fate is more than a loss or a delay.
    fn are_held(&self) -> bool {
        [self.reorder.share, self.duplicate, self.corrupt].iter().any(|share| share.get() > 0.0)
    }
}

impl Default for PathSpec {
    fn default() -> Self {
        Self {
            rate: None,
            schedule: RateSchedule::None,
            rtt: Rtt::default(),
            queue: None,
            aqm: Aqm::DropTail,
            impairments: ImpairmentSpec::default(),
            traffic: TrafficSpec::default(),
            ends: EndSpec::default(),
            overrides: PartOverrides::default(),
            seed: 1,
        }
    }
}

impl Default for EndSpec {
    fn default() -> Self {
        Self {
            hosts: Hosts::Stock,
            congestion: "cubic".to_owned(),
            ecn: false,
            mtu: Bytes::new(1500),
            pairs: Pairs::default(),
        }
    }
}

impl PathSpec {
    /// Returns the minimum one-way delay of all pairs.
    pub fn one_way(&self) -> Duration {
        self.delays().into_iter().min().unwrap_or_default()
    }

    /// Returns the one-way delay of each pair of hosts.
    pub(crate) fn delays(&self) -> Vec<Duration> {
        self.ends.pairs.delays(self.rtt.get() / 2)
    }

    /// Returns the maximum time of a packet behind the bottlenecks.
    pub(crate) fn longest_way(&self) -> Duration {
        self.delays().into_iter().max().unwrap_or_default()
            + self.impairments.jitter.get()
            + self.impairments.reorder.by
    }

    /// Returns the first pair's RTT without queueing.
    pub fn round_trip(&self) -> Duration {
        [0, 1].into_iter().filter_map(|stream| self.direction(stream).delays().first().copied()).sum()
    }

    /// Returns the path of one direction: 0 from the client to the server, 1 for the reverse.
    pub fn direction(&self, stream: u64) -> Self {
        let mut spec = self.clone();
        let own = if stream == 0 { &self.overrides.up } else { &self.overrides.down };
        own.apply(&mut spec);
        (spec.overrides.up, spec.overrides.down) = (Overrides::default(), Overrides::default());
        spec
    }

    /// Returns the second bottleneck as a path.
    fn second_bottleneck(&self) -> Self {
        let mut spec = self.clone();
        spec.traffic.background = BackgroundSteps::default();
        self.overrides.second.apply(&mut spec);
        spec.overrides.second = Overrides::default();
        spec
    }

    /// Returns whether the path needs a held link: fates unknown on arrival, or reordering.
    pub(crate) fn is_held(&self) -> bool {
        self.aqm.decides_on_leaving()
            || self.ends.ecn
            || self.impairments.are_held()
            || !self.ends.pairs.0.is_empty()
            || !self.overrides.second.is_none()
    }

    /// Returns whether a plain veth pair suffices.
    pub fn is_plain(&self) -> bool {
        [self.direction(0), self.direction(1)].iter().all(Self::is_plain_direction)
    }

    fn is_plain_direction(&self) -> bool {
        self.rate.is_none()
            && !self.is_held()
            && self.rtt.get().is_zero()
            && self.impairments.loss == 0.0
            && self.impairments.gemodel.is_none()
            && self.traffic.ack_compression.get().is_zero()
    }

    /// Returns whether packets queue only behind earlier packets of the hosts.
    pub(crate) fn is_alone(&self) -> bool {
        self.traffic.background.is_none() && self.traffic.ack_compression.get().is_zero()
    }

    /// Returns the effective queue; `None` without a rate.
    pub fn queue_limit(&self) -> Option<QueueLimit> {
        let least = self.ends.mtu * 64;
        let rate = self.rate?;
        let longest = self.ends.pairs.0.iter().map(|pair| pair.rtt).max().unwrap_or(self.rtt);
        Some(self.queue.unwrap_or_else(|| QueueLimit::Bytes(rate.bdp(longest).max(least))))
    }
}

/// A text is no valid value of a path; the message names the text, the reason and what is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParsePathError(String);

#[cfg(test)]
mod tests;
