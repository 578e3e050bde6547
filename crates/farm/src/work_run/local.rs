//! Copies and uploads local files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::event::JobTag;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::copy::{CopyRequest, copy};
use longhaul_engine::send::{ReaderChoice, SourceFile};
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::tree::{UploadFile, UploadTarget};
use longhaul_engine::upload::{PutRequest, UploadError, put_open};
use url::Url;

use super::{WorkRun, file_failed};
use crate::files::{self, Comparison};
use crate::target_directory::TargetDirectory;
use crate::worker::{FileEnd, FileTask};

/// The status of a name to which another upload is under way: `longhaul serve` keeps that of a
/// killed worker until its disk has taken what was received.
const LOCKED: u16 = 423;
/// The time for which another upload to a name may be under way before the file fails.
const MAX_LOCKED: Duration = Duration::from_secs(60);
/// The interval of requests for such a name.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);

impl WorkRun<'_> {
    /// Returns the size of a file that is there already, with the planned size and time, and the
    /// checksum if there is one.
    pub(super) fn find_complete(&self, task: &FileTask, target: &TargetDirectory) -> Option<Bytes> {
        let (file, path) = (task.file(), target.path_of(task.file()));
        let step = task.steps().begin(&path);
        let size = target.present(file)?;
        if file.checksum.is_none() {
            return Some(size);
        }
        task.begin();
        let count = |bytes| self.worker.count_verified(bytes, &step);
        match files::compare_at(&path, file, task.cancel(), &count) {
            Comparison::Equal => Some(size),
            Comparison::Differs(how) => {
                tracing::warn!("{} {how}: it is replaced", path.display());
                None
            }
            Comparison::Cancelled => None,
        }
    }

    /// Copies a file. It counts as one connection to the worker's own host.
    pub(super) fn copy(&self, task: &FileTask, tag: &JobTag, target: &TargetDirectory) -> FileEnd {
        let (file, cancel) = (task.file(), task.cancel());
        let admission = self.worker.admit(&self.worker.host().to_ascii_lowercase(), 1, cancel);
        self.execute_job(task, tag, &admission, |observer| {
            // Each further file of a unit that was lost to a file system that hangs would wait for
            // it, too.
            if cancel.is_cancelled() {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted").into());
            }
            let (source, steps) = (&task.open_source()?, task.steps());
            let (root, path) = (target.root().clone(), task.staged().to_owned());
            let request = CopyRequest { source, root, path, limit: Some(admission.limit().clone()), steps };
            let outcome = copy(&request, observer, cancel)?;
            if file.checksum.is_some() {
                let copied = steps.during(&outcome.path, || SourceFile::open(&outcome.path))?;
                self.check_checksum(task, &copied.watched(steps))?;
            }
            Ok(outcome)
        })
    }

    /// Uploads a file, as `put` does.
    pub(super) fn upload(&self, task: &FileTask, to: &Url) -> FileEnd {
        let (file, cancel) = (task.file(), task.cancel());
        let target = match self.upload_target(to) {
            Ok(target) => target,
            Err(failure) => return file_failed(failure.to_string()),
        };
        let url = target.url_of(&file.path);
        let tag = self.tag(&SafeUrl::of(&url).to_string());
        let Some(path) = file.local_source() else {
            return file_failed(format!(
                "{} is no local file, and only those are uploaded",
                file.path.display()
            ));
        };
        let (size, modified, is_new) = (file.size.unwrap_or_default(), file.modified, false);
        let to_send = UploadFile { path: path.clone(), url: url.clone(), size, modified, is_new };
        // What is wrong with the source fails the job below.
        let is_as_planned =
            || task.open_source().is_ok_and(|source| self.check_checksum(task, &source).is_ok());
        if self.options.transfer.resume && target.is_unchanged(&to_send, cancel) && is_as_planned() {
            return self.present(&tag, path, size);
        }
        let admission = self.admit(&url, file.size, cancel);
        let mut transfer = self.options_of(&admission).transfer;
        transfer.client.requests.headers.extend(to_send.time_header());
        let request = PutRequest {
            path,
            url,
            reader: ReaderChoice::Auto,
            verify: Some(self.options.verify),
            congestion: None,
            transfer,
            sessions: self.engine.ftp_sessions(),
        };
        self.execute_job(task, &tag, &admission, |observer| {
            // The state that is checked is the one that is sent, whatever gets its name meanwhile.
            let source = Arc::new(task.open_source()?);
            self.check_checksum(task, &source)?;
            let deadline = Instant::now() + MAX_LOCKED;
            loop {
                match put_open(&request, &source, observer, cancel) {
                    Err(UploadError::Refused { status: LOCKED, .. })
                        if Instant::now() < deadline && !cancel.sleep(LOCK_INTERVAL) => {}
                    sent => return sent.map_err(|error| Failure::from(error).into()),
                }
            }
        })
    }

    fn upload_target(&self, url: &Url) -> Result<&UploadTarget, Failure> {
        if let Some(target) = self.uploads.get() {
            return Ok(target);
        }
        let target = self.engine.upload_target(url, &self.options.transfer)?;
        Ok(self.uploads.get_or_init(|| target))
    }

    /// Compares the checksum of a list, if there is one, with a local file.
    fn check_checksum(&self, task: &FileTask, source: &SourceFile) -> Result<(), Failure> {
        let Some(wanted) = &task.file().checksum else { return Ok(()) };
        let path = source.path();
        let step = task.steps().begin(path);
        let count = |bytes| self.worker.count_verified(bytes, &step);
        match files::digest_of(source.file(), path, wanted.algorithm, task.cancel(), &count) {
            Ok(Some(found)) if found == *wanted => source.check(),
            Ok(Some(found)) => {
                let message = format!("{} has the digest {found} instead of {wanted}", path.display());
                Err(Failure::new(FailureKind::Data, message))
            }
            Ok(None) => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
            Err(error) => Err(Failure::new(FailureKind::NotFound, error.to_string())),
        }
    }
}
