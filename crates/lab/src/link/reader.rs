//! Reads packets from the sender's TUN, applies the model, and puts departing packets into the
//! ring.

use std::io;
use std::ops::Range;

use longhaul_core::units::Bytes;

use crate::model::{BackgroundCounts, Backlog, DropCause, Fate, Link, Time};
use crate::wire::{self, FlowKey, MAX_FRAME, Shape};

use super::read_lag::ReadLag;
use super::stats::LinkCounters;
use super::wait::PacketWait;
use super::{LUMP, Observers, ReaderIo, prepare_thread};

pub(super) struct TunReader {
    pub(super) io: ReaderIo,
    pub(super) link: Link,
    /// `None` on a path without a rate, which has the host's own speed.
    pub(super) lag: Option<ReadLag>,
}

impl TunReader {
    pub(super) fn run(mut self) {
        prepare_thread(1);
        let mut spare = vec![0; MAX_FRAME];
        let mut splitter = Splitter::default();
        let mut wait = PacketWait::new(self.io.clock);
        while !self.io.stop.is_set() {
            if let Err(error) = self.take_one(&mut spare, &mut splitter, &wait) {
                let waits = error.kind() == io::ErrorKind::WouldBlock;
                let waited = if waits {
                    wait.until_readable(&self.io.from, &self.io.stop.event, None)
                } else {
                    Err(error)
                };
                if let Err(error) = waited {
                    tracing::error!("the lab's link stops: reading from its TUN device: {error}");
                    return;
                }
            }
        }
    }

    /// Reads a frame directly into the ring and determines the fate of its packets.
    fn take_one(&mut self, spare: &mut [u8], splitter: &mut Splitter, wait: &PacketWait) -> io::Result<()> {
        let Some(slot) = self.io.outlet.ring.reserve(MAX_FRAME) else {
            let len = self.io.from.read(spare)?;
            self.io.counters.overflowed(Shape::of(&spare[..len]).packets());
            return Ok(());
        };
        let len = self.io.from.read(slot)?;
        let now = self.io.clock.now();
        let frame = &slot[..len];
        let shape = Shape::of(frame);
        if let Some(capture) = &self.io.observers.capture {
            capture.frame(frame);
        }

        splitter.fates.clear();
        splitter.fates.extend((0..shape.packets()).map(|index| self.link.pass(now, shape.size(index))));
        self.io.counters.dropped(&splitter.fates);
        self.io.counters.shared_with(self.link.background());
        if let (Some(lag), Some(leaves)) = (&mut self.lag, splitter.last_leaves()) {
            let bytes = splitter.bytes_past_the_queue(shape);
            self.io.counters.read_late.record(lag.pass(wait.empty, now, bytes, leaves));
        }
        if self.io.observers.evidence.is_some() {
            self.io.observers.observe(now, FlowKey::of(frame), shape, &splitter.fates, self.link.queue());
        }
        if let Some(leaves) = splitter.all_leave() {
            self.io.outlet.commit(leaves, len);
            self.io.counters.carried(shape, 0..shape.packets());
        } else if splitter.some_leave() {
            splitter.keep(frame);
            self.put_pieces(splitter, shape);
        }
        Ok(())
    }

    /// Puts the surviving packets of a super-packet into the ring, run by run.
    fn put_pieces(&mut self, splitter: &mut Splitter, shape: Shape) {
        let mut next = 0;
        while let Some((run, leaves)) = splitter.next_run(&mut next) {
            let piece = splitter.cut(shape, run.clone());
            if self.io.outlet.put(leaves, piece) {
                self.io.counters.carried(shape, run);
            } else {
                self.io.counters.overflowed(run.len());
            }
        }
    }
}

impl Observers {
    /// Records a frame and the fates of its packets for the observers.
    fn observe(
        &self,
        now: Time,
        flow: Option<FlowKey>,
        shape: Shape,
        fates: &[Fate],
        queue: Option<(Backlog, Time)>,
    ) {
        let (backlog, free) = queue.unwrap_or_default();
        self.with(|evidence| {
            evidence.arrived(now, flow, shape.packets() as u64, shape.bytes(), backlog);
            evidence.waited(now, free.since(now));
            for fate in fates {
                if let Fate::Dropped(cause) = *fate {
                    evidence.dropped(now, flow, cause);
                }
            }
        });
    }
}

/// Scratch memory for a super-packet that does not depart as a whole.
#[derive(Default)]
struct Splitter {
    fates: Vec<Fate>,
    frame: Vec<u8>,
    piece: Vec<u8>,
}

