//! Bytes that have come since the server last showed that the file is still the same.

use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::error::FtpError;
use super::remote_state::RemoteState;
use crate::transfer::Stream;
use crate::transfer::error::SourceError;

/// How much is taken back so that a file is not complete before it is proved. Less than what counts as progress
/// ([`Backoff::PROGRESS`](longhaul_core::retry::Backoff::PROGRESS)): a server that reports a failure behind the last byte each time
/// is not asked for ever.
const WITHHELD: Bytes = Bytes::kib(32);

/// What a worker has delivered and nothing has proved yet.
///
/// FTP names no state of the file with its bytes. So the state is asked for behind each range: where it is as it was described, all
/// bytes before are of that state. In MODE E bytes are proved with all of their chunk, as a later block may contradict an earlier one.
#[derive(Debug, Default)]
pub(super) struct Unproved(RangeSet);

impl Unproved {
    /// Adds bytes that were delivered.
    pub(super) fn deliver(&mut self, range: ByteRange) {
        self.0.insert(range);
    }

    /// Notes that the bytes of `range` are complete and of the described state.
    pub(super) fn prove(&mut self, range: ByteRange) {
        self.0.remove(range);
    }

    /// Notes that all bytes so far are, or are forgotten.
    pub(super) fn prove_all(&mut self) {
        self.0 = RangeSet::new();
    }

    /// Returns whether nothing is left to be proved.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// Makes sure that the transfer is not taken for complete while some of its bytes are not proved: a part of them comes again.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn withhold(&mut self, stream: &mut Stream<'_>) -> Result<(), SourceError> {
        // A lease of which nothing is left to come counts as outstanding until it is dropped.
        stream.drop_received();
        if !stream.is_complete() {
            return Ok(());
        }
        let Some(last) = self.0.iter().last() else { return Ok(()) };
        let start = last.end().saturating_sub(WITHHELD.get()).max(last.start());
        let part = ByteRange::new(start, last.end());
        self.0.remove(part);
        stream.take_back(&std::iter::once(part).collect())
    }

    /// Makes all of them available again.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn take_back(&mut self, stream: &mut Stream<'_>) -> Result<(), SourceError> {
        stream.take_back(&std::mem::take(&mut self.0))
    }
}

/// Fails where the file is not in the described state any more.
pub(super) fn compare(described: &RemoteState, now: &RemoteState, at: &str) -> Result<(), FtpError> {
    if described.agrees(now) {
        return Ok(());
    }
    Err(FtpError::Changed { at: at.to_owned(), was: described.to_string(), now: now.to_string() })
}
