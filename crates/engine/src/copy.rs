//! Copies a local file: as a fetch does it, without a network.
//!
//! The kernel copies (`copy_file_range`): within a file system that shares blocks, or on a file
//! server that copies by itself, no byte passes through this host. Where it cannot, the bytes are
//! read and written.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::advice::{Finding, LimitedBy, Shares};
use longhaul_core::event::{ByteProgress, Done, Event, JobObserver, Progress};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::units::{Bytes, Rate};
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::cancel::Cancel;
use crate::pending_steps::PendingSteps;
use crate::rate_limit::{RateLimit, wait_for_limit};
use crate::send::SourceFile;
use crate::sink::directory::Directory;
use crate::sink::output::Output;
use crate::sink::output_error::OutputError;
use crate::sink::part_file::PartFile;
use crate::transfer::error::TransferError;

/// The most bytes that the kernel copies at once: a fifth of a second at 100 MB/s, after which a
/// cancellation is seen.
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
    /// The file, watched by `steps`; it must not change until the end.
    pub source: &'a SourceFile,
    /// The directory that the destination cannot leave.
    pub root: Arc<Directory>,
    /// The destination below `root`. One copy at a time has a name: late bytes of another one would
    /// not be those of this file.
    pub path: PathBuf,
    /// The rate limit, shared with other transfers.
    pub limit: Option<RateLimit>,
    /// Shows the steps, each of which waits for the file system of the source or the destination.
    pub steps: &'a PendingSteps,
}

/// Copies a file; returns once it is synced under its final name, with the time of its source.
///
/// # Errors
/// [`TransferError`]. Nothing is kept of the file.
pub fn copy(
    request: &CopyRequest<'_>,
    observer: JobObserver<'_>,
    cancel: &Cancel,
) -> Result<Done, TransferError> {
    let output = Output::Beneath { root: Arc::clone(&request.root), path: request.path.clone() };
    let part = request.steps.during(&request.root.path_of(request.path.as_os_str()), || {
        let mut part = output.prepare()?.open(None)?;
        // Before its first byte, and so in the end.
        let mode = request.source.metadata().permissions().mode();
        part.limit_mode(mode).map_err(|source| failed(&part, "set the mode of", source))?;
        Ok::<_, TransferError>(part)
    })?;
    let copied = Copying { request, observer, cancel, part: &part, started: Instant::now() }.run();
    copied.inspect_err(|_| request.steps.during(part.path(), || part.abandon()))
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
    fn run(&self) -> Result<Done, TransferError> {
        let source = self.request.source;
        let size = Bytes::new(source.metadata().len());
        let (steps, path) = (self.request.steps, self.part.path());
        steps.during(path, || self.part.reserve(size))?;
        self.emit(&Event::Opened {
            path: self.part.target().to_owned(),
            size: Some(size),
            resumed: Bytes::ZERO,
            resumable: false,
            writer: WRITER.into(),
        });
        let held_back = self.copy(size)?;
        source.check().map_err(|_| self.changed())?;
        let finished = steps.during_sync(path, size, || {
            if let Ok(modified) = source.metadata().modified() {
                self.part.set_modified(modified).map_err(|source| self.failed("set the time of", source))?;
            }
            self.part.finish(true)
        })?;
        finished.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let time = self.started.elapsed();
        let shares =
            Shares::of([(LimitedBy::Disk, time.saturating_sub(held_back)), (LimitedBy::Limit, held_back)]);
        let limit = shares.ranked().first().map_or(LimitedBy::Disk, |(limit, _)| *limit);
        Ok(Done {
            path: finished.path,
            bytes: size,
            time,
            goodput: Rate::over(size, time),
            finding: Finding { limit, shares, ..Finding::default() },
            ..Done::default()
        })
    }

    /// Copies the content; returns for how long the limit has held it back.
    fn copy(&self, size: Bytes) -> Result<Duration, TransferError> {
        let (mut at, held_back) = (0, Cell::new(Duration::ZERO));
        let (mut buffer, mut reported) = (Vec::new(), self.started);
        self.report(size, at);
        while at < size.get() {
            if self.cancel.is_cancelled() {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted").into());
            }
            let limit = self.request.limit.as_ref();
            let left = usize::try_from(size.get() - at).unwrap_or(usize::MAX).min(MAX_STEP);
            let step = limit.map_or(left, |limit| limit.read_at_most(left));
            let path = self.request.source.path();
            let copied = self.request.steps.during(path, || self.step(at, step, &mut buffer))?;
            at += copied;
            if let Some(limit) = limit {
                let wait = limit.read(Bytes::new(copied));
                wait_for_limit(self.cancel, wait, |waited| held_back.set(held_back.get() + waited));
            }
            if reported.elapsed() >= PROGRESS_INTERVAL {
                reported = Instant::now();
                self.report(size, at);
            }
        }
        self.report(size, at);
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
                // Other file systems, a kernel that cannot, or an error that reading or writing
                // explains.
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

    fn report(&self, size: Bytes, at: u64) {
        let moved = Bytes::new(at);
        let bytes = ByteProgress { present: moved, received: moved, written: moved, size: Some(size) };
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
        failed(self.part, operation, source)
    }
}

fn failed(part: &PartFile, operation: &'static str, source: io::Error) -> OutputError {
    OutputError::Write { operation, path: part.path().to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::path::Path;

    use longhaul_core::event::JobTag;

    use super::*;

    fn copied(from: &Path, to: &Path, cancel: &Cancel) -> Result<Done, TransferError> {
        let source = SourceFile::open(from).unwrap();
        let root = Arc::new(Directory::open(to.parent().unwrap()).unwrap());
        let path = to.file_name().unwrap().into();
        let steps = &PendingSteps::default();
        let request = CopyRequest { source: &source, root, path, limit: None, steps };
        copy(&request, JobObserver::new(&JobTag::of_all(), &()), cancel)
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
                let outcome = copied(&from, &to, &Cancel::new()).unwrap();
                assert_eq!((outcome.bytes.get(), outcome.resumed), (content.len() as u64, Bytes::ZERO));
                assert!(fs::read(&to).unwrap() == content);
                let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
                assert_eq!(modified(&from), modified(&to));
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no partial file stays");
    }

    #[test]
    fn copy_has_no_permissions_that_its_source_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "abc").unwrap();
        for (mode, allowed) in [(0o600, 0o600), (0o640, 0o640), (0o777, 0o666), (0o400, 0o600)] {
            fs::set_permissions(&from, Permissions::from_mode(mode)).unwrap();
            copied(&from, &to, &Cancel::new()).unwrap();
            let copy = fs::metadata(&to).unwrap().permissions().mode() & 0o7777;
            assert!(copy & !allowed == 0 && copy & 0o600 == 0o600, "{mode:o}: {copy:o}");
        }
    }

    #[test]
    fn cancelled_copy_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("from"), "abc").unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = copied(&dir.path().join("from"), &dir.path().join("to"), &cancel);
        assert_eq!(ended.unwrap_err().kind(), FailureKind::Interrupted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
