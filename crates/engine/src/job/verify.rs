//! Verifies what has been fetched, and finds out which source has sent wrong bytes.

use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Event, Warning};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::Fetch;
use crate::cancel::Cancel;
use crate::digest;
use crate::sink::output_error::OutputError;
use crate::transfer::error::TransferError;

/// Which sources may be used.
#[derive(Debug)]
pub(super) struct Suspects {
    trusted: Vec<bool>,
    /// The source that is left out of the present round, on the suspicion that its bytes are wrong.
    suspected: Option<usize>,
    /// Sources that have been left out before because of the digest of the whole file.
    tried: Vec<usize>,
    /// Rounds that may still be spent on pieces that several sources have delivered together.
    doubts: usize,
}

/// What verification has shown.
pub(super) enum Verdict {
    /// The file is what was asked for; its digest, where one was given.
    Right(Option<Checksum>),
    /// Some bytes are wrong: they can be leased again, from the sources that are trusted. The error counts where those cannot
    /// deliver them.
    FetchAgain(TransferError),
}

impl Suspects {
    pub(super) fn new(sources: usize) -> Self {
        Self { trusted: vec![true; sources], suspected: None, tried: Vec::new(), doubts: 2 * sources }
    }

    /// Returns whether a source may be used in the present round.
    pub(super) fn is_trusted(&self, source: usize) -> bool {
        self.trusted[source] && self.suspected != Some(source)
    }

    /// Returns whether another source may deliver what `source` has sent.
    fn has_another(&self, fetch: &Fetch<'_>, source: usize) -> bool {
        let may_deliver = |other: usize| self.trusted[other] && !fetch.transfer.sources[other].has_failed();
        (0..self.trusted.len()).any(|other| other != source && may_deliver(other))
    }
}

/// Verifies the file; where bytes are wrong and another source is left, makes them available again.
pub(super) fn verify(
    fetch: &Fetch<'_>,
    suspects: &mut Suspects,
    cancel: &Cancel,
) -> Result<Verdict, TransferError> {
    if fetch.expected.checksum.is_none() && fetch.expected.pieces.is_none() {
        return Ok(Verdict::Right(None));
    }
    fetch.transfer.emit(&Event::Verifying);
    let wrong = wrong_pieces(fetch, cancel)?;
    if !wrong.is_empty() {
        return blame_for_pieces(fetch, suspects, &wrong);
    }
    let Some(wanted) = &fetch.expected.checksum else { return Ok(Verdict::Right(None)) };
    let pipeline = &fetch.transfer.pipeline;
    let read = pipeline.digest(wanted.algorithm, cancel)?;
    let found = read.ok_or_else(|| fetch.interrupted())?;
    if found == *wanted {
        return Ok(Verdict::Right(Some(found)));
    }
    let mismatch = TransferError::Checksum {
        path: pipeline.part().path().to_owned(),
        wanted: wanted.clone(),
        found: found.clone(),
        kept: pipeline.is_resumable(),
    };
    suspect_next(fetch, suspects, &found, mismatch)
}

/// Returns the pieces whose digest is not the metalink's.
fn wrong_pieces(fetch: &Fetch<'_>, cancel: &Cancel) -> Result<Vec<ByteRange>, TransferError> {
    let Some(pieces) = &fetch.expected.pieces else { return Ok(Vec::new()) };
    let pipeline = &fetch.transfer.pipeline;
    let failed =
        |source| OutputError::Write { operation: "verify", path: pipeline.part().path().to_owned(), source };
    let (size, length) = (pipeline.written().get(), pieces.length.get());
    let (there, given) = (size.div_ceil(length), pieces.digests.len() as u64);
    // A metalink that gives the size has been checked when it was read.
    if there != given {
        return Err(wrong_error(fetch, there.abs_diff(given)));
    }
    let mut wrong = Vec::new();
    for (index, wanted) in (0..).zip(&pieces.digests) {
        let start = index * length;
        let piece = ByteRange::new(start, start.saturating_add(length).min(size));
        let digest = digest::of_part(pipeline.part().file(), piece, wanted.algorithm, cancel);
        if digest.map_err(failed)?.ok_or_else(|| fetch.interrupted())? != *wanted {
            wrong.push(piece);
        }
    }
    Ok(wrong)
}

