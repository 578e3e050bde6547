//! The job of one file, or a range of one: shown, counted for the heartbeat, and judged.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::advice::LimitedBy;
use longhaul_core::event::{Done, Event, JobObserver, JobTag, Observer};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::job::TransferError;
use longhaul_engine::sink::output_error::OutputError;

use super::{WorkRun, file_failed};
use crate::explanation::HeldBy;
use crate::host_gate::Admission;
use crate::unit::FilePart;
use crate::worker::{FileEnd, FileTask, Worker};

impl WorkRun<'_> {
    /// Transfers a file, or a range of it, by `run`.
    pub(super) fn execute_job(
        &self,
        task: &FileTask,
        tag: &JobTag,
        admission: &Admission,
        run: impl Fn(JobObserver<'_>) -> Result<Done, TransferError>,
    ) -> FileEnd {
        task.begin();
        let mut end = None;
        self.display.show(tag, &mut |observer| {
            let (worker, received) = (self.worker, AtomicU64::new(0));
            let counted = CountedBytes { observer, worker, task, admission, received };
            let outcome = run(JobObserver::new(tag, &counted)).map_err(|error| {
                end = Some(self.noted(&error, task));
                Failure::new(error.kind(), error.to_string())
            })?;
            counted.count_to(outcome.bytes - outcome.resumed);
            task.explain(Self::held(&outcome, admission));
            end = Some(received_end(task, tag, &outcome));
            Ok(outcome)
        });
        end.unwrap_or_else(|| file_failed("stopped".to_owned()))
    }

    /// Returns for how long what held a file back.
    fn held(outcome: &Done, admission: &Admission) -> Vec<(HeldBy, Duration)> {
        let is_farms = admission.limit().is_farms();
        let held = |limit| match limit {
            LimitedBy::Limit if is_farms => HeldBy::FarmLimit,
            limit => HeldBy::Transfer(limit),
        };
        let ranked = outcome.finding.shares.ranked().into_iter();
        ranked.map(|(limit, share)| (held(limit), outcome.time.mul_f64(share))).collect()
    }

    /// Returns the failure of a file. One of this host's disk or memory makes the worker claim
    /// nothing more.
    fn noted(&self, error: &TransferError, task: &FileTask) -> FileEnd {
        let is_range = matches!(task.part(), Some(FilePart::Range { .. }));
        // It has another state, proves none, or cannot be read.
        let is_of_source =
            matches!(error, TransferError::Failed(failure) if failure.cause == Cause::OtherFile);
        let is_of_all_ranges = match error {
            // The file that receives the ranges is missing.
            TransferError::Output(OutputError::Create { source, .. }) => source.kind() == ErrorKind::NotFound,
            _ => is_of_source,
        };
        if is_range && is_of_all_ranges {
            return FileEnd::Unjoinable(error.to_string());
        }
        let is_upload = self.worker.server().is_some();
        let fault = Fault::of(error.kind(), is_of_source, is_upload, task.file().local_source().is_some());
        if fault == Fault::Host {
            self.worker.retire();
        }
        FileEnd::Failed { why: error.to_string(), is_refused: fault == Fault::PerhapsHost }
    }
}

/// Where the cause of a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// At the disk or memory of this host, or the disk of the server.
    Host,
    /// Perhaps at this host: its network, logins, mounts or settings.
    PerhapsHost,
    /// At the file.
    File,
}

impl Fault {
    fn of(kind: FailureKind, is_of_source: bool, is_upload: bool, is_local: bool) -> Self {
        use FailureKind::{
            CannotCreate, Config, Denied, Disk, Host, NoHost, NotFound, Protocol, Unavailable,
        };
        match kind {
            Disk if is_of_source => Self::PerhapsHost,
            Disk | Host => Self::Host,
            // A server may refuse one name, or one size.
            CannotCreate if !is_upload => Self::Host,
            Denied | NoHost | Unavailable | Protocol | Config => Self::PerhapsHost,
            // It may not have mounted the sources, and other sources may be readable.
            NotFound if is_local => Self::PerhapsHost,
            _ => Self::File,
        }
    }
}

/// Returns the end of a file, or a range of it, that was transferred.
fn received_end(task: &FileTask, tag: &JobTag, outcome: &Done) -> FileEnd {
    let (size, url) = (outcome.bytes.get(), tag.url());
    match (task.file().size, task.part()) {
        (Some(planned), _) if planned != outcome.bytes => {
            file_failed(format!("{url} has {size} bytes, and {} were planned: it was changed", planned.get()))
        }
        // A part of it may be of a worker that was stopped.
        (_, Some(FilePart::Range { start, end, .. })) => FileEnd::Received(ByteRange::new(start, end).len()),
        _ => FileEnd::Received(outcome.bytes),
    }
}

/// Counts the bytes that a job receives for the worker's heartbeat.
struct CountedBytes<'a> {
    observer: JobObserver<'a>,
    worker: &'a Worker<'a>,
    task: &'a FileTask,
    admission: &'a Admission,
    received: AtomicU64,
}

impl CountedBytes<'_> {
    /// Counts what was received since the last call; `received` is all of the job.
    fn count_to(&self, received: Bytes) {
        let before = self.received.fetch_max(received.get(), Ordering::Relaxed);
        let bytes = received - Bytes::new(before);
        self.worker.count(bytes, self.admission);
        if self.task.count(bytes) {
            self.admission.end_soon();
            self.task.end_soon();
        }
    }
}

impl Observer for CountedBytes<'_> {
    fn on(&self, _job: &JobTag, at: Duration, event: &Event) {
        if let Event::Progress(progress) = event {
            self.count_to(progress.bytes.received);
            self.admission.note_streams(progress.streams);
        }
        self.observer.on(at, event);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_engine::send::SourceFile;
    use longhaul_engine::upload::UploadError;

    use super::*;

    #[test]
    fn one_source_that_cannot_be_read_does_not_end_a_worker() {
        let file = tempfile::tempfile().unwrap();
        let source = SourceFile::new(file, "f".into()).unwrap();
        let unreadable = Failure::from(UploadError::from(source.unreadable(&ErrorKind::Other.into())));
        let is_of_source = unreadable.cause == Cause::OtherFile;
        assert_eq!(Fault::of(unreadable.kind, is_of_source, true, true), Fault::PerhapsHost);
        for (kind, fetch, copy, upload) in [
            (FailureKind::Host, Fault::Host, Fault::Host, Fault::Host),
            (FailureKind::Disk, Fault::Host, Fault::Host, Fault::Host),
            (FailureKind::CannotCreate, Fault::Host, Fault::Host, Fault::File),
            (FailureKind::Denied, Fault::PerhapsHost, Fault::PerhapsHost, Fault::PerhapsHost),
            (FailureKind::NotFound, Fault::File, Fault::PerhapsHost, Fault::PerhapsHost),
            (FailureKind::Data, Fault::File, Fault::File, Fault::File),
        ] {
            let faults = [(false, false), (false, true), (true, true)];
            let faults = faults.map(|(is_upload, is_local)| Fault::of(kind, false, is_upload, is_local));
            assert_eq!(faults, [fetch, copy, upload], "{kind:?}");
        }
    }
}
