//! Verifies the fetched file, and identifies the source of wrong bytes.

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::fetch::Fetch;
use crate::cancel::Cancel;
use crate::digest::{FileDigests, WantedDigests};
use crate::transfer::error::TransferError;

/// Verifies the file after each round; tracks which sources may be used, and which may have sent
/// wrong bytes.
pub(super) struct Verifier<'a> {
    fetch: &'a Fetch<'a>,
    cancel: &'a Cancel,
    trusted: Vec<bool>,
    /// The source that is excluded from the current round because its bytes may be wrong.
    suspected: Option<usize>,
    /// Sources that were excluded in earlier rounds because of the whole file's digest.
    tried: Vec<usize>,
    /// The remaining rounds for pieces that several sources delivered together.
    doubts: usize,
    /// The remaining rounds for fetching wrong pieces again from the source that sent them, if no
    /// other is left.
    retries: usize,
}

/// The number of repeated requests for wrong pieces to the only source: a faulty path may damage a
/// piece twice.
const RETRIES: usize = 2;

/// The fate of a file with a wrong checksum that could not be resumed.
const NOTHING_KEPT: &str = "nothing is kept";
/// The fate of a file that was already written to a stream.
const SENT: &str = "all of it has gone to the stream: what reads it must throw it away";
/// The fate of a file that a run that expects the same checksum fetches anew.
const FETCHED_ANEW: &str =
    "it is kept for another try with the right checksum; the next run with the same one fetches it anew";
/// The fate of a file whose source publishes the same piece digests.
const SAME_AT_SOURCE: &str = "the server publishes the same digests of its pieces: the checksum is of another file. It is kept for \
                              another try with the right checksum";

/// The result of verification.
pub(super) enum Verification {
    /// The file is correct; contains its digest, if one was requested.
    Correct(Option<Checksum>),
    /// These ranges are wrong, and can be fetched again from trusted sources. The error applies if
    /// those cannot deliver the bytes.
    FetchAgain(RangeSet, TransferError),
}

impl<'a> Verifier<'a> {
    pub(super) fn new(fetch: &'a Fetch<'a>, cancel: &'a Cancel) -> Self {
        let sources = fetch.sources.len();
        Self {
            fetch,
            cancel,
            trusted: vec![true; sources],
            suspected: None,
            tried: Vec::new(),
            doubts: 2 * sources,
            retries: RETRIES,
        }
    }

    /// Returns whether a source may be used in the current round.
    pub(super) fn is_trusted(&self, source: usize) -> bool {
        self.trusted[source] && self.suspected != Some(source)
    }

    /// Returns whether another source can deliver what `source` sent.
    fn has_another(&self, source: usize) -> bool {
        let may_deliver =
            |other: usize| self.trusted[other] && !self.fetch.transfer.sources[other].has_failed();
        (0..self.trusted.len()).any(|other| other != source && may_deliver(other))
    }

    /// Reads the file from the disk for these digests.
    fn read_back(&self, wanted: WantedDigests) -> Result<FileDigests, TransferError> {
        let read = self.fetch.pipeline.read_back(wanted, self.cancel)?;
        read.ok_or_else(|| self.fetch.interrupted())
    }

    /// Verifies the file; discards wrong bytes if they can be fetched again.
    pub(super) fn verify(&mut self) -> Result<Verification, TransferError> {
        let (fetch, pipeline) = (self.fetch, self.fetch.pipeline);
        let wanted = fetch.expected.digests();
        if wanted.is_empty() {
            return Ok(Verification::Correct(None));
        }
        fetch.transfer.emit(&Event::Verifying);
        let found = pipeline.digests(wanted, self.cancel)?;
        let FileDigests { whole, pieces } = found.ok_or_else(|| fetch.interrupted())?;
        if let Some(expected) = &fetch.expected.pieces {
            let wrong = self.wrong_pieces(expected, &pieces)?;
            if !wrong.is_empty() && pipeline.part().is_stream() {
                return Err(self.pieces_refuted(wrong.len(), &wrong.into_iter().collect(), "its metalink"));
            }
            if !wrong.is_empty() {
                return self.blame_for_pieces(&wrong, "its metalink");
            }
        }
        let stated = match fetch.expected.stated_by {
            Some(algorithm) => Some(self.stated_digest(algorithm)?),
            None => None,
        };
        if let Some(digest) = self.alternative_digest(whole.as_ref())? {
            return Ok(Verification::Correct(Some(digest)));
        }
        match (fetch.expected.checksums.first().or(stated.as_ref()), whole) {
            (Some(wanted), Some(found)) if found != *wanted && pipeline.part().is_stream() => {
                Err(self.checksum_refuted(wanted, &found, SENT))
            }
            (Some(wanted), Some(found)) if found != *wanted => self.compare_with_sources(wanted, found),
            (Some(wanted), None) => {
                let path = pipeline.part().path().display();
                Err(TransferError::internal(&format!("{path}: no {} digest was computed", wanted.algorithm)))
            }
            (_, whole) => Ok(Verification::Correct(whole)),
        }
    }

