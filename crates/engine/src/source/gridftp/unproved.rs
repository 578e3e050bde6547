//! Bytes that arrived since the server last showed that the file is unchanged.

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::error::FtpError;
use super::remote_state::RemoteState;
use crate::transfer::Stream;

/// The number of bytes taken back so that a file is not complete before it is proved. It is less
/// than the threshold of progress ([`Backoff::PROGRESS`](longhaul_core::retry::Backoff::PROGRESS)),
/// so that retries end with a server that fails after the last byte each time.
const WITHHELD: Bytes = Bytes::kib(32);

/// The bytes that a worker has delivered and that are not yet proved.
///
/// FTP sends no version of the file with its bytes. Therefore the state is requested after each
/// range: if unchanged, all bytes before belong to the described version. In MODE E bytes are
/// proved with their whole chunk, because a later block may contradict an earlier one.
#[derive(Debug, Default)]
pub(super) struct Unproved(RangeSet);

impl Unproved {
    /// Adds delivered bytes.
    pub(super) fn deliver(&mut self, range: ByteRange) {
        self.0.insert(range);
    }

    /// Records that the bytes of `range` are complete and belong to the described version.
    pub(super) fn prove(&mut self, range: ByteRange) {
        self.0.remove(range);
    }

    /// Clears the set: all bytes are proved or forgotten.
    pub(super) fn prove_all(&mut self) {
        self.0 = RangeSet::new();
    }

    /// Returns whether all bytes are proved.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// Takes back a part of the bytes, so that the transfer is not complete while bytes are
    /// unproved.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn withhold(&mut self, stream: &mut Stream<'_>) -> Result<(), Failure> {
        // A completely received lease counts as outstanding until it is dropped.
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

    /// Requeues all unproved bytes.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn take_back(&mut self, stream: &mut Stream<'_>) -> Result<(), Failure> {
        stream.take_back(&std::mem::take(&mut self.0))
    }
}

/// Fails if the file is no longer in the described state.
pub(super) fn compare(described: &RemoteState, now: &RemoteState, at: &str) -> Result<(), FtpError> {
    if described == now {
        return Ok(());
    }
    let message = format!(
        "{at} changed on the server during the transfer ({described} became {now}); use --no-resume to fetch the new file"
    );
    Err(Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into())
}
