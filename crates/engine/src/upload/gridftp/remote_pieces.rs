//! Finds the bytes that the server has already, by comparing its checksums of pieces with the
//! source's.

use longhaul_core::checksum::Algorithm;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;
use crate::digest::WantedDigests;
use crate::send::SourceFile;
use crate::source::gridftp::StoreSession;
use crate::upload::error::UploadError;
use crate::upload::hashing::digests_of;

/// The number of pieces that a range is first cut into.
const PIECES: u64 = 64;
/// The number of pieces that a differing piece is cut into.
const PARTS: u64 = 16;
/// If more pieces differ, they are not cut further: most of the range is to be sent anyway.
const FEW: usize = 4;
/// The smallest piece except the last: a server opens and reads the file for each.
const MIN_PIECE: Bytes = Bytes::mib(1);

/// Returns the parts of `range` in which the server's file equals the source.
///
/// # Errors
/// The errors of the server and of reading the source.
pub(super) fn agreeing(
    session: &mut StoreSession<'_>,
    source: &SourceFile,
    algorithm: Algorithm,
    range: ByteRange,
    cancel: &Cancel,
) -> Result<RangeSet, UploadError> {
    let mut agrees = RangeSet::new();
    agrees.insert(range);
    let mut wrong = differing(session, source, algorithm, cut(range, PIECES), cancel)?;
    if (1..=FEW).contains(&wrong.len()) {
        let parts = wrong.iter().flat_map(|piece| cut(*piece, PARTS)).collect();
        wrong = differing(session, source, algorithm, parts, cancel)?;
    }
    wrong.into_iter().for_each(|piece| agrees.remove(piece));
    Ok(agrees)
}

/// Cuts a range into about `count` pieces that end on multiples of [`MIN_PIECE`].
fn cut(range: ByteRange, count: u64) -> Vec<ByteRange> {
    let length = range.len().get().div_ceil(count).next_multiple_of(MIN_PIECE.get()).max(MIN_PIECE.get());
    let starts = std::iter::successors(Some(range.start()), |start| start.checked_add(length));
    let within = starts.take_while(|start| *start < range.end());
    within.map(|start| ByteRange::new(start, range.end().min(start.saturating_add(length)))).collect()
}

/// Returns those of `pieces` whose checksums differ from the source's.
fn differing(
    session: &mut StoreSession<'_>,
    source: &SourceFile,
    algorithm: Algorithm,
    pieces: Vec<ByteRange>,
    cancel: &Cancel,
) -> Result<Vec<ByteRange>, UploadError> {
    let ranges: Vec<_> = pieces.iter().copied().map(Some).collect();
    let there = session.checksums(algorithm, &ranges, Bytes::ZERO, cancel)?;
    let mut wrong = Vec::new();
    for (piece, there) in pieces.into_iter().zip(there) {
        let wanted = WantedDigests { whole: Some(algorithm), pieces: None };
        if there.is_none() || there != digests_of(source, piece, wanted, cancel)?.whole {
            wrong.push(piece);
        }
    }
    source.check()?;
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_without_overlap() {
        for (start, end) in [(0, 1), (0, 1 << 20), (5, (300 << 20) + 7), (1 << 20, 1 << 34)] {
            let range = ByteRange::new(start, end);
            let pieces = cut(range, PIECES);
            assert!(pieces.len() as u64 <= PIECES && !pieces.is_empty());
            assert_eq!((pieces[0].start(), pieces[pieces.len() - 1].end()), (start, end));
            assert!(pieces.windows(2).all(|pair| pair[0].end() == pair[1].start()));
        }
        assert_eq!(cut(ByteRange::new(3, 3), PIECES), []);
    }
}