    /// Returns the file's digest if it is a less likely one of those that are expected, and not
    /// `whole`.
    fn alternative_digest(&self, whole: Option<&Checksum>) -> Result<Option<Checksum>, TransferError> {
        let (pipeline, expected) = (self.fetch.pipeline, &self.fetch.expected);
        let is_refuted =
            whole.is_some() && whole != expected.checksums.first() && !pipeline.part().is_stream();
        for checksum in expected.checksums.iter().skip(1).filter(|_| is_refuted) {
            let wanted = WantedDigests { whole: Some(checksum.algorithm), pieces: None };
            let read = self.read_back(wanted)?;
            if read.whole.as_ref() == Some(checksum) {
                return Ok(read.whole);
            }
        }
        Ok(None)
    }

    /// Requests the digest from the source that described the file.
    fn stated_digest(&self, algorithm: Algorithm) -> Result<Checksum, TransferError> {
        let source = self.fetch.sources[self.fetch.primary];
        match source.digest(algorithm, self.cancel) {
            Ok(Some(digest)) => Ok(digest),
            Ok(None) => {
                let message = format!("{} states no {algorithm} digest of the file", source.shown());
                Err(Failure::new(FailureKind::Data, message).into())
            }
            Err(error) if error.cause == Cause::Interrupted => Err(self.fetch.interrupted()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the pieces whose digest differs from the metalink's.
    fn wrong_pieces(&self, expected: &Pieces, found: &[Checksum]) -> Result<Vec<ByteRange>, TransferError> {
        let pipeline = self.fetch.pipeline;
        // The parser has checked a metalink that states the size.
        expected.differing(found, pipeline.written()).ok_or_else(|| {
            let message = format!(
                "{} has another number of pieces than the metalink gives digests of: {}, not {}",
                pipeline.part().path().display(),
                found.len(),
                expected.digests.len()
            );
            Failure::new(FailureKind::Data, message).into()
        })
    }

    /// Creates the error of pieces whose digests differ from those of `stated_by`, if no source is
    /// left to fetch them from.
    fn pieces_refuted(&self, pieces: usize, wrong: &RangeSet, stated_by: &str) -> TransferError {
        let path = self.fetch.pipeline.part().path().display();
        let message = format!(
            "{path} has {pieces} pieces with other digests than {stated_by} states: {wrong}; they are fetched anew by the next run"
        );
        Failure::new(FailureKind::Data, message).into()
    }

    /// Creates the error of a file whose digest differs from the expected one; `fate` is that of
    /// the partial file.
    fn checksum_refuted(&self, wanted: &Checksum, found: &Checksum, fate: &str) -> TransferError {
        let path = self.fetch.pipeline.part().path().display();
        let by_server =
            if self.fetch.job.expected.checksums.is_empty() { ", as its server states" } else { "" };
        let message = format!("{path} has the checksum {found}, not {wanted}{by_server}; {fate}");
        Failure::new(FailureKind::Data, message).into()
    }

    /// Finds the pieces of a file with a wrong checksum that differ from those of its sources. If
    /// no source publishes piece digests, or no piece differs, excludes one source after the other.
    fn compare_with_sources(
        &mut self,
        wanted: &Checksum,
        mut found: Checksum,
    ) -> Result<Verification, TransferError> {
        let pipeline = self.fetch.pipeline;
        let mut is_fetched_anew = pipeline.is_resumable();
        let mut fate = if is_fetched_anew { FETCHED_ANEW } else { NOTHING_KEPT };
        if let Some((source, published)) = self.published_pieces()? {
            let both = WantedDigests {
                whole: Some(wanted.algorithm),
                pieces: Some((published.algorithm, published.length)),
            };
            // From here on, the bytes on the disk are verified, not those hashed in passing.
            let on_disk = self.read_back(both)?;
            if on_disk.whole.as_ref() == Some(wanted) {
                return Ok(Verification::Correct(on_disk.whole));
            }
            found = on_disk.whole.unwrap_or(found);
            match published.differing(&on_disk.pieces, pipeline.written()) {
                Some(wrong) if !wrong.is_empty() => {
                    return self.blame_for_pieces(&wrong, self.fetch.sources[source].shown());
                }
                Some(_) if is_fetched_anew => (fate, is_fetched_anew) = (SAME_AT_SOURCE, false),
                _ => {}
            }
        }
        let mismatch = self.checksum_refuted(wanted, &found, fate);
        let next = self.suspect_next(&found, mismatch);
        if next.is_err() && is_fetched_anew {
            pipeline.refute(wanted.clone())?;
        }
        next
    }

    /// Returns the first published piece digests among the sources in use, with the index of the
    /// source.
    fn published_pieces(&self) -> Result<Option<(usize, Pieces)>, TransferError> {
        let fetch = self.fetch;
        let others = (0..fetch.sources.len()).filter(|&source| source != fetch.primary);
        let in_use = |source: &usize| self.is_trusted(*source) && fetch.transfer.sources[*source].is_usable();
        for source in std::iter::once(fetch.primary).chain(others).filter(in_use) {
            match fetch.sources[source].published_pieces(self.cancel) {
                Ok(Some(pieces)) => return Ok(Some((source, pieces))),
                Ok(None) => {}
                Err(error) if error.cause == Cause::Interrupted => return Err(fetch.interrupted()),
                // The checksum mismatch remains, even if the wrong piece is not found.
                Err(error) => tracing::warn!("the wrong part of the file is not found: {error}"),
            }
        }
        Ok(None)
    }

    /// Forgets pieces that are wrong by the digests of `stated_by`, and excludes the source that
    /// sent them if another is left.
    ///
    /// A source that sent all bytes of a wrong piece is dropped. If several sources sent a piece
    /// together, the one with most bytes is excluded only from the next round, because another one
    /// may be wrong. The request is repeated if there is only one source.
    fn blame_for_pieces(
        &mut self,
        wrong: &[ByteRange],
        stated_by: &str,
    ) -> Result<Verification, TransferError> {
        let fetch = self.fetch;
        let trusted = || (0..fetch.sources.len()).filter(|&source| self.trusted[source]);
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
        let culprit = trusted().filter(|&source| whole(source) > 0).max_by_key(|&source| whole(source));
        let most = trusted().filter(|&source| bytes(source) > 0).max_by_key(|&source| bytes(source));
        let message =
            |pieces: usize| format!("{pieces} of its pieces have another digest than {stated_by} states");
        self.suspected = None;
        let again = match (culprit, most) {
            (Some(culprit), _) if self.has_another(culprit) => {
                self.trusted[culprit] = false;
                self.warn(culprit, message(whole(culprit)));
                true
            }
            (None, Some(source)) if self.has_another(source) && self.doubts > 0 => {
                self.doubts -= 1;
                self.suspected = Some(source);
                self.warn(source, message(wrong.len()));
                true
            }
            // The pieces are from an earlier run.
            (None, None) => true,
            _ => {
                // Without an identity, another response may be of another version of the file.
                let again = self.retries > 0 && fetch.description.file.identity.is_some();
                self.retries = self.retries.saturating_sub(1);
                again
            }
        };
        let (pieces, wrong): (_, RangeSet) = (wrong.len(), wrong.iter().copied().collect());
        self.forget(&wrong)?;
        let error = self.pieces_refuted(pieces, &wrong, stated_by);
        if !again {
            return Err(error);
        }
        let warning = Warning::WrongRanges { ranges: wrong.clone(), stated_by: stated_by.to_owned() };
        fetch.transfer.emit(&Event::Warning(warning));
        Ok(Verification::FetchAgain(wrong, error))
    }

    /// Excludes one source after the other, the mirrors first, and fetches its bytes from the
    /// others; fails with `mismatch` once all were tried.
    fn suspect_next(
        &mut self,
        found: &Checksum,
        mismatch: TransferError,
    ) -> Result<Verification, TransferError> {
        let fetch = self.fetch;
        let mirrors = (0..fetch.sources.len()).filter(|&source| source != fetch.primary);
        let next = mirrors.chain([fetch.primary]).find(|source| {
            let delivered = fetch.transfer.sources[*source].delivered();
            !self.tried.contains(source) && self.trusted[*source] && delivered.total() > Bytes::ZERO
        });
        let Some(suspect) = next.filter(|source| self.has_another(*source)) else {
            return Err(mismatch);
        };
        self.tried.push(suspect);
        self.suspected = Some(suspect);
        let reason =
            format!("the file has the checksum {found}: what this source sent is fetched from others");
        self.warn(suspect, reason);
        let wrong = fetch.transfer.sources[suspect].forget_delivered();
        self.forget(&wrong)?;
        Ok(Verification::FetchAgain(wrong, mismatch))
    }

    fn warn(&self, source: usize, reason: String) {
        let url = self.fetch.sources[source].shown().to_owned();
        self.fetch.transfer.emit(&Event::Warning(Warning::SourceDropped { url, reason }));
    }

    /// Marks ranges as not fetched.
    fn forget(&self, ranges: &RangeSet) -> Result<(), TransferError> {
        for range in ranges.iter() {
            self.fetch.pipeline.forget(range)?;
            self.fetch.transfer.sources.iter().for_each(|source| source.forget_delivered_in(range));
        }
        Ok(())
    }
}
