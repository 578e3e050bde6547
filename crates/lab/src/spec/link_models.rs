//! Builds the models of a path.

use longhaul_core::units::{Bytes, Rate};

use crate::model::discipline::{CodelQueue, Discipline, FifoQueue, FqCodelQueue};
use crate::model::held::{Bottleneck, HeldLink, Tail};
use crate::model::{
    AckCompression, AdmissionPolicy, Background, BurstLoss, Delay, Link, RandomLoss, RatedQueue, Red,
};

use super::{Aqm, BackgroundSteps, GeModel, PathSpec, QueueLimit};

/// Size of background packets; the MTU if that is smaller.
const BACKGROUND_PACKET: Bytes = Bytes::new(1500);

impl PathSpec {
    /// Builds the model of one direction; `stream` separates the directions' random numbers.
    pub fn link(&self, stream: u64) -> Link {
        let mut link = Link::new();
        if let (Some(rate), Some(limit)) = (self.rate, self.queue_limit()) {
            let background = self.background_of(&self.traffic.background, rate, stream);
            let admission = self.admission(rate, limit, stream);
            link = link.then(RatedQueue::new(self.schedule.line(rate), admission, background));
        }
        link = self.lossy(link, stream);
        if !self.one_way().is_zero() {
            link = link.then(Delay::new(self.one_way(), self.impairments.jitter.get(), self.seed_of(stream)));
        }
        link
    }

    /// Appends losses and the compression of acknowledgements to what precedes them on the path.
    fn lossy(&self, mut link: Link, stream: u64) -> Link {
        // Random loss behind the bottleneck: a lost packet has used its share of the rate.
        if self.impairments.loss > 0.0 {
            link = link.then(RandomLoss::new(self.impairments.loss, self.seed_of(stream)));
        }
        if let GeModel(Some(parameters)) = self.impairments.gemodel {
            // A different seed: otherwise both kinds of loss would coincide.
            link = link.then(BurstLoss::new(parameters, !self.seed_of(stream)));
        }
        if !self.traffic.ack_compression.get().is_zero() {
            link = link.then(AckCompression::new(self.traffic.ack_compression.get()));
        }
        link
    }

    /// Builds the model of one direction as a held link; `stream` separates the directions' random
    /// numbers.
    pub fn held_link(&self, stream: u64) -> HeldLink {
        let mut bottlenecks: Vec<Bottleneck> =
            self.bottleneck(stream, &self.traffic.background).into_iter().collect();
        if !self.overrides.second.is_none() {
            bottlenecks.extend(self.second_bottleneck().bottleneck(!stream, &BackgroundSteps::default()));
        }
        let crossings = self.ends.pairs.0.iter().map(|pair| pair.crossing).collect();
        let before = self.lossy(Link::new(), stream);
        let tail = Tail::new(before, self.delays(), self.impairments.clone(), self.seed_of(stream));
        HeldLink::new(bottlenecks, crossings, tail)
    }

    fn bottleneck(&self, stream: u64, background: &BackgroundSteps) -> Option<Bottleneck> {
        let (rate, limit) = (self.rate?, self.queue_limit()?);
        let discipline: Box<dyn Discipline> = match self.aqm {
            Aqm::DropTail | Aqm::Red(_) => Box::new(FifoQueue::new(self.admission(rate, limit, stream))),
            Aqm::Codel(parameters) => Box::new(CodelQueue::new(parameters, limit, self.ends.mtu)),
            Aqm::FqCodel(parameters) => Box::new(FqCodelQueue::new(parameters, limit, self.ends.mtu)),
        };
        let background = self.background_of(background, rate, stream);
        Some(Bottleneck::new(discipline, self.schedule.line(rate), background))
    }

    /// Returns the admission to a FIFO queue. Disciplines that act on departure have only a limit
    /// in common with it.
    fn admission(&self, rate: Rate, limit: QueueLimit, stream: u64) -> Box<dyn AdmissionPolicy> {
        match self.aqm {
            Aqm::Red(red) => Box::new(Red::new(red, limit, rate, self.ends.mtu, self.seed_of(stream))),
            Aqm::DropTail | Aqm::Codel(_) | Aqm::FqCodel(_) => Box::new(limit),
        }
    }

    fn background_of(&self, steps: &BackgroundSteps, rate: Rate, stream: u64) -> Option<Background> {
        let size = BACKGROUND_PACKET.min(self.ends.mtu);
        (!steps.is_none()).then(|| Background::new(steps.on(rate), size, self.seed_of(stream)))
    }

    fn seed_of(&self, stream: u64) -> u64 {
        self.seed.wrapping_mul(2).wrapping_add(stream)
    }
}
