//! Checksums that the server computes of the temporary file.

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::gridftp::{Reply, parse_checksum};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::StoreSession;
use crate::cancel::Cancel;
use crate::source::gridftp::error::FtpError;

/// Algorithms for CKSM in order of preference: most CPUs have instructions for SHA-256 and SHA-1, and SHA-512 is faster
/// than MD5 without.
const PREFERRED: [Algorithm; 4] = [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512, Algorithm::Md5];

impl StoreSession<'_> {
    /// Returns the algorithm for comparing checksums; `None` if the server offers none.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        PREFERRED.into_iter().find(|algorithm| self.session.features.checksum(*algorithm))
    }

    /// Requests the checksums of ranges of the temporary file, or of the whole file of expected size `size`; returns
    /// `None` for each if the server does not implement CKSM.
    ///
    /// # Errors
    /// [`FtpError`], also for any other refusal.
    pub(crate) fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[Option<ByteRange>],
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<Vec<Option<Checksum>>, FtpError> {
        let file = (&self.store.access.address.path[..], size);
        let replies = self.session.checksums(algorithm, ranges, file, cancel)?;
        replies.into_iter().map(|reply| self.checksum_of(reply, algorithm)).collect()
    }

    /// Reads the reply to CKSM; `None` if the command is unknown to the server, which is accepted only before the first
    /// checksum.
    fn checksum_of(&mut self, reply: Reply, algorithm: Algorithm) -> Result<Option<Checksum>, FtpError> {
        let is_unknown = matches!(reply.code, 500 | 502 | 504) && !self.has_computed;
        match parse_checksum(&reply, algorithm) {
            Some(checksum) => {
                self.has_computed = true;
                Ok(Some(checksum))
            }
            None if is_unknown => Ok(None),
            None => Err(self.session.control.refused("CKSM", reply)),
        }
    }
}
