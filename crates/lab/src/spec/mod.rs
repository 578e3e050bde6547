//! The specification of a path: rate, delay, queue, loss, and the hosts at its ends.

mod aqm;
mod background;
mod cross_flows;
mod fields;
mod gemodel;
mod hosts;
mod loss;
mod overrides;
mod pairs;
mod queue;
mod reorder;
mod schedule;

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::error::LabError;
use crate::model::discipline::{CodelQueue, Discipline, FifoQueue, FqCodelQueue};
use crate::model::held::{Bottleneck, HeldLink, Impairments, Tail};
use crate::model::{
    AckCompression, Background, BurstLoss, Delay, DropTail, Jitter, Link, RandomLoss, RateLimit, Red,
};

pub use aqm::{Aqm, ParseAqmError};
pub use background::{BackgroundSteps, ParseBackgroundError};
pub use cross_flows::{CrossFlows, ParseCrossFlowsError};
pub use gemodel::{GeModel, ParseGeModelError};
pub use hosts::Hosts;
pub use loss::{PacketShare, ParseShareError};
pub use overrides::{Overrides, ParseOverridesError};
pub use pairs::{Pair, Pairs, ParsePairsError};
pub use queue::QueueLimit;
pub use reorder::{ParseReorderError, Reorder};
pub use schedule::{ParseScheduleError, RateSchedule};

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
    /// Refuses what no path can be.
    ///
    /// # Errors
    /// Names the first value that is out of bounds, and the bounds.
    pub fn validate(&self) -> Result<(), LabError> {
        self.direction(0).validate_direction()?;
        self.direction(1).validate_direction()?;
        if !self.second.is_none() {
            if self.rate.is_none() {
                return Err(LabError::Spec {
                    what: "second",
                    why: "a second bottleneck needs a rate of the first".to_owned(),
                });
            }
            self.second_bottleneck().validate_direction()?;
        }
        Ok(())
    }

    fn validate_direction(&self) -> Result<(), LabError> {
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
        if self.jitter.get() > self.delays().into_iter().min().unwrap_or_default() {
            return bad(
                "jitter",
                format!("{} is more than the delay one way, which it would make negative", self.jitter),
            );
        }
        if self.ecn && self.aqm == Aqm::DropTail {
            return bad("ecn", "droptail never marks: choose red, codel or fq_codel as the aqm".to_owned());
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

    /// Returns how late a packet may be at the 99th percentile for the path to count as the one asked for, and what that is
    /// a part of.
    ///
    /// The least of 5 % of the delay each way (1 ms where there is none) and 10 % of the time that the full queue takes to
    /// drain: 0.8 ms for 1 MB at 1 Gbit/s. The emulator passes packets on in lumps of up to 0.1 ms, so no queue is
    /// held to less than 0.2 ms.
    pub fn allowed_lateness(&self) -> (Duration, &'static str) {
        const WITHOUT_DELAY: Duration = Duration::from_millis(1);
        const LEAST_FOR_QUEUE: Duration = Duration::from_micros(200);
        let of_delay = match self.one_way() {
            Duration::ZERO => (WITHOUT_DELAY, "what a path without delay allows"),
            delay => (delay / 20, "5 % of the delay"),
        };
        let of_queue =
            self.queue_time().map(|time| ((time / 10).max(LEAST_FOR_QUEUE), "10 % of the queue's time"));
        of_queue.into_iter().fold(of_delay, |least, other| if other.0 < least.0 { other } else { least })
    }

    /// Returns how long a full queue takes to drain; `None` where no rate is set.
    pub fn queue_time(&self) -> Option<Duration> {
        let bytes = match self.queue_limit()? {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => Bytes::new(self.mtu.get().saturating_mul(packets)),
        };
        Some(self.rate?.time_for(bytes))
    }

    /// Makes the model of one direction; `stream` keeps the directions' random numbers apart.
    pub fn link(&self, stream: u64) -> Link {
        let mut link = Link::new();
        if let (Some(rate), Some(queue)) = (self.rate, self.queue_limit()) {
            let (line, limit) = (self.schedule.line(rate), drop_tail(queue));
            let mut bottleneck = match self.aqm {
                Aqm::Red(parameters) => {
                    RateLimit::on(line, Red::new(parameters, limit, rate, self.mtu, self.seed_of(stream)))
                }
                // Those that decide when a packet leaves are made by `held_link`; their limit is a DropTail's.
                Aqm::DropTail | Aqm::Codel(_) | Aqm::FqCodel(_) => RateLimit::on(line, limit),
            };
            if let Some(background) = self.background_of(rate, stream) {
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
        if !self.jitter.get().is_zero() {
            link = link.then(Jitter::new(self.one_way(), self.jitter.get(), self.seed_of(stream)));
        } else if !self.one_way().is_zero() {
            link = link.then(Delay::new(self.one_way()));
        }
        link
    }

    /// Makes the model of one direction as a link that holds its packets; `stream` as for [`link`](Self::link).
    pub fn held_link(&self, stream: u64) -> HeldLink {
        let mut bottlenecks: Vec<Bottleneck> =
            self.bottleneck(stream, self.background.clone()).into_iter().collect();
        if !self.second.is_none() {
            bottlenecks.extend(self.second_bottleneck().bottleneck(!stream, BackgroundSteps::default()));
        }
        let impairments = Impairments {
            loss: self.loss,
            burst_loss: self.gemodel.0,
            ack_compression: self.ack_compression.get(),
            delays: self.delays(),
            jitter: self.jitter.get(),
            reordered: self.reorder.share.get(),
            reordered_by: self.reorder.by,
            duplicated: self.duplicate.get(),
            corrupted: self.corrupt.get(),
        };
        let crossings = self.pairs.0.iter().map(|pair| pair.crossing).collect();
        HeldLink::new(bottlenecks, crossings, Tail::new(impairments, self.seed_of(stream)))
    }

    fn bottleneck(&self, stream: u64, background: BackgroundSteps) -> Option<Bottleneck> {
        let (rate, limit) = (self.rate?, drop_tail(self.queue_limit()?));
        let discipline: Box<dyn Discipline> = match self.aqm {
            Aqm::DropTail => Box::new(FifoQueue::drop_tail(limit)),
            Aqm::Red(parameters) => {
                Box::new(FifoQueue::red(Red::new(parameters, limit, rate, self.mtu, self.seed_of(stream))))
            }
            Aqm::Codel(parameters) => Box::new(CodelQueue::new(parameters, limit, self.mtu)),
            Aqm::FqCodel(parameters) => Box::new(FqCodelQueue::new(parameters, limit, self.mtu)),
        };
        let background = Self { background, ..self.clone() }.background_of(rate, stream);
        Some(Bottleneck::new(discipline, self.schedule.line(rate), background))
    }

    fn background_of(&self, rate: Rate, stream: u64) -> Option<Background> {
        let size = BACKGROUND_PACKET.min(self.mtu);
        (!self.background.is_none())
            .then(|| Background::new(self.background.on(rate), size, self.seed_of(stream)))
    }

    fn seed_of(&self, stream: u64) -> u64 {
        self.seed.wrapping_mul(2).wrapping_add(stream)
    }
}

fn drop_tail(queue: QueueLimit) -> DropTail {
    match queue {
        QueueLimit::Bytes(bytes) => DropTail::Bytes(bytes),
        QueueLimit::Packets(packets) => DropTail::Packets(packets),
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
    fn lateness_is_held_against_the_queue_as_well_as_the_delay() {
        let path = |queue: &str, rtt_ms| PathSpec {
            rate: "1Gbit".parse().ok(),
            rtt: Rtt::new(Duration::from_millis(rtt_ms)),
            queue: queue.parse().ok(),
            ..PathSpec::default()
        };
        let allowed = |spec: &PathSpec| spec.allowed_lateness().0;
        // 1 MB drains in 8 ms.
        assert_eq!(allowed(&path("1MB", 200)), Duration::from_micros(800));
        assert_eq!(allowed(&path("", 200)), Duration::from_millis(5), "one BDP: the delay decides");
        assert_eq!(allowed(&path("10packets", 200)), Duration::from_micros(200));
        assert_eq!(allowed(&PathSpec::default()), Duration::from_millis(1));
        let late = crate::DirectionStats { late_p99: Duration::from_millis(2), ..Default::default() };
        assert!(late.infidelity(&path("", 200)).is_none());
        let why = late.infidelity(&path("1MB", 200)).unwrap();
        assert!(why.contains("10 % of the queue's time is 800.0µs"), "{why}");
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
            PathSpec { jitter: Rtt::new(Duration::from_millis(1)), ..good.clone() },
            PathSpec { ecn: true, ..good.clone() },
            PathSpec { aqm: "codel".parse().unwrap(), rate: None, ..good.clone() },
            PathSpec { up: "queue=0packets".parse().unwrap(), ..good.clone() },
            PathSpec { second: "rate=1Mbit".parse().unwrap(), rate: None, ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