impl Splitter {
    /// Returns the departure of the last packet if all packets depart together.
    fn all_leave(&self) -> Option<Time> {
        match self.next_run(&mut 0) {
            Some((run, last)) if run.len() == self.fates.len() => Some(last),
            _ => None,
        }
    }

    fn some_leave(&self) -> bool {
        self.fates.iter().any(|fate| matches!(fate, Fate::Leaves(_)))
    }

    /// Returns the departure of the last surviving packet.
    fn last_leaves(&self) -> Option<Time> {
        self.fates.iter().rev().find_map(|fate| match fate {
            Fate::Leaves(at) => Some(*at),
            Fate::Dropped(_) => None,
        })
    }

    /// Returns the bytes that the bottleneck sends of a frame: random loss occurs behind the
    /// bottleneck.
    fn bytes_past_the_queue(&self, shape: Shape) -> Bytes {
        let sent =
            self.fates.iter().enumerate().filter(|(_, fate)| **fate != Fate::Dropped(DropCause::Queue));
        Bytes::new(sent.map(|(index, _)| shape.size(index).get()).sum())
    }

    fn keep(&mut self, frame: &[u8]) {
        self.frame.clear();
        self.frame.extend_from_slice(frame);
    }

    /// Returns the next run of packets that depart within a [`LUMP`], from index `next` on, and the
    /// last departure.
    fn next_run(&self, next: &mut usize) -> Option<(Range<usize>, Time)> {
        let mut run: Option<(Range<usize>, Time)> = None;
        let mut first = Time::START;
        while let Some(fate) = self.fates.get(*next) {
            match (fate, &mut run) {
                (Fate::Leaves(at), Some(_)) if at.since(first) > LUMP => break,
                (Fate::Leaves(at), Some((range, last))) => (range.end, *last) = (*next + 1, *at),
                (Fate::Leaves(at), None) => (run, first) = (Some((*next..*next + 1, *at)), *at),
                (Fate::Dropped(_), Some(_)) => break,
                (Fate::Dropped(_), None) => {}
            }
            *next += 1;
        }
        run
    }

    fn cut(&mut self, shape: Shape, run: Range<usize>) -> &[u8] {
        self.piece.clear();
        wire::write_piece(&self.frame, shape, run, &mut self.piece);
        &self.piece
    }
}

impl LinkCounters {
    /// Counts the dropped packets of a frame.
    pub(super) fn dropped(&self, fates: &[Fate]) {
        let lost = |cause| fates.iter().filter(|fate| **fate == Fate::Dropped(cause)).count() as u64;
        let (queue, loss) = (lost(DropCause::Queue), lost(DropCause::Loss));
        if queue + loss > 0 {
            self.count(|stats| {
                stats.dropped_queue += queue;
                stats.dropped_loss += loss;
            });
        }
    }

    /// Records the background traffic's counts.
    pub(super) fn shared_with(&self, background: BackgroundCounts) {
        if background.offered > 0 {
            self.count(|stats| stats.background = background);
        }
    }

    /// Counts packets of a frame put into the ring.
    pub(super) fn carried(&self, shape: Shape, packets: Range<usize>) {
        self.count(|stats| {
            stats.packets += packets.len() as u64;
            stats.bytes += Bytes::new(packets.map(|index| shape.size(index).get()).sum());
        });
    }

    /// Counts packets that the ring was too full for, or the receiving kernel refused.
    pub(super) fn overflowed(&self, packets: usize) {
        self.count(|stats| stats.dropped_overflow += packets as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_runs_between_drops() {
        let out = |nanos| Fate::Leaves(Time::from_nanos(nanos));
        let lump = LUMP.as_nanos() as u64;
        let gone = Fate::Dropped(DropCause::Loss);
        let splitter =
            Splitter { fates: vec![gone, out(1), out(2), gone, gone, out(3), gone], ..Splitter::default() };
        let mut next = 0;
        assert_eq!(splitter.next_run(&mut next), Some((1..3, Time::from_nanos(2))));
        assert_eq!(splitter.next_run(&mut next), Some((5..6, Time::from_nanos(3))));
        assert_eq!(splitter.next_run(&mut next), None);

        let slowly =
            Splitter { fates: vec![out(1), out(1 + lump), out(2 + lump), out(3 + lump)], ..splitter };
        assert_eq!(slowly.all_leave(), None);
        let mut next = 0;
        assert_eq!(slowly.next_run(&mut next), Some((0..2, Time::from_nanos(1 + lump))));
        assert_eq!(slowly.next_run(&mut next), Some((2..4, Time::from_nanos(3 + lump))));
        assert_eq!(slowly.next_run(&mut next), None);
    }
}
