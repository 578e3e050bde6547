//! Completion of a transfer over several data connections.

use std::collections::BTreeSet;

use thiserror::Error;

use super::BlockHeader;
use crate::ranges::{ByteRange, RangeSet};
use crate::units::Bytes;

/// The largest number of separate ranges announced or received in one transfer. Connections send
/// their blocks roughly in order, so there are about as many ranges as connections, of which
/// servers open some thousand ([`MAX_CHANNELS`](super::MAX_CHANNELS)).
const MAX_FRAGMENTS: usize = 65_536;

/// The reason why a transfer is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Blocks contradict each other or the request, so that none of them can be trusted.
    #[error("{0}")]
    Contradiction(String),
    /// Bytes or connections are missing, which may arrive when the transfer is repeated.
    #[error("{0}")]
    Incomplete(String),
}

impl LedgerError {
    /// Creates the error of blocks that announced different numbers of connections, or of more
    /// connections that ended than were announced.
    pub fn channels(announced: u64, other: u64) -> Self {
        Self::Incomplete(format!("the server announced {announced} data connections, but also {other}"))
    }
}

/// Records the announced and received blocks of one transfer, and the connections that have ended.
///
/// The transfer is complete once all announced connections have ended and every byte of the range
/// has been received.
#[derive(Debug, Clone)]
pub struct TransferLedger {
    requested: ByteRange,
    announced: RangeSet,
    received: RangeSet,
    ended: BTreeSet<u64>,
    channels: Option<u64>,
}

impl TransferLedger {
    /// Creates the ledger of a transfer of `requested`, in the offsets of the blocks.
    pub fn new(requested: ByteRange) -> Self {
        let (announced, received) = (RangeSet::new(), RangeSet::new());
        Self { requested, announced, received, ended: BTreeSet::new(), channels: None }
    }

    /// Records a block's header, before its payload.
    ///
    /// # Errors
    /// [`LedgerError`] if the block contradicts earlier blocks; the transfer then cannot continue.
    pub fn announce(&mut self, channel: u64, header: BlockHeader) -> Result<(), LedgerError> {
        if self.ended.contains(&channel) {
            let why = format!("the server sent a block after the end of data on data connection {channel}");
            return Err(LedgerError::Contradiction(why));
        }
        if let Some(block) = header.payload() {
            self.announce_payload(block)?;
        }
        if let Some(channels) = header.channels() {
            let announced = *self.channels.get_or_insert(channels);
            if announced != channels {
                return Err(LedgerError::channels(announced, channels));
            }
        }
        // A block with an end of data may have payload, which must also arrive before the transfer
        // is complete.
        if header.ends_data() {
            self.ended.insert(channel);
        }
        match self.channels {
            Some(announced) if self.ended() > announced => {
                Err(LedgerError::channels(announced, self.ended()))
            }
            _ => Ok(()),
        }
    }

    fn announce_payload(&mut self, block: ByteRange) -> Result<(), LedgerError> {
        let contradiction = |what: String| Err(LedgerError::Contradiction(format!("the server sent {what}")));
        if block.start() < self.requested.start() || block.end() > self.requested.end() {
            return contradiction(format!("{block}, outside of the requested {}", self.requested));
        }
        let new: u64 = self.announced.gaps(block).iter().map(|gap| gap.len().get()).sum();
        if new != block.len().get() {
            return contradiction(format!("{block} twice"));
        }
        if self.announced.iter().count() >= MAX_FRAGMENTS || self.received.iter().count() >= MAX_FRAGMENTS {
            return contradiction(format!("blocks that leave more than {MAX_FRAGMENTS} gaps"));
        }
        self.announced.insert(block);
        Ok(())
    }

    /// Records received payload: the front of an announced block, or its continuation.
    pub fn receive(&mut self, range: ByteRange) {
        self.received.insert(range);
    }

    /// Returns the number of connections of the transfer, once announced.
    pub fn channels(&self) -> Option<u64> {
        self.channels
    }

    /// Returns the number of connections that have ended their data.
    pub fn ended(&self) -> u64 {
        self.ended.len() as u64
    }

    /// Returns the number of received bytes.
    pub fn received(&self) -> Bytes {
        self.received.total()
    }

    /// Returns whether all announced connections have ended, even if bytes are missing.
    pub fn all_ended(&self) -> bool {
        self.channels == Some(self.ended())
    }

