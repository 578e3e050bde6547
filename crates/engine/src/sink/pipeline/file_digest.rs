//! The digests of a pipeline's file: computed during writing, or read back.

use std::io;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;

use super::Pipeline;
use crate::cancel::Cancel;
use crate::digest::{self, FileDigests, WantedDigests};
use crate::sink::output_error::OutputError;
use crate::tree_digest::TreeDigest;

/// The bytes read at once from ranges not yet hashed: an aligned block.
const PIECE: Bytes = Bytes::mib(4);

impl Pipeline {
    /// Returns the digest of the whole file; see [`Self::digests`].
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn digest(&self, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, OutputError> {
        let wanted = WantedDigests { whole: Some(algorithm), pieces: None };
        Ok(self.digests(wanted, cancel)?.and_then(|digests| digests.whole))
    }

    /// Returns the file's digests. Bytes that were not hashed while they were written are read
    /// through the page cache; only [`Self::read_back`] drops cached pages first. `Ok(None)` if
    /// cancelled.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn digests(
        &self,
        wanted: WantedDigests,
        cancel: &Cancel,
    ) -> Result<Option<FileDigests>, OutputError> {
        let (mut whole, mut left) = (None, wanted);
        let tree = self.follower.tree.as_ref().filter(|tree| tree.size() == self.written());
        if let Some(tree) = tree.filter(|_| wanted.whole == Some(Algorithm::Blake3)) {
            if !self.complete_tree(tree, cancel)? {
                return Ok(None);
            }
            whole = tree.root().and_then(|root| Checksum::new(Algorithm::Blake3, root.as_bytes()));
            left.whole = wanted.whole.filter(|_| whole.is_none());
        }
        if left.is_empty() {
            return Ok(Some(FileDigests { whole, ..FileDigests::default() }));
        }
        let rest = if self.part.is_stream() {
            // A stream cannot be read again, so bytes not hashed by its writer stay unknown.
            Some(self.follower.so_far())
        } else if left == self.follower.in_order() {
            let hashed =
                self.part.reopen().and_then(|file| self.follower.finish(&file, self.written(), cancel));
            hashed.map_err(|source| self.unverified(source))?
        } else {
            self.read_back(left, cancel)?
        };
        Ok(rest.map(|rest| FileDigests { whole: whole.or(rest.whole), ..rest }))
    }

    /// Reads the ranges missing in BLAKE3's tree; returns `false` if cancelled.
    fn complete_tree(&self, tree: &TreeDigest, cancel: &Cancel) -> Result<bool, OutputError> {
        for gap in tree.missing() {
            let mut at = gap.start();
            while at < gap.end() {
                if cancel.is_cancelled() {
                    return Ok(false);
                }
                let end = (at + 1).next_multiple_of(PIECE.get()).min(gap.end());
                let bytes =
                    self.read_at(ByteRange::new(at, end)).map_err(|source| self.unverified(source))?;
                tree.add(at, &bytes);
                at = end;
            }
        }
        Ok(true)
    }

    fn unverified(&self, source: io::Error) -> OutputError {
        OutputError::Write { operation: "verify", path: self.part.path().to_owned(), source }
    }

    /// Reads the file's digests from the device, after dropping cached pages, which also detects
    /// lost writes. `Ok(None)` if cancelled.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn read_back(
        &self,
        wanted: WantedDigests,
        cancel: &Cancel,
    ) -> Result<Option<FileDigests>, OutputError> {
        let (file, whole) = (self.part.file(), ByteRange::with_len(0, self.written()));
        let synced = file.sync_data().and_then(|()| write_back::finish_and_drop(file, whole));
        let read =
            synced.and_then(|()| self.part.reopen()).and_then(|file| digest::of_file(file, wanted, cancel));
        read.map_err(|source| self.unverified(source))
    }
}
