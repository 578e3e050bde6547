//! Counts the bytes that a stream has sent.

use std::net::TcpStream;
use std::time::Instant;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::Stream;
use crate::transfer::Sending;

impl Stream<'_, Sending> {
    /// Counts a part of a lease that the peer's TCP has acknowledged on `socket`; returns how many
    /// leading bytes count: the rest was stolen meanwhile.
    pub(crate) fn acknowledged(&mut self, part: ByteRange, socket: &TcpStream) -> Bytes {
        self.connection.delivery.add(part.len(), Bytes::ZERO, socket, Instant::now());
        let counted = self.mark_moved(part, self.connection.delivery.rate);
        self.round.transfer.add_received(self.handle.source, counted);
        counted
    }

    /// Completes a lease of `length` bytes that ends at `end` and that the server has confirmed;
    /// returns `false` if a part was stolen.
    pub(crate) fn confirmed(&mut self, end: u64, length: Bytes) -> bool {
        let rest = self.round.schedule.with(|schedule, now| schedule.confirm(self.id(), end, now));
        let Some(rest) = rest else { return false };
        self.round.transfer.add_received(self.handle.source, rest);
        self.gained += length;
        // Waiting streams end with the last byte.
        self.round.schedule.change(|_| ());
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

    use longhaul_core::event::{JobId, JobObserver, JobTag};
    use longhaul_core::schedule::{Blocks, RangeScheduler};

    use super::*;
    use crate::cancel::Cancel;
    use crate::transfer::{Round, RoundEnd, StreamHandle, TransferOptions, TransferProgress};

    #[test]
    fn acknowledged_bytes_that_were_stolen_are_not_counted() {
        const WHOLE: ByteRange = ByteRange::new(0, 100);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tag = JobTag::new(JobId::new(1), "http://h/f");
        let transfer = TransferProgress::new(Instant::now(), JobObserver::new(&tag, &()), None, 1);
        let scheduler = RangeScheduler::new(Blocks::new(vec![WHOLE], 1, false, Bytes::new(1)));
        let options = TransferOptions::default();
        let end = RoundEnd::new(Cancel::new());
        let schedule = transfer.schedule(scheduler, true);
        let round = Round::<Sending>::new(&transfer, &end, schedule, &options, ());
        let stream = |id| Stream::new(Arc::new(StreamHandle::new(id, 0, &end.stop)), &round);
        let (mut victim, thief) = (stream(0), stream(1));
        assert_eq!(victim.lease(), Some(WHOLE));
        round.schedule.change(|schedule| schedule.release_beyond(0, Bytes::new(60)));
        assert_eq!(victim.acknowledged(ByteRange::new(0, 40), &socket), Bytes::new(40));
        // The thief sends the stolen tail, so acknowledged bytes of it do not count here.
        assert_eq!(victim.acknowledged(ByteRange::new(40, 90), &socket), Bytes::new(20));
        assert_eq!(transfer.received(), Bytes::new(60));
        assert!(!victim.leases_until(WHOLE.end()));
        victim.requeue(std::iter::once(ByteRange::new(0, 60)));
        victim.disconnected();
        assert_eq!(round.schedule.left(), WHOLE.len());
        let again: Vec<_> = std::iter::from_fn(|| thief.lease()).collect();
        assert_eq!(again, [ByteRange::new(0, 60), ByteRange::new(60, 100)]);
    }
}
