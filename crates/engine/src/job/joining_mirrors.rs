//! Adds mirrors: each is described and compared before its streams start. The next piece goes to
//! whichever stream is idle ([`longhaul_core::schedule`]).

use std::time::Duration;

use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::fetch::Fetch;
use super::open;
use crate::source::{DescribeRequest, Description};
use crate::streams::{CountStart, Starter, StreamSet, chosen};
use crate::threads::spawn_guarded;
use crate::transfer::SourceLiveness;
use crate::transfer::error::TransferError;

/// The length of the sample that is compared with the bytes of another URL.
pub(super) const SAMPLE: Bytes = Bytes::kib(64);
/// The interval at which to check whether the first bytes are written.
const SAMPLE_LOOK: Duration = Duration::from_millis(20);

/// Describes a mirror that is counted as joining, on a thread of its own, and starts its streams if
/// it has the same file.
pub(super) fn start_joining<'scope>(
    fetch: &'scope Fetch<'_>,
    set: &'scope StreamSet<'_>,
    starter: Starter<'scope, '_>,
) {
    let threads = starter.threads;
    let join = move || {
        let described = describe(fetch, set);
        if let Ok(Some(description)) = &described {
            set.progress().set_liveness(SourceLiveness::Usable);
            let pipeline = fetch.pipeline;
            let left = pipeline.size().unwrap_or_default() - pipeline.written();
            let options = &fetch.job.options.transfer;
            let start = CountStart::of_fetch(fetch.sources[set.index], description, false, left);
            let control = chosen(options.streams, &options.stream_cap, &start);
            // The result is not stored: the mirror's streams shared this host's link with others.
            control.start(set, starter);
        }
        set.round.running.set_joining(false);
        if let Err(refusal) = described {
            drop_mirror(set, refusal);
        }
    };
    let fail = || set.round.end.fail(TransferError::panicked("the thread of a mirror"));
    if let Err(error) = spawn_guarded(threads, "mirror", join, fail) {
        set.round.running.set_joining(false);
        drop_mirror(set, failed(error));
    }
}

/// What is known of a mirror that is not used, and the reason.
type MirrorRefusal = (SourceLiveness, String);

fn failed(reason: impl ToString) -> MirrorRefusal {
    (SourceLiveness::Failed, reason.to_string())
}

fn drop_mirror(set: &StreamSet<'_>, (liveness, reason): MirrorRefusal) {
    set.drop_source(liveness);
    let url = set.peer.shown().to_owned();
    set.round.transfer.emit(&Event::Warning(Warning::SourceDropped { url, reason }));
}

/// Returns the mirror's description if it has the same file; `None` if the transfer ends first.
fn describe(fetch: &Fetch<'_>, set: &StreamSet<'_>) -> Result<Option<Description>, MirrorRefusal> {
    let emit = |event: &Event| fetch.transfer.emit(event);
    let finished = &set.round.end.finished;
    let request = DescribeRequest {
        resume: None,
        at_most: Some(SAMPLE),
        left: None,
        waits: true,
        // A mirror without ranges is of no use.
        falls_back: false,
        cancel: finished,
        emit: &emit,
    };
    let source = fetch.sources[set.index];
    let described = source.describe(&request);
    source.abandon();
    let description = match described {
        Err(error) if error.cause == Cause::Interrupted => return Ok(None),
        described => described.map_err(failed)?,
    };
    if description.file.size != fetch.pipeline.size() {
        let shown = |size: Option<Bytes>| {
            size.map_or_else(|| "an unknown size".to_owned(), |size| format!("{} bytes", size.get()))
        };
        let (theirs, ours) = (shown(description.file.size), shown(fetch.pipeline.size()));
        return Err(failed(format!("its file has {theirs}, not {ours}")));
    }
    let Some(identity) = description.file.identity.clone().filter(|_| description.combines_answers()) else {
        return Err(failed("it answers no ranges under a strong validator"));
    };
    // A digest proves only the complete file, and cannot separate the bytes of two builds in a
    // partial file.
    match has_same_bytes(fetch, set) {
        Ok(true) => {}
        _ if finished.is_cancelled() => return Ok(None),
        // The bytes that are there may be wrong themselves: a digest decides.
        Ok(false) => {
            let reason = "its bytes differ from those that are there".to_owned();
            return Err((SourceLiveness::Unproved, reason));
        }
        Err(error) => return Err(failed(error)),
    }
    if let Some(url) = fetch.job.urls.get(set.index) {
        fetch.pipeline.add_source(open::journal_source(url, identity));
    }
    Ok(Some(description))
}

/// Compares a range of the mirror's file with the first bytes written; returns `false` also if the
/// transfer ends first.
fn has_same_bytes(fetch: &Fetch<'_>, set: &StreamSet<'_>) -> Result<bool, Failure> {
    let finished = &set.round.end.finished;
    let part = loop {
        let written = fetch.pipeline.written_ranges();
        let alone = set.round.running.count() == 0;
        let enough = written.total() >= fetch.pipeline.size().unwrap_or_default().min(SAMPLE) || alone;
        match sample_of(&written, SAMPLE).filter(|_| enough) {
            Some(part) => break part,
            // No other source has delivered bytes that this mirror's bytes could be mixed with.
            None if may_join_alone(fetch, set) => return Ok(true),
            None => {}
        }
        if finished.sleep(SAMPLE_LOOK) {
            return Ok(false);
        }
    };
    let theirs = fetch.sources[set.index].sample(part, finished)?;
    // The writer reports a range that cannot be read.
    Ok(fetch.pipeline.read_at(part).is_ok_and(|ours| agrees(&theirs, &ours)))
}

/// Lets one mirror join without comparison if no stream runs and no bytes exist to compare; returns
/// whether it may join.
fn may_join_alone(fetch: &Fetch<'_>, set: &StreamSet<'_>) -> bool {
    let (running, pipeline) = (&set.round.running, fetch.pipeline);
    // Segments passed to the writers by ended streams count as existing bytes.
    let alone = running.count() == 0 && pipeline.drain();
    if !alone || pipeline.written() > Bytes::ZERO {
        return false;
    }
    let mut joined_alone = running.joined_alone.lock();
    let free = joined_alone.is_none_or(|joined| fetch.transfer.sources[joined].has_failed());
    if free {
        *joined_alone = Some(set.index);
    }
    free
}

/// Returns whether a sample, which a server may have cut short, agrees with the local bytes.
pub(super) fn agrees(sample: &[u8], ours: &[u8]) -> bool {
    !sample.is_empty() && ours.starts_with(sample)
}

/// Chooses a written range to compare: the last `most` bytes of a range, because files of one kind
/// often start alike.
pub(super) fn sample_of(written: &RangeSet, most: Bytes) -> Option<ByteRange> {
    let long = written.iter().filter(|range| range.len() >= most).last();
    let range = long.or_else(|| written.iter().last())?;
    Some(ByteRange::new(range.end().saturating_sub(most.get()).max(range.start()), range.end()))
}
