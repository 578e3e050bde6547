//! The digest of a pipeline's file: computed as it was written, or read back.

use std::io;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;

use super::Pipeline;
use crate::cancel::Cancel;
use crate::digest;
use crate::sink::output_error::OutputError;

/// How much is read at once of what has not been hashed in passing: an aligned block.
const PIECE: Bytes = Bytes::mib(4);

impl Pipeline {
    /// Returns the file's digest: of what was written where that was hashed in passing, else of what the device has. `Ok(None)`
    /// where cancelled.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn digest(&self, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, OutputError> {
        let passing = self
            .passing
            .as_ref()
            .filter(|passing| algorithm == Algorithm::Blake3 && passing.size() == self.written());
        let Some(passing) = passing else { return self.read_back(algorithm, cancel) };
        for gap in passing.missing() {
            let mut at = gap.start();
            while at < gap.end() {
                if cancel.is_cancelled() {
                    return Ok(None);
                }
                let end = (at + 1).next_multiple_of(PIECE.get()).min(gap.end());
                let bytes =
                    self.read_at(ByteRange::new(at, end)).map_err(|source| self.unverified(source))?;
                passing.add(at, &bytes);
                at = end;
            }
        }
        match passing.root() {
            Some(root) => Ok(Checksum::new(algorithm, root.as_bytes())),
            None => self.read_back(algorithm, cancel),
        }
    }

    fn unverified(&self, source: io::Error) -> OutputError {
        OutputError::Write { operation: "verify", path: self.part.path().to_owned(), source }
    }

    /// Reads the file's digest from the device, where the kernel drops its copy: a write that was lost is
    /// found too. `Ok(None)` where cancelled.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    fn read_back(&self, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, OutputError> {
        let (file, whole) = (self.part.file(), ByteRange::with_len(0, self.written()));
        let synced = file.sync_data().and_then(|()| write_back::finish_and_drop(file, whole));
        let read =
            synced.and_then(|()| self.part.reopen()).and_then(|file| digest::of(file, algorithm, cancel));
        read.map_err(|source| self.unverified(source))
    }
}
