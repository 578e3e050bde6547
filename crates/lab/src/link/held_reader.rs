//! Reads packets from the sender's TUN into a held link, and puts departing packets into the ring.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slab::Slab;

use crate::model::discipline::QueuedPacket;
use crate::model::held::{Departure, HeldEvent, HeldLink};
use crate::model::{Backlog, DropCause, Fate, Time};
use crate::wire::{self, FlowKey, MAX_FRAME, Shape};

use super::wait::PacketWait;
use super::{LUMP, ReaderIo, prepare_thread};

/// Packets per frame that an id can number; a frame of 64 KiB has fewer, for any packet size.
const PACKETS_OF_FRAME: u64 = 1 << 16;
/// Frames read before the link's events are processed.
const FRAMES_AT_ONCE: usize = 32;

pub(super) struct HeldReader {
    pub(super) io: ReaderIo,
    pub(super) link: HeldLink,
    pub(super) seed: u64,
    /// Whether the hosts' packets support ECN.
    pub(super) ecn: bool,
    /// The backlog after the last processing of events.
    pub(super) backlog: Backlog,
}

/// A frame with packets inside the link.
struct HeldFrame {
    bytes: Vec<u8>,
    shape: Shape,
    flow: Option<FlowKey>,
    /// Number of its packets still inside.
    inside: usize,
}

/// Packets of a frame that depart together.
struct FramePiece {
    slot: usize,
    run: Range<usize>,
    first: Time,
    at: Time,
    is_marked: bool,
}

/// Frames inside the link, and departed frames not yet in the ring.
struct HeldFrames {
    frames: Slab<HeldFrame>,
    /// Consecutive departing packets to be joined.
    piece: Option<FramePiece>,
    /// Departure, sequence number and bytes of each frame that has left the bottlenecks.
    departed: BinaryHeap<Reverse<(Time, u64, Vec<u8>)>>,
    number: u64,
    random: ChaCha8Rng,
}

impl HeldReader {
    pub(super) fn run(mut self) {
        prepare_thread(1);
        let mut wait = PacketWait::new(self.io.clock);
        let mut held = HeldFrames::new(self.seed);
        let mut buffer = vec![0; MAX_FRAME];
        let least_delay = self.link.least_delay();
        let mut events = Vec::new();
        while !self.io.stop.is_set() {
            let mut outcome = Ok(());
            for _ in 0..FRAMES_AT_ONCE {
                outcome = self.io.from.read(&mut buffer).map(|len| {
                    let now = self.io.clock.now();
                    self.link.run_until(now, &mut events);
                    self.enter(&buffer[..len], now, wait.empty, &mut held, &mut events);
                });
                if outcome.is_err() {
                    break;
                }
            }
            let now = self.io.clock.now();
            self.link.run_until(now, &mut events);
            self.settle(now, &mut events, &mut held);
            self.release(now + least_delay, &mut held);
            let Err(error) = outcome else { continue };
            let due = held.departed.peek().map(|Reverse((at, ..))| at.before(least_delay));
            let next = [self.link.next(), due].into_iter().flatten().min();
            let limit = next.map(|next| next.since(self.io.clock.now()));
            let waits = error.kind() == io::ErrorKind::WouldBlock;
            let waited = if waits {
                wait.until_readable(&self.io.from, &self.io.stop.event, limit)
            } else {
                Err(error)
            };
            if let Err(error) = waited {
                tracing::error!("the lab's link stops: reading from its TUN device: {error}");
                return;
            }
        }
    }

    /// Passes the packets of a frame to the link.
    fn enter(
        &mut self,
        frame: &[u8],
        now: Time,
        empty: Time,
        held: &mut HeldFrames,
        events: &mut Vec<HeldEvent>,
    ) {
        let (shape, flow) = (Shape::of(frame), FlowKey::of(frame));
        let is_ecn_capable = self.ecn && wire::is_ecn_capable(frame);
        let (hash, pair) = flow.map_or((0, 0), |flow| (flow.hash_with(self.seed), flow.pair()));
        if let Some(capture) = &self.io.observers.capture {
            capture.frame(frame);
        }
        // With an idle line a late read delays the packet; otherwise it would have queued anyway.
        let late = if self.link.backlog().packets == 0 { now.since(empty) } else { Duration::ZERO };
        self.io.counters.read_late.record(late);
        let slot =
            held.frames.insert(HeldFrame { bytes: frame.to_vec(), shape, flow, inside: shape.packets() });
        let of_frame = QueuedPacket { flow: hash, is_ecn_capable, pair, ..QueuedPacket::default() };
        for index in 0..shape.packets() {
            let id = slot as u64 * PACKETS_OF_FRAME + index as u64;
            self.link.arrive(now, QueuedPacket { id, size: shape.size(index), ..of_frame }, events);
        }
        let backlog = self.link.backlog();
        self.io.observers.with(|evidence| {
            evidence.arrived(now, flow, shape.packets() as u64, shape.bytes(), backlog);
        });
        self.settle(now, events, held);
    }

