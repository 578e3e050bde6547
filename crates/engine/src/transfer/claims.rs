//! What one stream has asked for and not yet received.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::ranges::ByteRange;
use longhaul_core::takeover::Load;
use longhaul_core::units::Bytes;

use super::seat::Seat;

/// A stream's blocks, in the order of its requests; the first is shortened as it comes.
pub(super) struct Claims {
    seat: Arc<Seat>,
    blocks: VecDeque<ByteRange>,
    /// When a byte last came, or was first waited for.
    heard: Instant,
    /// From how many in a row this was taken over, none of whom brought anything.
    stalls: u32,
}

impl Claims {
    pub(super) fn new(seat: Arc<Seat>) -> Self {
        Self { seat, blocks: VecDeque::new(), heard: Instant::now(), stalls: 0 }
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    pub(super) fn push(&mut self, block: ByteRange) {
        if self.blocks.is_empty() {
            self.heard();
        }
        self.blocks.push_back(block);
    }

    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    pub(super) fn front(&self) -> Option<ByteRange> {
        self.blocks.front().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns how much is still to come, in how many blocks.
    pub(super) fn asked(&self) -> (Bytes, usize) {
        (self.blocks.iter().fold(Bytes::ZERO, |sum, block| sum + block.len()), self.blocks.len())
    }

    /// Shortens the front by what has come; returns how much of that it was.
    pub(super) fn arrived(&mut self, bytes: usize) -> usize {
        self.heard();
        self.stalls = 0;
        let Some(front) = self.blocks.front_mut() else { return 0 };
        let own = front.len().as_usize().min(bytes);
        *front = ByteRange::new(front.start() + own as u64, front.end());
        own
    }

    /// Drops the front; returns whether there was one.
    pub(super) fn pop(&mut self) -> bool {
        self.blocks.pop_front().is_some()
    }

    /// Drops all, and returns it.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = ByteRange> + '_ {
        self.blocks.drain(..)
    }

    /// Ends the front at `end`, where it does not end before; returns what lay behind.
    pub(super) fn shorten(&mut self, end: u64) -> ByteRange {
        let Some(front) = self.blocks.front_mut() else { return ByteRange::new(end, end) };
        let end = end.min(front.end());
        let behind = ByteRange::new(end, front.end());
        *front = ByteRange::new(front.start(), end);
        behind
    }

    /// Makes the front begin at the file's start; returns where it began.
    pub(super) fn start_over(&mut self) -> Option<u64> {
        let front = self.blocks.front_mut()?;
        let before = front.start();
        *front = ByteRange::new(0, front.end());
        Some(before)
    }

    /// Notes that the last block was taken over after so many in a row had stalled.
    pub(super) fn follows(&mut self, stalls: u32) {
        self.stalls = if self.blocks.len() > 1 { self.stalls.max(stalls) } else { stalls };
    }

    /// Returns how the stream does.
    pub(super) fn load(&self, now: Instant) -> Load {
        let (left, _) = self.asked();
        let silent = now.saturating_duration_since(self.heard);
        Load { left, rate: self.seat.rate(), rtt: self.seat.rtt(), silent, stalls: self.stalls }
    }

    /// Returns whether the server answers the stream, and has not stalled.
    pub(super) fn is_served(&self, now: Instant) -> bool {
        self.seat.is_answered() && (self.is_empty() || !self.load(now).is_stalled())
    }

    /// Returns how long it will take at its rate; longest of all where it has stalled.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        let load = self.load(now);
        match load.left {
            Bytes::ZERO => Duration::ZERO,
            _ if load.is_stalled() => Duration::MAX,
            left => load.rate.time_for(left),
        }
    }

    /// Drops the last `part` of what is to come, and returns it.
    pub(super) fn take_end(&mut self, part: Bytes) -> impl Iterator<Item = ByteRange> + use<> {
        let (mut left, mut taken) = (part, Vec::new());
        while left > Bytes::ZERO
            && let Some(block) = self.blocks.pop_back()
        {
            let cut = block.end() - left.get().min(block.len().get());
            taken.push(ByteRange::new(cut, block.end()));
            left = left - block.len();
            if cut > block.start() {
                self.blocks.push_back(ByteRange::new(block.start(), cut));
            }
        }
        taken.into_iter()
    }

    /// Wakes the stream out of whatever it waits for.
    pub(super) fn interrupt(&self) {
        self.seat.cancel().cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Cancel;

    fn claims(blocks: &[(u64, u64)]) -> Claims {
        let mut claims = Claims::new(Arc::new(Seat::new(0, &Cancel::new())));
        blocks.iter().for_each(|&(start, end)| claims.push(ByteRange::new(start, end)));
        claims
    }

    #[test]
    fn the_end_is_taken_first() {
        let mut three = claims(&[(0, 10), (20, 30), (50, 60)]);
        let taken: Vec<_> = three.take_end(Bytes::new(13)).collect();
        assert_eq!(taken, [ByteRange::new(50, 60), ByteRange::new(27, 30)]);
        assert_eq!(three.asked(), (Bytes::new(17), 2));
        assert_eq!(three.take_end(Bytes::new(99)).count(), 2);
        assert!(three.is_empty());
    }

    #[test]
    fn what_comes_beyond_the_block_is_not_counted() {
        let mut one = claims(&[(0, 10)]);
        assert_eq!((one.arrived(4), one.shorten(6)), (4, ByteRange::new(6, 10)));
        assert!(one.shorten(8).is_empty(), "it ends before");
        assert_eq!((one.arrived(4), one.front()), (2, Some(ByteRange::new(6, 6))));
        assert_eq!((one.pop(), one.pop(), one.arrived(4)), (true, false, 0));
    }
}
