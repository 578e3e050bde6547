//! Copies a local file, or a range of one, into an output: as a fetch does it, without a network.
//!
//! The kernel copies (`copy_file_range`): within a file system that shares blocks, or on a file server that copies by itself,
//! no byte passes through this host. Where it cannot, the bytes are read and written.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use longhaul_core::advice::{Finding, LimitedBy, Shares};
use longhaul_core::event::{ByteProgress, Event, JobObserver, LossCounts, Progress};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::identity::Identity;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::cancel::Cancel;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::send::SourceFile;
use crate::sink::output::Output;
use crate::sink::output_error::OutputError;
use crate::sink::part_file::PartFile;
use crate::transfer::Outcome;
use crate::transfer::error::TransferError;

/// The most bytes that the kernel copies at once: a fifth of a second at 100 MB/s, after which a cancellation is seen.
const MAX_STEP: usize = 16 << 20;
/// The buffer where bytes are read and written.
const BUFFER: usize = 1 << 20;
/// The interval of [`Event::Progress`].
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// The name of the writer in events.
const WRITER: &str = "copy";

/// A file to copy.
#[derive(Debug)]
pub struct CopyRequest<'a> {
    /// The file; it must not change until the end.
    pub source: &'a SourceFile,
    /// The destination. Of a [slice](Output::Slice), that range is copied.
    pub output: Output,
    /// The rate limit, shared with other transfers.
    pub limit: Option<RateLimit>,
}

/// Copies a file; returns once it is synced under its final name, with the time of its source, or the range is synced.
///
/// # Errors
/// [`TransferError`]. Nothing is kept of a file; a shared file keeps what was written of the range.
pub fn copy(
    request: &CopyRequest<'_>,
    observer: JobObserver<'_>,
    cancel: &Cancel,
) -> Result<Outcome, TransferError> {
    let part = request.output.prepare()?.open(None)?;
    let copied = Copying { request, observer, cancel, part: &part, started: Instant::now() }.run();
    copied.inspect_err(|_| part.abandon())
}

/// A copy under way.
struct Copying<'a> {
    request: &'a CopyRequest<'a>,
    observer: JobObserver<'a>,
    cancel: &'a Cancel,
    part: &'a PartFile,
    started: Instant,
}

impl Copying<'_> {
    fn run(&self) -> Result<Outcome, TransferError> {
        let source = self.request.source;
        let size = Bytes::new(source.metadata().len());
        let range = match &self.request.output {
            Output::Slice(slice) => {
                let identity = identity_of(source);
                if let Some(fixed) = slice.fix_identity(&identity)? {
                    let path = source.path().display();
                    let message = format!(
                        "{path} was changed: it is of {identity}, and other ranges of it were {fixed}"
                    );
                    return Err(Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into());
                }
                slice.range
            }
            _ => ByteRange::with_len(0, size),
        };
        self.part.reserve(size)?;
        self.emit(&Event::Opened {
            path: self.part.target().to_owned(),
            size: Some(size),
            resumed: Bytes::ZERO,
            resumable: false,
            writer: WRITER.into(),
        });
        let held_back = self.copy(range)?;
        source.check().map_err(|_| self.changed())?;
        if !self.part.is_slice()
            && let Ok(modified) = source.metadata().modified()
        {
            self.part.set_modified(modified).map_err(|source| self.failed("set the time of", source))?;
        }
        let finished = self.part.finish(true)?;
        finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let time = self.started.elapsed();
        let shares =
            Shares::of([(LimitedBy::Disk, time.saturating_sub(held_back)), (LimitedBy::Limit, held_back)]);
        let limit = shares.ranked().first().map_or(LimitedBy::Disk, |(limit, _)| *limit);
        Ok(Outcome {
            path: finished.path,
            size,
            resumed: size - range.len(),
            time,
            goodput: Rate::over(range.len(), time),
            streams: 0,
            losses: LossCounts::default(),
            digest: None,
            finding: Finding { limit, shares, ..Finding::default() },
        })
    }

    /// Copies a range; returns for how long the limit has held it back.
    fn copy(&self, range: ByteRange) -> Result<Duration, TransferError> {
        let (mut at, held_back) = (range.start(), Cell::new(Duration::ZERO));
        let (mut buffer, mut reported) = (Vec::new(), self.started);
        self.report(range, at);
        while at < range.end() {
            if self.cancel.is_cancelled() {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted").into());
            }
            let limit = self.request.limit.as_ref();
            let left = usize::try_from(range.end() - at).unwrap_or(usize::MAX).min(MAX_STEP);
            let step = limit.map_or(left, |limit| limit.read_at_most(left));
            let copied = self.step(at, step, &mut buffer)?;
            at += copied;
            if let Some(limit) = limit {
                let wait = limit.read(Bytes::new(copied));
                wait_for_limit(self.cancel, wait, |waited| held_back.set(held_back.get() + waited));
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                self.report(range, at);
            }
        }
        self.report(range, at);
        Ok(held_back.get())
    }

    /// Copies at most `step` bytes from the offset `at`; returns how many.
    fn step(&self, at: u64, step: usize, buffer: &mut Vec<u8>) -> Result<u64, TransferError> {
        let (source, target) = (self.request.source, self.part.file());
        if buffer.is_empty() {
            let (mut from, mut to) = (at, at);
            match copy_file_range(source.file(), Some(&mut from), target, Some(&mut to), step) {
                Ok(copied) if copied > 0 => return Ok(copied as u64),
                Err(Errno::INTR) => return Ok(0),
                // Other file systems, a kernel that cannot, or an error that reading or writing explains.
                _ => buffer.resize(BUFFER, 0),
            }
        }
        let step = step.min(buffer.len());
        let read = match source.file().read_at(&mut buffer[..step], at) {
            Ok(0) => return Err(self.changed().into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Ok(read) => read,
            // Not a failure of the disk that the worker writes to.
            Err(error) => {
                let message = format!("cannot read {}: {error}", source.path().display());
                return Err(Failure::new(FailureKind::NotFound, message).into());
            }
        };
        target.write_all_at(&buffer[..read], at).map_err(|source| self.failed("write", source))?;
        Ok(read as u64)
    }

    fn report(&self, range: ByteRange, at: u64) {
        let size = Bytes::new(self.request.source.metadata().len());
        let moved = Bytes::new(at - range.start());
        let present = size - range.len() + moved;
        let bytes = ByteProgress { present, received: moved, written: moved, size: Some(size) };
        let progress = Progress { bytes, ..Progress::default() };
        self.emit(&Event::Progress(Box::new(progress)));
    }

    fn emit(&self, event: &Event) {
        self.observer.on(self.started.elapsed(), event);
    }

    fn changed(&self) -> Failure {
        let path = self.request.source.path().display();
        let message = format!("{path} changed while it was copied: try again when no program writes to it");
        Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile)
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> OutputError {
        OutputError::Write { operation, path: self.part.path().to_owned(), source }
    }
}

