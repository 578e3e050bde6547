//! The ranges of a stream: from the schedule, and back to it.

use std::time::Duration;

use longhaul_core::plan;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::Stream;

/// A draining stream still receives what arrives within this time, or two round trips.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Beside other sources a chunk is no more than this part of what is left,
const PARTS_BESIDE_OTHERS: u64 = 8;
/// and no less than this.
const LEAST_CHUNK: Bytes = Bytes::mib(2);

impl Stream<'_> {
    /// Waits until a range can be leased; `false` where the stream ends instead.
    pub(crate) fn wait_for_work(&self) -> bool {
        let over = || self.transfer.stop.is_cancelled() || self.is_draining();
        self.transfer.schedule.wait_for_work(self.id(), over, |victim| self.transfer.interrupt(victim))
    }

    /// Leases a range; `None` where none is left, or the stream drains.
    pub(crate) fn lease(&self) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        self.transfer.schedule.with(|schedule, now| schedule.lease(self.id(), now))
    }

    /// Leases the range that was requested before the streams began.
    pub(crate) fn lease_requested(&self, range: ByteRange) {
        self.transfer.schedule.lease_requested(self.id(), range);
    }

    /// Returns what is still to come of the first lease; a draining stream releases what would take it long.
    pub(crate) fn front(&self) -> Option<ByteRange> {
        if self.is_draining() {
            let soon = DRAIN_TIME.max(self.intake.delivery.rtt.get() * 2);
            let keep = self.intake.delivery.rate.bytes_in(soon);
            self.transfer.schedule.change(|schedule| schedule.release_beyond(self.id(), keep));
        }
        self.transfer.schedule.front(self.id())
    }

    /// Returns how much is leased and not received, in how many leases.
    pub(crate) fn outstanding(&self) -> (Bytes, usize) {
        self.transfer.schedule.with(|schedule, _| schedule.outstanding(self.id()))
    }

    /// Returns how much may be leased now, by any stream.
    pub(crate) fn unleased(&self) -> Bytes {
        self.transfer.schedule.with(|schedule, _| schedule.available())
    }

    /// Returns whether nothing is left to lease for any stream, unless another fails or is slow.
    pub(crate) fn is_all_leased(&self) -> bool {
        self.transfer.schedule.with(|schedule, _| schedule.is_all_leased())
    }

    /// Returns how much should be outstanding so that the server never idles.
    ///
    /// The only stream of the only source requests everything at once from a `paced` server, which may start at a rate that it
    /// remembers.
    pub(crate) fn outstanding_target(&self, paced: bool) -> Bytes {
        let streams = self.wanted_streams();
        let wanted = if paced && streams == 1 && !self.transfer.has_other_source(self.handle.source) {
            Bytes::new(u64::MAX)
        } else {
            plan::ask_ahead(self.intake.delivery.expected, self.intake.delivery.data_rtt(), streams)
        };
        self.transfer.schedule.with(|schedule, _| schedule.outstanding_target(self.id(), wanted))
    }

    /// Ends the first lease at `end`: a server may send less than was requested (RFC 9110, section 15.3.7).
    pub(crate) fn shorten(&self, end: u64) {
        self.transfer.schedule.change(|schedule| schedule.shorten(self.id(), end));
    }

    /// Begins the first lease, all of the file, from its start again; returns how far it had come.
    pub(crate) fn restart(&self) -> Option<u64> {
        self.transfer.schedule.with(|schedule, _| schedule.restart(self.id()))
    }

    /// Drops the first lease, all of which has arrived; `false` where another stream has stolen it.
    pub(crate) fn complete(&self) -> bool {
        self.transfer.schedule.change(|schedule| schedule.complete(self.id()))
    }

    /// Returns whether all of a range that ends at `end` is still leased to the stream.
    pub(crate) fn leases_until(&self, end: u64) -> bool {
        self.transfer.schedule.with(|schedule, _| schedule.leases_until(self.id(), end))
    }

    /// Makes acknowledged parts of leases available again: the server has not confirmed them.
    pub(crate) fn requeue(&self, parts: impl Iterator<Item = ByteRange>) {
        self.transfer.schedule.change(|schedule| parts.for_each(|part| schedule.requeue(part)));
    }

    /// Leases a chunk of at most `most` bytes; `None` where none is left, or the stream drains.
    pub(crate) fn lease_chunk(&self, most: Bytes) -> Option<ByteRange> {
        if self.is_draining() {
            return None;
        }
        let shares = self.has_other_source();
        self.transfer.schedule.with(|schedule, now| {
            // Beside other sources chunks shrink towards the end, so that all finish at once.
            let part = Bytes::new(schedule.left().get() / PARTS_BESIDE_OTHERS).max(LEAST_CHUNK);
            schedule.lease_chunk(self.id(), if shares { most.min(part) } else { most }, now)
        })
    }

    /// Returns what is still to come from `offset` on of the lease that holds it.
    pub(crate) fn leased_at(&self, offset: u64) -> Option<ByteRange> {
        self.transfer.schedule.with(|schedule, _| schedule.leased_at(self.id(), offset))
    }

    /// Drops the leases that have arrived; returns whether any is left.
    pub(crate) fn drop_received(&self) -> bool {
        let left = self.transfer.schedule.with(|schedule, _| {
            schedule.drop_received(self.id());
            schedule.outstanding(self.id()).1 > 0
        });
        if !left {
            // What waits for the end of a chunk looks again.
            self.transfer.schedule.change(|_| ());
        }
        left
    }
}
