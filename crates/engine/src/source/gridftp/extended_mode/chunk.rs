//! A chunk of a file that was requested and is not complete.

use std::time::Instant;

use longhaul_core::proto::gridftp::TransferLedger;
use longhaul_core::ranges::ByteRange;

/// A chunk: complete with the reply 226, an end of data from every connection that the server announces, and every byte.
pub(super) struct Chunk {
    pub(super) number: u64,
    /// Where it lies in the file; blocks are counted from its start.
    pub(super) range: ByteRange,
    pub(super) ledger: TransferLedger,
    pub(super) requested: Instant,
    /// 226 has arrived.
    pub(super) replied: bool,
    /// The file was as described after it.
    pub(super) proved: bool,
}

impl Chunk {
    pub(super) fn new(number: u64, range: ByteRange) -> Self {
        let ledger = TransferLedger::new(ByteRange::new(0, range.len().get()));
        Self { number, range, ledger, requested: Instant::now(), replied: false, proved: false }
    }

    /// Returns whether bytes are still to come.
    pub(super) fn lacks_bytes(&self) -> bool {
        self.ledger.received() < self.range.len()
    }
}
