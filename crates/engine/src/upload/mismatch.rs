//! Finds the bytes on the server that differ from the source, by digests of pieces.

use std::io;
use std::os::unix::fs::FileExt;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;

use super::error::UploadError;
use super::session::UploadSession;
use crate::digest::{PrefixDigest, WantedDigests};

/// The bytes of the source read at once.
const BLOCK: Bytes = Bytes::kib(256);

/// Returns the ranges of the source whose digests differ from `pieces`, empty if all agree; and the source's BLAKE3 digest.
///
/// # Errors
/// The errors of reading the source; [`UploadError::Answer`] if the number of digests does not
/// match.
pub(super) fn differing(
    session: &UploadSession<'_>,
    pieces: &Pieces,
) -> Result<(RangeSet, Checksum), UploadError> {
    let (source, progress) = (session.context.source, session.context.progress);
    let size = progress.size;
    let wanted =
        WantedDigests { whole: Some(Algorithm::Blake3), pieces: Some((pieces.algorithm, pieces.length)) };
    let mut digest = PrefixDigest::new(wanted);
    let mut block = vec![0; BLOCK.as_usize()];
    while digest.hashed() < size.get() {
        progress.check_cancel()?;
        let most = (size - Bytes::new(digest.hashed())).min(BLOCK).as_usize();
        match source.file().read_at(&mut block[..most], digest.hashed()) {
            Ok(0) => return Err(UploadError::Changed(source.path().clone())),
            Ok(n) => digest.update(&block[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(UploadError::cannot_read(source.path().clone(), error)),
        }
    }
    session.context.check_source()?;
    let digests = digest.digests();
    let wrong = pieces.differing(&digests.pieces, size);
    let wrong = wrong.ok_or_else(|| UploadError::Answer {
        at: session.at(),
        why: "the digests of its pieces are not of a file of this size".to_owned(),
    })?;
    Ok((wrong.into_iter().collect(), digests.whole.ok_or(UploadError::NoDigest)?))
}