    /// Processes the link's events.
    fn settle(&mut self, now: Time, events: &mut Vec<HeldEvent>, held: &mut HeldFrames) {
        // Samples the queue also in intervals with departures only.
        let stood = std::mem::replace(&mut self.backlog, self.link.backlog());
        if !events.is_empty() {
            self.io.observers.with(|evidence| evidence.queued(now, stood));
        }
        for event in events.drain(..) {
            match event {
                HeldEvent::Dropped { id, cause } => self.drop_packet(now, id, cause, held),
                HeldEvent::Leaves(left) => {
                    let (slot, _) = split(left.id);
                    let flow = held.flow_of(slot);
                    self.io.observers.with(|evidence| {
                        evidence.waited(now, left.sojourn);
                        if left.is_marked {
                            evidence.marked(now, flow);
                        }
                    });
                    if left.is_marked || left.is_corrupted || left.is_doubled || left.is_reordered {
                        self.io.counters.count(|stats| {
                            stats.marked += u64::from(left.is_marked);
                            stats.impaired.corrupted += u64::from(left.is_corrupted);
                            stats.impaired.duplicated += u64::from(left.is_doubled);
                            stats.impaired.reordered += u64::from(left.is_reordered);
                        });
                    }
                    if left.is_corrupted || left.is_doubled {
                        held.flush();
                        held.send_alone(&left);
                    } else {
                        held.add(&left);
                    }
                    held.release_packet(slot);
                }
            }
        }
        held.flush();
        self.io.counters.shared_with(self.link.background());
    }

    fn drop_packet(&mut self, now: Time, id: u64, cause: DropCause, held: &mut HeldFrames) {
        let (slot, _) = split(id);
        let flow = held.flow_of(slot);
        self.io.counters.dropped(&[Fate::Dropped(cause)]);
        self.io.observers.with(|evidence| evidence.dropped(now, flow, cause));
        held.flush();
        held.release_packet(slot);
    }

    /// Puts frames due by `until` into the ring: no later packet can overtake them.
    fn release(&mut self, until: Time, held: &mut HeldFrames) {
        while let Some(Reverse((at, _, frame))) = held.departed.peek()
            && *at <= until
        {
            let shape = Shape::of(frame);
            if self.io.outlet.put(*at, frame) {
                self.io.counters.carried(shape, 0..shape.packets());
            } else {
                self.io.counters.overflowed(shape.packets());
            }
            held.departed.pop();
        }
    }
}

fn split(id: u64) -> (usize, usize) {
    ((id / PACKETS_OF_FRAME) as usize, (id % PACKETS_OF_FRAME) as usize)
}

impl HeldFrames {
    fn new(seed: u64) -> Self {
        Self {
            frames: Slab::new(),
            piece: None,
            departed: BinaryHeap::new(),
            number: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn flow_of(&self, slot: usize) -> Option<FlowKey> {
        self.frames.get(slot)?.flow
    }

    /// Removes a packet from the frame in `slot`; frees the slot after the last one.
    fn release_packet(&mut self, slot: usize) {
        let Some(frame) = self.frames.get_mut(slot) else { return };
        frame.inside -= 1;
        if frame.inside == 0 {
            self.flush();
            self.frames.remove(slot);
        }
    }

    /// Extends the current piece by a packet, or starts a new piece.
    fn add(&mut self, packet: &Departure) {
        let &Departure { id, at, is_marked, .. } = packet;
        let (slot, index) = split(id);
        if let Some(piece) = &mut self.piece
            && (piece.slot, piece.run.end, piece.is_marked) == (slot, index, is_marked)
            && at >= piece.at
            && at.since(piece.first) <= LUMP
        {
            (piece.run.end, piece.at) = (index + 1, at);
            return;
        }
        self.flush();
        self.piece = Some(FramePiece { slot, run: index..index + 1, first: at, at, is_marked });
    }

    /// Emits the current piece.
    fn flush(&mut self) {
        let Some(FramePiece { slot, run, at, is_marked, .. }) = self.piece.take() else { return };
        let Some(frame) = self.cut(slot, run, is_marked) else { return };
        self.send(at, frame);
    }

    fn send_alone(&mut self, packet: &Departure) {
        let (slot, index) = split(packet.id);
        let Some(mut frame) = self.cut(slot, index..index + 1, packet.is_marked) else { return };
        if packet.is_doubled {
            self.send(packet.at, frame.clone());
        }
        if packet.is_corrupted {
            wire::corrupt(&mut frame, self.random.random());
        }
        self.send(packet.at, frame);
    }

    fn send(&mut self, at: Time, frame: Vec<u8>) {
        self.number += 1;
        self.departed.push(Reverse((at, self.number, frame)));
    }

    fn cut(&self, slot: usize, run: Range<usize>, is_marked: bool) -> Option<Vec<u8>> {
        let held = self.frames.get(slot)?;
        let mut frame = if run.len() == held.shape.packets() {
            held.bytes.clone()
        } else {
            let mut piece = Vec::new();
            wire::write_piece(&held.bytes, held.shape, run, &mut piece);
            piece
        };
        if is_marked {
            wire::mark_congestion(&mut frame);
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_depart_by_time_then_by_order() {
        let mut held = HeldFrames::new(1);
        for (millis, byte) in [(5, 1), (3, 2), (5, 3), (4, 4)] {
            held.send(Time::from_nanos(millis), vec![byte]);
        }
        let order: Vec<u8> =
            std::iter::from_fn(|| held.departed.pop()).map(|Reverse((.., frame))| frame[0]).collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }
}
