//! Finds the bytes on the server that differ from the source, by digests of pieces.

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::{ByteRange, RangeSet};

use super::error::UploadError;
use super::hashing::digests_of;
use super::session::UploadSession;
use crate::digest::WantedDigests;

/// Returns the ranges of the source whose digests differ from `pieces`, empty if all agree; and the source's BLAKE3 digest.
///
/// # Errors
/// Those of reading the source, and of a number of digests that does not match.
pub(super) fn differing(
    session: &UploadSession<'_>,
    pieces: &Pieces,
) -> Result<(RangeSet, Checksum), UploadError> {
    let (source, progress) = (session.context.source, session.context.progress);
    let size = progress.size;
    let wanted =
        WantedDigests { whole: Some(Algorithm::Blake3), pieces: Some((pieces.algorithm, pieces.length)) };
    let digests = digests_of(source, ByteRange::with_len(0, size), wanted, &progress.cancel)?;
    session.context.check_source()?;
    let wrong = pieces.differing(&digests.pieces, size);
    let why = "the digests of its pieces are not of a file of this size";
    let wrong = wrong.ok_or_else(|| UploadError::answer(&session.at(), why))?;
    Ok((wrong.into_iter().collect(), digests.whole.ok_or_else(UploadError::no_digest)?))
}