/// Returns the identity of a file's state: its modification time, as precise as its file system states it to all hosts.
fn identity_of(source: &SourceFile) -> Identity {
    let metadata = source.metadata();
    Identity::ModificationTime(format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use longhaul_core::event::JobTag;

    use super::*;
    use crate::sink::directory::Directory;
    use crate::sink::file_slice::FileSlice;

    fn copied(from: &Path, output: Output) -> Result<Outcome, TransferError> {
        let source = SourceFile::open(from).unwrap();
        let request = CopyRequest { source: &source, output, limit: None };
        copy(&request, JobObserver::new(&JobTag::of_all(), &()), &Cancel::new())
    }

    #[test]
    fn file_is_copied_with_its_time_over_file_systems_too() {
        let (dir, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let content: Vec<u8> = (0..3_u32 << 20).map(|n| (n ^ n >> 11) as u8).collect();
        for (from, to) in [(dir.path(), dir.path()), (dir.path(), memory.path()), (memory.path(), dir.path())]
        {
            for content in [&content[..], &[]] {
                let (from, to) = (from.join("from"), to.join("to"));
                fs::write(&from, content).unwrap();
                let outcome = copied(&from, Output::File(to.clone())).unwrap();
                assert_eq!((outcome.size.get(), outcome.resumed), (content.len() as u64, Bytes::ZERO));
                assert!(fs::read(&to).unwrap() == content);
                let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
                assert_eq!(modified(&from), modified(&to));
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no partial file stays");
    }

    #[test]
    fn ranges_of_one_state_of_a_file_make_it_and_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        fs::write(&from, &content).unwrap();
        let slice = |start, end| {
            let root = Arc::new(Directory::open(dir.path()).unwrap());
            let (size, range) = (Bytes::new(content.len() as u64), ByteRange::new(start, end));
            Output::Slice(FileSlice { root, path: "to".into(), size, range, creates: true })
        };
        let outcome = copied(&from, slice(65_536, 200_000)).unwrap();
        assert_eq!(outcome.size - outcome.resumed, Bytes::new(200_000 - 65_536));
        copied(&from, slice(0, 65_536)).unwrap();
        assert!(fs::read(dir.path().join("to")).unwrap() == content);
        let file = fs::File::options().write(true).open(&from).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        match copied(&from, slice(0, 65_536)) {
            Err(TransferError::Failed(failure)) => assert_eq!(failure.cause, Cause::OtherFile, "{failure}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cancelled_copy_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("from"), "abc").unwrap();
        let source = SourceFile::open(&dir.path().join("from")).unwrap();
        let output = Output::File(dir.path().join("to"));
        let cancel = Cancel::new();
        cancel.cancel();
        let request = CopyRequest { source: &source, output, limit: None };
        let ended = copy(&request, JobObserver::new(&JobTag::of_all(), &()), &cancel);
        assert_eq!(ended.unwrap_err().kind(), FailureKind::Interrupted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
