//! Copies and uploads local files.

use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_core::event::JobTag;
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::copy::{CopyRequest, copy};
use longhaul_engine::send::{ReaderChoice, SourceFile};
use longhaul_engine::sink::output::Output;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::tree::{UploadFile, UploadTarget};
use longhaul_engine::upload::{PutRequest, UploadError, put};
use url::Url;

use super::{WorkRun, file_failed};
use crate::files;
use crate::unit::PlannedFile;
use crate::worker::{FileEnd, FileTask};

/// The status of a name to which another upload is under way: `longhaul serve` keeps that of a killed worker until its disk has
/// taken what was received.
const LOCKED: u16 = 423;
/// The time for which another upload to a name may be under way before the file fails.
const MAX_LOCKED: Duration = Duration::from_secs(60);
/// The interval of requests for such a name.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);

impl WorkRun<'_> {
    /// Copies a file, or a range of it. It counts as one connection to the worker's own host.
    pub(super) fn copy(&self, task: &FileTask, tag: &JobTag, source: &Path, output: Output) -> FileEnd {
        let (file, cancel) = (task.file(), task.cancel());
        let admission = self.worker.admit(&self.worker.host().to_ascii_lowercase(), 1, cancel);
        self.execute_job(task, tag, &admission, |observer| {
            let source = &opened(file, source)?;
            let (output, limit) = (output.clone(), Some(admission.limit().clone()));
            let outcome = copy(&CopyRequest { source, output, limit }, observer, cancel)?;
            // That of a range is compared when all are there.
            if task.part().is_none() {
                self.check_checksum(task, &outcome.path)?;
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
        if self.options.transfer.resume
            && opened(file, &path).is_ok()
            && target.is_unchanged(&to_send, cancel)
        {
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
            opened(file, &request.path)?;
            self.check_checksum(task, &request.path)?;
            let deadline = Instant::now() + MAX_LOCKED;
            loop {
                match put(&request, observer, cancel) {
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

    /// Compares the checksum of a list, if there is one, with the local file at `path`.
    fn check_checksum(&self, task: &FileTask, path: &Path) -> Result<(), Failure> {
        let Some(wanted) = &task.file().checksum else { return Ok(()) };
        let count = |bytes: Bytes| self.worker.count_verified(bytes);
        match files::digest_at(path, wanted.algorithm, task.cancel(), &count) {
            Ok(Some(found)) if found == *wanted => Ok(()),
            Ok(Some(found)) => {
                let message = format!("{} has the digest {found} instead of {wanted}", path.display());
                Err(Failure::new(FailureKind::Data, message))
            }
            Ok(None) => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
            Err(error) => Err(Failure::new(error.kind(), error.to_string())),
        }
    }
}

/// Opens a local source that is as it was planned.
fn opened(file: &PlannedFile, source: &Path) -> Result<SourceFile, Failure> {
    let open = SourceFile::open(source)?;
    let changed = |why| Failure::new(FailureKind::Data, why).caused_by(Cause::OtherFile);
    file.check_source(source, open.metadata()).map_err(changed)?;
    Ok(open)
}
