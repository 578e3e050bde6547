//! Builds the models of a path.

use longhaul_core::units::{Bytes, Rate};

use crate::model::discipline::{CodelQueue, Discipline, FifoQueue, FqCodelQueue};
use crate::model::held::{Bottleneck, HeldLink, Impairments, Tail};
use crate::model::{AckCompression, Background, BurstLoss, Delay, Link, RandomLoss, RateLimit, Red};

use super::{Aqm, BackgroundSteps, GeModel, ImpairmentSpec, PathSpec};

/// Size of background packets; the MTU if that is smaller.
const BACKGROUND_PACKET: Bytes = Bytes::new(1500);

impl PathSpec {
    /// Builds the model of one direction; `stream` separates the directions' random numbers.
    pub fn link(&self, stream: u64) -> Link {
        let mut link = Link::new();
        if let (Some(rate), Some(limit)) = (self.rate, self.queue_limit()) {
            let line = self.schedule.line(rate);
            let mut bottleneck = match self.aqm {
                Aqm::Red(parameters) => RateLimit::on(
                    line,
                    Red::new(parameters, limit, rate, self.ends.mtu, self.seed_of(stream)),
                ),
                // `held_link` builds disciplines that act on departure; their limit is that of a FIFO queue.
                Aqm::DropTail | Aqm::Codel(_) | Aqm::FqCodel(_) => RateLimit::on(line, limit),
            };
            if let Some(background) = self.background_of(&self.traffic.background, rate, stream) {
                bottleneck = bottleneck.shared_with(background);
            }
            link = link.then(bottleneck);
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

    /// Builds the model of one direction as a held link; `stream` separates the directions' random numbers.
    pub fn held_link(&self, stream: u64) -> HeldLink {
        let mut bottlenecks: Vec<Bottleneck> =
            self.bottleneck(stream, &self.traffic.background).into_iter().collect();
        if !self.overrides.second.is_none() {
            bottlenecks.extend(self.second_bottleneck().bottleneck(!stream, &BackgroundSteps::default()));
        }
        let ImpairmentSpec { jitter, reorder, duplicate, corrupt, .. } = &self.impairments;
        let impairments = Impairments {
            delays: self.delays(),
            jitter: jitter.get(),
            reordered: reorder.share.get(),
            reordered_by: reorder.by,
            duplicated: duplicate.get(),
            corrupted: corrupt.get(),
        };
        let crossings = self.ends.pairs.0.iter().map(|pair| pair.crossing).collect();
        let tail = Tail::new(self.lossy(Link::new(), stream), impairments, self.seed_of(stream));
        HeldLink::new(bottlenecks, crossings, tail)
    }

    fn bottleneck(&self, stream: u64, background: &BackgroundSteps) -> Option<Bottleneck> {
        let (rate, limit) = (self.rate?, self.queue_limit()?);
        let discipline: Box<dyn Discipline> = match self.aqm {
            Aqm::DropTail => Box::new(FifoQueue::new(limit)),
            Aqm::Red(parameters) => Box::new(FifoQueue::new(Red::new(
                parameters,
                limit,
                rate,
                self.ends.mtu,
                self.seed_of(stream),
            ))),
            Aqm::Codel(parameters) => Box::new(CodelQueue::new(parameters, limit, self.ends.mtu)),
            Aqm::FqCodel(parameters) => Box::new(FqCodelQueue::new(parameters, limit, self.ends.mtu)),
        };
        let background = self.background_of(background, rate, stream);
        Some(Bottleneck::new(discipline, self.schedule.line(rate), background))
    }

    fn background_of(&self, steps: &BackgroundSteps, rate: Rate, stream: u64) -> Option<Background> {
        let size = BACKGROUND_PACKET.min(self.ends.mtu);
        (!steps.is_none()).then(|| Background::new(steps.on(rate), size, self.seed_of(stream)))
    }

    fn seed_of(&self, stream: u64) -> u64 {
        self.seed.wrapping_mul(2).wrapping_add(stream)
    }
}
