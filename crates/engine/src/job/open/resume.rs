//! Describes a file by a source, and matches it with the partial file of an earlier run.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::identity::Identity;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use url::Url;

use super::{Opener, journal_source};
use crate::job::joining_mirrors::{SAMPLE, agrees, sample_of};
use crate::sink::file_slice::FileSlice;
use crate::sink::journal::{Journal, SourceMatch, StoredJournal};
use crate::sink::part_file::PartFile;
use crate::source::{DescribeRequest, Description, Resume, Source};
use crate::transfer::error::TransferError;

/// The length of each source's first request if several sources share the file, before its size is
/// known.
const FIRST_OF_SEVERAL: Bytes = Bytes::mib(16);
/// The time limit of a source for describing the file while another source is left: ten round trips
/// of 300 ms and more.
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// A described file, and its ranges on the disk.
pub(super) struct DescribedFile {
    pub(super) description: Description,
    pub(super) journal: Option<Journal>,
    pub(super) committed: RangeSet,
}

impl Opener<'_> {
    /// Describes the file by one source, and finds its ranges on the disk.
    ///
    /// # Errors
    /// [`TransferError::OtherFile`] if the partial file belongs to another file; the errors of the
    /// source and the output.
    pub(super) fn begin(
        &mut self,
        index: usize,
        source: &dyn Source,
        waits: bool,
    ) -> Result<DescribedFile, TransferError> {
        let url = &self.job.urls[index];
        let mut prior = self.prior()?;
        let mut resume = match self.slice() {
            Some((slice, committed)) => {
                let gap = committed.gaps(slice.range).first().copied().unwrap_or(slice.range);
                Some(Resume { gap, identity: Identity::AssumedUnchanged })
            }
            None => prior.as_ref().map(|journal| self.resume_of(journal, url)),
        };
        let is_slice = self.slice().is_some();
        let mut shared = self.job.urls.len() > 1;
        loop {
            let at_most = shared.then_some(FIRST_OF_SEVERAL);
            let limited = self.cancel.child_until(Instant::now() + TRY_LIMIT);
            let cancel = if waits { self.cancel } else { &limited };
            let left = self.left(prior.as_ref());
            let request = DescribeRequest {
                resume: resume.clone(),
                at_most,
                left,
                waits,
                falls_back: waits && !is_slice,
                cancel,
                emit: self.emit,
            };
            let description = match (source.describe(&request), &prior) {
                (Err(error), _) if error.cause == Cause::Interrupted && !self.cancel.is_cancelled() => {
                    return Err(Failure::unanswered(source.shown(), TRY_LIMIT).into());
                }
                // The server's file is shorter than the partial file.
                (Err(error), Some(journal)) if error.cause == Cause::OtherFile => {
                    return Err(self.other_file(journal, error.to_string()));
                }
                (Err(error), _)
                    if error.cause == Cause::NotModified
                        && self.job.options.existing.newer_than.is_some() =>
                {
                    return Err(TransferError::NotModified);
                }
                (described, _) => described?,
            };
            let here = self.job.options.existing.newer_than.as_ref();
            if here.is_some_and(|here| {
                here.is_as_new_as(description.file.modified, description.file.identity.as_ref())
            }) {
                source.abandon();
                return Err(TransferError::NotModified);
            }
            self.check_description(source, &description)?;
            if let Some((slice, committed)) = self.slice() {
                return begin_slice(source, slice, committed, description);
            }
            if !shared && description.ranges.whole && description.names_proved_duplicates() {
                // The response is the whole file: ask again, so that duplicates can share the work.
                source.abandon();
                shared = true;
                continue;
            }
            if self.part.is_none() {
                self.part = Some(self.open_output(source, &description)?);
                prior = self.prior()?;
            }
            let Some(journal) = prior.take() else { return Ok(self.fresh(url, description)) };
            let size = description.file.size.unwrap_or_default();
            let checksum = self.job.expected.checksums.first();
            let matched =
                journal.match_source(url.as_str(), size, description.file.identity.as_ref(), checksum);
            let of_gap =
                resume.as_ref().is_some_and(|resume| resume.gap.start() == description.ranges.first.start());
            match matched {
                SourceMatch::Other => return Err(self.other_file(&journal, shown(&description))),
                // The name came with this response, and a partial file of that name exists: request
                // only the gap.
                _ if resume.is_none() => {
                    source.abandon();
                    resume = Some(self.resume_of(&journal, url));
                    prior = Some(journal);
                }
                SourceMatch::FreshUrl if !self.has_same_bytes(source, &journal)? => {
                    let now = format!("{} of the same size, with other bytes", shown(&description));
                    return Err(self.other_file(&journal, now));
                }
                // The server ignored If-Range, or the file has another ETag at this URL.
                _ if description.ranges.whole
                    && resume.as_ref().is_some_and(|r| r.identity.if_range().is_some()) =>
                {
                    source.abandon();
                    let gap = self.resume_of(&journal, url).gap;
                    resume = Some(Resume { gap, identity: Identity::AssumedUnchanged });
                    prior = Some(journal);
                }
                _ if description.ranges.whole || !of_gap => {
                    let reason = "this server answers no ranges".to_owned();
                    (self.emit)(&Event::Warning(Warning::StartingOver { reason }));
                    return Ok(self.fresh(url, description));
                }
                SourceMatch::Same | SourceMatch::FreshUrl => {
                    let (committed, mut journal) = (journal.committed.clone(), journal);
                    if let Some(identity) = description.file.identity.clone() {
                        journal.add_source(journal_source(url, identity));
                    }
                    return Ok(DescribedFile { description, journal: Some(journal), committed });
                }
            }
        }
    }

    fn fresh(&self, url: &Url, description: Description) -> DescribedFile {
        let known = description.file.size.zip(description.file.identity.clone());
        let journal = known.map(|(size, identity)| {
            Journal::new(
                size,
                vec![journal_source(url, identity)],
                self.job.expected.checksums.first().cloned(),
            )
        });
        DescribedFile { description, journal, committed: RangeSet::new() }
    }

    /// Reads the journal of an earlier run; `None` if it has no committed bytes or resuming is
    /// disabled.
    fn prior(&self) -> Result<Option<Journal>, TransferError> {
        let Some(part) = self.part.as_ref().filter(|_| self.job.options.transfer.resume) else {
            return Ok(None);
        };
        Ok(match part.journal()? {
            StoredJournal::Sound(journal) => Some(journal).filter(|j| j.committed.total() > Bytes::ZERO),
            StoredJournal::Damaged { why } => {
                (self.emit)(&Event::Warning(Warning::StartingOver { reason: why }));
                None
            }
            StoredJournal::Absent => None,
        })
    }

    /// Returns the resume request: the first gap, if the file is unchanged.
    fn resume_of(&self, journal: &Journal, url: &Url) -> Resume {
        let size = journal.size.get();
        // If all bytes are there, the last byte is requested to check whether the file is
        // unchanged.
        let last = ByteRange::new(size.saturating_sub(1), size);
        let gap = journal.committed.gaps(ByteRange::new(0, size)).first().copied().unwrap_or(last);
        let known = journal.source(url.as_str()).or_else(|| journal.sources.last());
        let identity = known.map_or(Identity::AssumedUnchanged, |source| source.identity.clone());
        Resume { gap, identity }
    }

    /// Returns the bytes left to fetch, if the file is of known size.
    fn left(&self, prior: Option<&Journal>) -> Option<Bytes> {
        if let Some((slice, committed)) = self.slice() {
            return Some(slice.size - committed.total());
        }
        prior.map(|journal| journal.size - journal.committed.total()).or(self.job.expected.size)
    }

    /// Compares bytes of the partial file with those of a fresh URL: an equal ETag at another URL
    /// is no proof.
    fn has_same_bytes(&self, source: &dyn Source, journal: &Journal) -> Result<bool, TransferError> {
        let (Some(part), Some(sample)) = (&self.part, sample_of(&journal.committed, SAMPLE)) else {
            return Ok(false);
        };
        let theirs = match source.sample(sample, self.cancel) {
            Err(error) if error.cause == Cause::OtherFile => return Ok(false),
            theirs => theirs?,
        };
        let mut ours = vec![0; sample.len().as_usize()];
        let read = part.file().read_exact_at(&mut ours, sample.start());
        Ok(read.is_ok() && agrees(&theirs, &ours))
    }

    fn other_file(&self, journal: &Journal, now: String) -> TransferError {
        let was = journal.sources.last().map_or_else(String::new, |source| {
            format!("{} ({}), {} bytes", source.url, source.identity, journal.size.get())
        });
        let path = self.part.as_ref().map_or(Path::new(""), PartFile::path).display();
        let kept = journal.committed.total();
        let message = format!(
            "{path} holds {kept} of another file: {was}; now the server sends {now}; use --no-resume to give up what is there, or another \
             name with -o"
        );
        TransferError::OtherFile(Failure::new(FailureKind::Data, message))
    }

    /// Drops the committed ranges if the earlier run found that they do not have the checksum.
    pub(super) fn drop_refuted(
        &self,
        journal: &mut Journal,
        committed: &mut RangeSet,
        wanted: Option<&Checksum>,
    ) {
        if let Some(refuted) = journal.refuted.take().filter(|refuted| Some(refuted) == wanted) {
            let reason = format!("what an earlier run has fetched does not have the checksum {refuted}");
            (self.emit)(&Event::Warning(Warning::StartingOver { reason }));
            *committed = RangeSet::new();
        }
    }
}

/// Begins a range of a shared file, as if a run that has fetched all other ranges were resumed.
fn begin_slice(
    source: &dyn Source,
    slice: &FileSlice,
    committed: RangeSet,
    description: Description,
) -> Result<DescribedFile, TransferError> {
    let refused = |message: String| {
        source.abandon();
        Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into()
    };
    let shown = source.shown();
    let first = committed.gaps(slice.range).first().map(|gap| gap.start());
    let is_range = description.combines_answers() && Some(description.ranges.first.start()) == first;
    let Some(identity) = description.file.identity.as_ref().filter(|_| is_range) else {
        return Err(refused(format!(
            "{shown} answers no ranges, or states neither a strong entity tag nor a time that proves them to be of one \
             file; plan it in one unit, by a larger --unit-size"
        )));
    };
    if let Some(fixed) = slice.fix_identity(identity)? {
        return Err(refused(format!(
            "{shown} was changed: it is {identity}, and other ranges of it were {fixed}"
        )));
    }
    Ok(DescribedFile { description, journal: None, committed })
}

fn shown(description: &Description) -> String {
    let identity =
        description.file.identity.as_ref().map_or_else(String::new, |identity| format!(" ({identity})"));
    format!("{}{identity}", description.file.shown_content)
}