    /// Checks that a transfer whose connections have all ended is complete.
    ///
    /// # Errors
    /// [`LedgerError::Incomplete`] if bytes were not received, for instance because the file has
    /// become shorter.
    pub fn finish(&self) -> Result<(), LedgerError> {
        let missing: RangeSet = self.received.gaps(self.requested).into_iter().collect();
        if missing.total() == Bytes::ZERO {
            return Ok(());
        }
        let why = format!("the server reported a complete transfer, but {missing} are missing");
        Err(LedgerError::Incomplete(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(start: u64, end: u64) -> BlockHeader {
        BlockHeader::data(ByteRange::new(start, end))
    }

    fn is_complete(ledger: &TransferLedger) -> bool {
        ledger.all_ended() && ledger.finish().is_ok()
    }

    /// Announces a block and receives all of it.
    fn send(ledger: &mut TransferLedger, channel: u64, start: u64, end: u64) -> Result<(), LedgerError> {
        ledger.announce(channel, data(start, end))?;
        ledger.receive(ByteRange::new(start, end));
        Ok(())
    }

    #[track_caller]
    fn contradicts(announced: Result<(), LedgerError>, words: &str) {
        let Err(LedgerError::Contradiction(why)) = announced else { panic!("{announced:?}") };
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn completion_needs_every_end_of_data_and_every_byte() {
        let mut ledger = TransferLedger::new(ByteRange::new(0, 100));
        send(&mut ledger, 0, 50, 100).unwrap();
        ledger.announce(0, BlockHeader::end_of_file(2)).unwrap();
        assert!(!ledger.all_ended());
        ledger.announce(1, data(0, 50)).unwrap();
        ledger.receive(ByteRange::new(0, 20));
        ledger.announce(1, BlockHeader::end_of_data()).unwrap();
        assert!(ledger.all_ended());
        let missing: RangeSet = [ByteRange::new(20, 50)].into_iter().collect();
        let why = format!("the server reported a complete transfer, but {missing} are missing");
        assert_eq!(ledger.finish(), Err(LedgerError::Incomplete(why)));
        ledger.receive(ByteRange::new(20, 50));
        assert!(is_complete(&ledger) && ledger.received() == Bytes::new(100));
        // Idle connections end too.
        let mut ledger = TransferLedger::new(ByteRange::new(10, 20));
        send(&mut ledger, 3, 10, 20).unwrap();
        ledger.announce(1, BlockHeader::end_of_data()).unwrap();
        ledger.announce(3, BlockHeader::end_of_data()).unwrap();
        assert!(!is_complete(&ledger));
        ledger.announce(2, BlockHeader::end_of_file(3)).unwrap();
        assert!(is_complete(&ledger) && ledger.ended() == 3);
    }

    #[test]
    fn contradictions_are_refused() {
        let requested = ByteRange::new(10, 100);
        let ledger = TransferLedger::new(requested);
        for block in [ByteRange::new(5, 20), ByteRange::new(90, 101), ByteRange::new(200, 300)] {
            contradicts(ledger.clone().announce(0, BlockHeader::data(block)), "outside of the requested");
        }
        let mut overlap = ledger.clone();
        send(&mut overlap, 0, 10, 50).unwrap();
        contradicts(send(&mut overlap, 1, 49, 60), "twice");

        let mut after = ledger.clone();
        after.announce(7, BlockHeader::end_of_data()).unwrap();
        contradicts(after.announce(7, data(10, 20)), "on data connection 7");

        let mut channels = ledger.clone();
        channels.announce(0, BlockHeader::end_of_file(2)).unwrap();
        let two = LedgerError::channels(2, 3);
        assert_eq!(channels.announce(1, BlockHeader::end_of_file(3)), Err(two.clone()));

        let mut too_many = ledger;
        (0..2).for_each(|channel| too_many.announce(channel, BlockHeader::end_of_data()).unwrap());
        assert_eq!(too_many.announce(2, BlockHeader::end_of_file(2)), Err(two));
    }

    #[test]
    fn scattered_blocks_end_in_an_error() {
        let mut ledger = TransferLedger::new(ByteRange::new(0, 1 << 40));
        let scattered = (0..u64::MAX).map(|n| send(&mut ledger, 0, n * 2, n * 2 + 1));
        let (taken, error) = scattered.enumerate().find_map(|(n, sent)| Some((n, sent.err()?))).unwrap();
        assert_eq!(taken, MAX_FRAGMENTS);
        contradicts(Err(error), "more than 65536 gaps");
    }

    proptest! {
        #[test]
        fn blocks_in_any_order_over_any_connections_complete(
            lengths in prop::collection::vec(1u64..50, 1..20),
            order in prop::collection::vec(any::<u32>(), 20),
            channels in 1u64..6,
        ) {
            let mut at = 1000;
            let mut blocks: Vec<_> = lengths.iter().map(|len| { at += len; ByteRange::new(at - len, at) }).collect();
            blocks.sort_by_key(|block| order[usize::try_from(block.start() % 20).unwrap()]);
            let mut ledger = TransferLedger::new(ByteRange::new(1000, at));
            for (n, block) in blocks.iter().enumerate() {
                prop_assert!(!is_complete(&ledger));
                send(&mut ledger, n as u64 % channels, block.start(), block.end()).unwrap();
            }
            for channel in 0..channels - 1 {
                ledger.announce(channel, BlockHeader::end_of_data()).unwrap();
            }
            prop_assert!(!is_complete(&ledger) && ledger.finish().is_ok());
            ledger.announce(channels - 1, BlockHeader::end_of_file(channels)).unwrap();
            prop_assert!(is_complete(&ledger));
        }
    }
}
