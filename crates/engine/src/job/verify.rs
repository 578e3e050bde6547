//! Verifies what has been fetched, and finds out which source has sent wrong bytes.

use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Event, Warning};
use longhaul_core::ranges::{ByteRange, RangeSet};

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
    /// Sources that have been left out before.
    tried: Vec<usize>,
}

/// What verification has shown.
pub(super) enum Verdict {
    /// The file is what was asked for; its digest, where one was given.
    Right(Option<Checksum>),
    /// Some bytes are wrong: they can be leased again, from the sources that are trusted.
    FetchAgain,
}

impl Suspects {
    pub(super) fn new(sources: usize) -> Self {
        Self { trusted: vec![true; sources], suspected: None, tried: Vec::new() }
    }

    /// Returns whether a source may be used in the present round.
    pub(super) fn is_trusted(&self, source: usize) -> bool {
        self.trusted[source] && self.suspected != Some(source)
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
    let read = pipeline.read_back(wanted.algorithm, cancel)?;
    let found = read.ok_or_else(|| fetch.interrupted())?;
    if found == *wanted {
        return Ok(Verdict::Right(Some(found)));
    }
    let mismatch = || TransferError::Checksum {
        path: pipeline.part().path().to_owned(),
        wanted: wanted.clone(),
        found: found.clone(),
        kept: pipeline.is_resumable(),
    };
    suspect_next(fetch, suspects, &found)?.ok_or_else(mismatch)
}

/// Returns the pieces whose digest is not the metalink's.
fn wrong_pieces(fetch: &Fetch<'_>, cancel: &Cancel) -> Result<Vec<ByteRange>, TransferError> {
    let Some(pieces) = &fetch.expected.pieces else { return Ok(Vec::new()) };
    let pipeline = &fetch.transfer.pipeline;
    let failed =
        |source| OutputError::Write { operation: "verify", path: pipeline.part().path().to_owned(), source };
    let mut wrong = Vec::new();
    for (index, wanted) in pieces.digests.iter().enumerate() {
        if cancel.is_cancelled() {
            return Err(fetch.interrupted());
        }
        let whole = ByteRange::with_len(0, pipeline.written());
        let start = index as u64 * pieces.length.get();
        let piece = ByteRange::new(start, start.saturating_add(pieces.length.get()).min(whole.end()));
        let bytes = pipeline.read_at(piece).map_err(failed)?;
        if digest::of_bytes(&bytes, wanted.algorithm).as_ref() != Some(wanted) {
            wrong.push(piece);
        }
    }
    Ok(wrong)
}

/// Drops the source that has delivered most of the wrong pieces, and makes these available again.
fn blame_for_pieces(
    fetch: &Fetch<'_>,
    suspects: &mut Suspects,
    wrong: &[ByteRange],
) -> Result<Verdict, TransferError> {
    let share = |source: usize| {
        let delivered = fetch.transfer.sources[source].delivered();
        wrong.iter().filter(|piece| overlaps(&delivered, **piece)).count()
    };
    let worst = (0..fetch.sources.len()).filter(|&source| suspects.trusted[source]).max_by_key(|&s| share(s));
    let message = format!("{} of its pieces have another digest than the metalink gives", wrong.len());
    match worst.filter(|&source| share(source) > 0 && has_others(fetch, suspects, source)) {
        Some(liar) => drop_source(fetch, suspects, liar, message),
        // Left by an earlier run, or by the only source there is.
        None => {
            let pipeline = &fetch.transfer.pipeline;
            for piece in wrong {
                pipeline.forget(*piece)?;
            }
            return Err(TransferError::WrongPieces {
                path: pipeline.part().path().to_owned(),
                pieces: wrong.len(),
            });
        }
    }
    for piece in wrong {
        requeue(fetch, *piece)?;
    }
    Ok(Verdict::FetchAgain)
}

/// Leaves out one source after the other, the mirrors first, and fetches what it has delivered from the others; `None` once
/// all were tried.
fn suspect_next(
    fetch: &Fetch<'_>,
    suspects: &mut Suspects,
    found: &Checksum,
) -> Result<Option<Verdict>, TransferError> {
    let mut order: Vec<_> = (0..fetch.sources.len()).filter(|&source| source != fetch.primary).collect();
    order.push(fetch.primary);
    let next = order.into_iter().find(|source| {
        let progress = &fetch.transfer.sources[*source];
        !suspects.tried.contains(source) && progress.delivered().total() > longhaul_core::units::Bytes::ZERO
    });
    let Some(suspect) = next.filter(|&suspect| has_others(fetch, suspects, suspect)) else { return Ok(None) };
    suspects.tried.push(suspect);
    suspects.suspected = Some(suspect);
    let reason = format!("the file has the checksum {found}: what this source sent is fetched from others");
    warn(fetch, suspect, reason);
    for range in fetch.transfer.sources[suspect].forget_delivered().iter() {
        requeue(fetch, range)?;
    }
    Ok(Some(Verdict::FetchAgain))
}

/// Returns whether another source can deliver what `source` has sent.
fn has_others(fetch: &Fetch<'_>, suspects: &Suspects, source: usize) -> bool {
    let is_usable = |other: usize| suspects.trusted[other] && fetch.transfer.sources[other].is_usable();
    (0..fetch.sources.len()).any(|other| other != source && is_usable(other))
}

fn drop_source(fetch: &Fetch<'_>, suspects: &mut Suspects, liar: usize, reason: String) {
    suspects.trusted[liar] = false;
    warn(fetch, liar, reason);
}

fn warn(fetch: &Fetch<'_>, source: usize, reason: String) {
    let url = fetch.sources[source].shown().to_owned();
    fetch.transfer.emit(&Event::Warning(Warning::SourceDropped { url, reason }));
}

fn requeue(fetch: &Fetch<'_>, range: ByteRange) -> Result<(), TransferError> {
    fetch.transfer.pipeline.forget(range)?;
    fetch.transfer.schedule.change(|schedule| schedule.requeue(range));
    Ok(())
}

fn overlaps(set: &RangeSet, range: ByteRange) -> bool {
    set.iter().any(|other| other.overlaps(range))
}
