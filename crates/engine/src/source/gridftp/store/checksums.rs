//! Checksums that the server computes of the temporary file.

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::gridftp::{Command, Reply, checksum_algorithm_name, parse_checksum};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};

use super::StoreSession;
use crate::cancel::Cancel;
use crate::connect::Deadline;
use crate::source::gridftp::error::FtpError;

/// Algorithms for CKSM in order of preference: most CPUs have instructions for SHA-256 and SHA-1, and SHA-512 is faster
/// than MD5 without.
const PREFERRED: [Algorithm; 4] = [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Sha512, Algorithm::Md5];
/// The assumed minimum rate at which a server reads and hashes; a single disk is faster, a busy one may not be.
const SLOWEST_CHECKSUM: Rate = Rate::bytes_per_sec(10_000_000);
/// The number of commands sent ahead of their replies; they fit into socket buffers of 64 KiB.
const FLIGHT: usize = 64;

impl StoreSession<'_> {
    /// Returns the algorithm for comparing checksums; `None` if the server offers none.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        PREFERRED.into_iter().find(|algorithm| self.session.features.checksum(*algorithm))
    }

    /// Requests the checksums of ranges of the temporary file; returns `None` for each if the server does not implement
    /// CKSM.
    ///
    /// # Errors
    /// [`FtpError`], also for any other refusal.
    pub(crate) fn checksums(
        &mut self,
        algorithm: Algorithm,
        ranges: &[ByteRange],
        cancel: &Cancel,
    ) -> Result<Vec<Option<Checksum>>, FtpError> {
        let access = &self.store.access;
        let name = checksum_algorithm_name(algorithm).unwrap_or("MD5");
        let mut found = Vec::with_capacity(ranges.len());
        let together = if access.sessions.quirks(&self.session.key).is_sequential { 1 } else { FLIGHT };
        for flight in ranges.chunks(together) {
            let path = &access.address.path;
            let commands: Vec<_> =
                flight.iter().map(|range| Command::Cksm(name, Some(*range), path)).collect();
            self.session.control.send(&commands, access.at(), cancel)?;
            for range in flight {
                let limit = self.session.control.limit + SLOWEST_CHECKSUM.time_for(range.len());
                let reply = self.session.control.reply("CKSM", access.at(), &Deadline::new(cancel, limit))?;
                found.push(self.checksum_of(reply, algorithm)?);
            }
        }
        Ok(found)
    }

    /// Requests the checksum of the whole temporary file of expected size `size`; `None` if the server does not
    /// implement CKSM.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn whole_checksum(
        &mut self,
        algorithm: Algorithm,
        size: Bytes,
        cancel: &Cancel,
    ) -> Result<Option<Checksum>, FtpError> {
        let at = self.store.access.at();
        let name = checksum_algorithm_name(algorithm).unwrap_or("MD5");
        self.session.control.send(
            &[Command::Cksm(name, None, &self.store.access.address.path)],
            at,
            cancel,
        )?;
        let limit = self.session.control.limit + SLOWEST_CHECKSUM.time_for(size);
        let reply = self.session.control.reply("CKSM", at, &Deadline::new(cancel, limit))?;
        self.checksum_of(reply, algorithm)
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
            None => Err(self.refused("CKSM", reply)),
        }
    }
}
