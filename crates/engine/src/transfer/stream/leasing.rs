//! Leases ranges from the schedule to a stream, and returns them.

use std::time::Duration;

use longhaul_core::buffer_plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};

use super::Stream;
use crate::transfer::Direction;

/// The least time in which a draining stream still receives outstanding bytes; two round trips if
/// longer.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// If several sources share a file, a chunk is at most the remaining bytes divided by this,
const PARTS_BESIDE_OTHERS: u64 = 8;
/// but at least this size.
const MIN_CHUNK: Bytes = Bytes::mib(2);

impl<D: Direction> Stream<'_, D> {
    /// Waits until a range can be leased; returns `false` if the stream ends instead.
    pub(crate) fn wait_for_work(&self) -> bool {
        let over = || self.stop().is_cancelled() || self.is_draining();
        let interrupt = |victim| self.round.running.interrupt(victim);
        self.round.schedule.wait_for_work(self.id(), over, interrupt)
    }

    /// Leases a range; `None` if none is left, or the stream drains.
    pub(crate) fn lease(&self) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        self.round.schedule.with(|schedule, now| schedule.lease(self.id(), now))
    }

    /// Leases the range that was requested before the streams started.
    pub(crate) fn lease_requested(&self, range: ByteRange) {
        self.round.schedule.lease_requested(self.id(), range);
    }

    /// Returns the rest of the first lease. A draining stream first releases ranges that would take
    /// too long.
    pub(crate) fn front(&self) -> Option<ByteRange> {
        if self.is_draining() {
            let delivery = &self.connection.delivery;
            let keep = delivery.rate.bytes_in(DRAIN_TIME.max(delivery.rtt.get() * 2));
            self.round.schedule.change(|schedule| schedule.release_beyond(self.id(), keep));
        }
        self.round.schedule.front(self.id())
    }

    /// Returns the bytes leased and not received, and the number of leases.
    pub(crate) fn outstanding(&self) -> (Bytes, usize) {
        self.round.schedule.with(|schedule, _| schedule.outstanding(self.id()))
    }

    /// Returns the bytes that may be leased now, by any stream.
    pub(crate) fn unleased(&self) -> Bytes {
        self.round.schedule.with(|schedule, _| schedule.available())
    }

    /// Returns whether nothing is left to lease for any stream, unless another one fails or is
    /// slow.
    pub(crate) fn is_all_leased(&self) -> bool {
        self.round.schedule.with(|schedule, _| schedule.is_all_leased())
    }

    /// Returns how many bytes should be outstanding so that the server never idles.
    ///
    /// The only stream of the only source requests everything at once from a `paced` server,
    /// because such a server may start at a stored rate.
    pub(crate) fn outstanding_target(&self, paced: bool) -> Bytes {
        let streams = self.wanted_streams();
        let wanted = if paced && streams == 1 && !self.has_other_source() {
            Bytes::new(u64::MAX)
        } else {
            let delivery = &self.connection.delivery;
            buffer_plan::ask_ahead(delivery.expected, delivery.data_rtt(), streams)
        };
        self.round.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Shortens the first lease to `end`: a server may send less than requested (RFC 9110, section
    /// 15.3.7).
    pub(crate) fn shorten(&self, end: u64) {
        self.round.schedule.change(|schedule| schedule.shorten(self.id(), end));
    }

    /// Restarts the first lease, which is the whole file, from its start; returns the offset it had
    /// reached.
    pub(crate) fn restart(&self) -> Option<u64> {
        self.round.schedule.with(|schedule, _| schedule.restart(self.id()))
    }

    /// Drops the first lease after all of it has arrived; returns `false` if another stream has
    /// stolen it.
    pub(crate) fn complete(&self) -> bool {
        self.round.schedule.change(|schedule| schedule.complete(self.id()))
    }

    /// Marks bytes of leases as moved, at this rate; returns how many leading bytes are still
    /// leased.
    pub(super) fn mark_moved(&self, part: ByteRange, rate: Rate) -> Bytes {
        self.round.schedule.with(|schedule, now| {
            schedule.update(self.id(), |status| status.rate = rate);
            schedule.received(self.id(), part, now)
        })
    }

    /// Returns whether the stream still leases the whole range that ends at `end`.
    pub(crate) fn leases_until(&self, end: u64) -> bool {
        self.round.schedule.with(|schedule, _| schedule.leases_until(self.id(), end))
    }

    /// Makes acknowledged parts of leases available again, because the server has not confirmed
    /// them.
    pub(crate) fn requeue(&self, parts: impl Iterator<Item = ByteRange>) {
        self.round.schedule.change(|schedule| parts.for_each(|part| schedule.requeue(part)));
    }

    /// Leases a chunk of at most `most` bytes; `None` if none is left, or the stream drains.
    pub(crate) fn lease_chunk(&self, most: Bytes) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        let shares = self.has_other_source();
        self.round.schedule.with(|schedule, now| {
            // Among several sources, chunks shrink towards the end, so that all finish together.
            let part = Bytes::new(schedule.left().get() / PARTS_BESIDE_OTHERS).max(MIN_CHUNK);
            schedule.lease_chunk(self.id(), if shares { most.min(part) } else { most }, now)
        })
    }

    /// Returns the rest, from `offset` on, of the lease that contains `offset`.
    pub(crate) fn leased_at(&self, offset: u64) -> Option<ByteRange> {
        self.round.schedule.with(|schedule, _| schedule.leased_at(self.id(), offset))
    }

    /// Drops completely received leases; returns whether any lease is left.
    pub(crate) fn drop_received(&self) -> bool {
        let left = self.round.schedule.with(|schedule, _| {
            schedule.drop_received(self.id());
            schedule.outstanding(self.id()).1 > 0
        });
        if !left {
            // Wakes threads that wait for the end of a chunk.
            self.round.schedule.change(|_| ());
        }
        left
    }
}