/// Makes wrong pieces available again, without the source that has sent them.
///
/// The source that has sent all bytes of a wrong piece is dropped. Of pieces that several sources have sent together the one with
/// most bytes is only left out of the next round: it may not be the one whose bytes are wrong.
fn blame_for_pieces(
    fetch: &Fetch<'_>,
    suspects: &mut Suspects,
    wrong: &[ByteRange],
) -> Result<Verdict, TransferError> {
    let trusted = || (0..fetch.sources.len()).filter(|&source| suspects.trusted[source]);
    let whole = |source: usize| {
        let delivered = fetch.transfer.sources[source].delivered();
        wrong.iter().filter(|piece| delivered.contains(**piece)).count()
    };
    let bytes = |source: usize| {
        let delivered = fetch.transfer.sources[source].delivered();
        let missing = |piece: &ByteRange| -> u64 {
            delivered.gaps(*piece).into_iter().map(|gap| gap.len().get()).sum()
        };
        wrong.iter().map(|piece| piece.len().get() - missing(piece)).sum::<u64>()
    };
    let liar = trusted().filter(|&source| whole(source) > 0).max_by_key(|&source| whole(source));
    let most = trusted().filter(|&source| bytes(source) > 0).max_by_key(|&source| bytes(source));
    let message =
        |pieces: usize| format!("{pieces} of its pieces have another digest than the metalink gives");
    suspects.suspected = None;
    let again = match (liar, most) {
        (Some(liar), _) => {
            suspects.trusted[liar] = false;
            let again = suspects.trusted.contains(&true);
            if again {
                warn(fetch, liar, message(whole(liar)));
            }
            again
        }
        (None, Some(source)) => {
            let again = suspects.has_another(fetch, source) && suspects.doubts > 0;
            suspects.doubts = suspects.doubts.saturating_sub(1);
            if again {
                suspects.suspected = Some(source);
                warn(fetch, source, message(wrong.len()));
            }
            again
        }
        // An earlier run has left them.
        (None, None) => true,
    };
    for piece in wrong {
        requeue(fetch, *piece)?;
    }
    let error = wrong_error(fetch, wrong.len() as u64);
    if again { Ok(Verdict::FetchAgain(error)) } else { Err(error) }
}

fn wrong_error(fetch: &Fetch<'_>, pieces: u64) -> TransferError {
    TransferError::WrongPieces { path: fetch.transfer.pipeline.part().path().to_owned(), pieces }
}

/// Leaves out one source after the other, the mirrors first, and fetches what it has delivered from the others; fails with
/// `mismatch` once all were tried.
fn suspect_next(
    fetch: &Fetch<'_>,
    suspects: &mut Suspects,
    found: &Checksum,
    mismatch: TransferError,
) -> Result<Verdict, TransferError> {
    let mirrors = (0..fetch.sources.len()).filter(|&source| source != fetch.primary);
    let next = mirrors.chain([fetch.primary]).find(|source| {
        let delivered = fetch.transfer.sources[*source].delivered();
        !suspects.tried.contains(source) && suspects.trusted[*source] && delivered.total() > Bytes::ZERO
    });
    let Some(suspect) = next.filter(|source| suspects.has_another(fetch, *source)) else {
        return Err(mismatch);
    };
    suspects.tried.push(suspect);
    suspects.suspected = Some(suspect);
    let reason = format!("the file has the checksum {found}: what this source sent is fetched from others");
    warn(fetch, suspect, reason);
    for range in fetch.transfer.sources[suspect].forget_delivered().iter() {
        requeue(fetch, range)?;
    }
    Ok(Verdict::FetchAgain(mismatch))
}

fn warn(fetch: &Fetch<'_>, source: usize, reason: String) {
    let url = fetch.sources[source].shown().to_owned();
    fetch.transfer.emit(&Event::Warning(Warning::SourceDropped { url, reason }));
}

/// Lets a range be fetched again.
fn requeue(fetch: &Fetch<'_>, range: ByteRange) -> Result<(), TransferError> {
    fetch.transfer.pipeline.forget(range)?;
    fetch.transfer.sources.iter().for_each(|source| source.forget_delivered_in(range));
    fetch.transfer.schedule.change(|schedule| schedule.requeue(range));
    Ok(())
}
