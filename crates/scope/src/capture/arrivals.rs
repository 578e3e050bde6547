//! Which bytes of one direction have arrived: in order, or beyond a gap.

use std::collections::BTreeMap;

/// Payload of a packet of 1500 bytes with timestamps (RFC 7323): captured packets may have been
/// merged.
pub(super) const PACKET: u64 = 1448;
/// Maximum of separate ranges beyond gaps.
const MAX_RANGES: usize = 4096;

/// What has arrived of a direction, by its sequence numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    first: u64,
    /// The end of what arrived without a gap, and the start and end of what arrived beyond, in
    /// order.
    contiguous: u64,
    beyond: BTreeMap<u64, u64>,
    /// Packets that arrived beyond a gap, as a receiver counts them.
    pub(super) out_of_order: u64,
}

impl Arrivals {
    /// Begins before the first byte.
    pub(super) fn at(first: u64) -> Self {
        Self { first, contiguous: first, ..Self::default() }
    }

    /// Adds a range, and counts its packets if it lies beyond a gap; what is known already is not
    /// counted again.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start <= self.contiguous {
            self.add_until(end);
            return;
        }
        let (mut from, mut to, mut known) = (start, end, 0);
        while let Some((first, last)) =
            self.beyond.range(..=to).next_back().filter(|(_, last)| **last >= from)
        {
            let (first, last) = (*first, *last);
            self.beyond.remove(&first);
            (from, to, known) = (from.min(first), to.max(last), known + last - first);
        }
        self.out_of_order += (to - from - known).div_ceil(PACKET);
        self.beyond.insert(from, to);
        if self.beyond.len() > MAX_RANGES {
            self.beyond.pop_last();
        }
    }

    /// Adds all that lies below `end`.
    pub(super) fn add_until(&mut self, end: u64) {
        self.contiguous = self.contiguous.max(end);
        while let Some(next) = self.beyond.first_entry().filter(|next| *next.key() <= self.contiguous) {
            self.contiguous = self.contiguous.max(next.remove());
        }
    }

    /// Returns whether something has arrived beyond a gap.
    pub(super) fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Returns how many packets have arrived, in order or not.
    pub(super) fn packets(&self) -> u64 {
        let beyond: u64 = self.beyond.iter().map(|(start, end)| end - start).sum();
        (self.contiguous - self.first + beyond) / PACKET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_beyond_a_gap_counts_once() {
        let mut arrivals = Arrivals::at(1000);
        let packets = |from: u64, to: u64| (1000 + from * PACKET, 1000 + to * PACKET);
        // The first packet is lost; acknowledgements report what grows beyond it, at both ends,
        // again and again.
        for (from, to) in [(2, 3), (2, 5), (7, 8), (2, 5), (1, 5), (1, 8)] {
            let (start, end) = packets(from, to);
            arrivals.add(start, end);
        }
        assert_eq!((arrivals.out_of_order, arrivals.packets()), (7, 7));
        arrivals.add_until(packets(0, 1).1);
        assert_eq!((arrivals.out_of_order, arrivals.packets()), (7, 8));
    }
}
