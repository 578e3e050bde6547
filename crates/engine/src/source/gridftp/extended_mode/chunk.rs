//! A requested, incomplete chunk of a file.

use std::time::Instant;

use longhaul_core::proto::gridftp::TransferLedger;
use longhaul_core::ranges::ByteRange;

/// A chunk, complete with the reply 226, an end of data from every connection announced by the server, and every byte.
pub(super) struct Chunk {
    pub(super) number: u64,
    /// The range in the file; blocks have offsets relative to its start.
    pub(super) range: ByteRange,
    pub(super) ledger: TransferLedger,
    pub(super) requested: Instant,
    /// Whether reply 226 has arrived.
    pub(super) replied: bool,
    /// Whether the file was unchanged after the chunk.
    pub(super) proved: bool,
}

impl Chunk {
    pub(super) fn new(number: u64, range: ByteRange) -> Self {
        let ledger = TransferLedger::new(ByteRange::new(0, range.len().get()));
        Self { number, range, ledger, requested: Instant::now(), replied: false, proved: false }
    }

    /// Returns whether bytes are missing.
    pub(super) fn lacks_bytes(&self) -> bool {
        self.ledger.received() < self.range.len()
    }
}
