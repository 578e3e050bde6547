//! The partial files of resumable uploads, and what they take of the quota.

mod expiry;
mod scan;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_file::PartFile;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Grant;
use crate::paths::disks::{Disk, DiskError};
use crate::upload::request::refusal::OverQuota;

/// How long an upload waits for the scan at the start, which counts what others take of the quota.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// The least that an unfinished upload counts: it takes two inodes, too, and its journal.
const MIN_SPACE: Bytes = Bytes::mib(1);

/// The most unfinished uploads of a token, whatever the quotas: each takes two inodes.
const MAX_UNFINISHED: usize = 10_000;

/// Names of a directory from the root down.
type DirectoryNames = Vec<Vec<u8>>;

/// The partial files of a server's uploads, as far as they are known. Its lock is never held during
/// a file operation.
pub(crate) struct PartialUploads {
    root: PathBuf,
    quota: Option<Bytes>,
    expiry: Option<Duration>,
    known: Mutex<KnownParts>,
    scanned: watch::Sender<ScanState>,
}

/// Which partial files of earlier runs are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Scanning,
    /// All but those of file systems that do not answer.
    OfAnswering,
    OfAll,
}

#[derive(Default)]
struct KnownParts {
    parts: HashMap<PathBuf, KnownPart>,
    admissions: u64,
}

/// A partial file, from its admission until it is complete or deleted.
#[derive(Clone)]
pub(crate) struct KnownPart {
    /// The space that the file takes, or is to take.
    space: Bytes,
    /// The number of its admission: a later file of this name has another one.
    admission: u64,
    /// The token that began the upload.
    holder: Option<Arc<str>>,
    /// The space that all of this token's may take.
    most: Option<Bytes>,
}

impl KnownParts {
    fn insert(&mut self, part: &Path, space: Bytes, (holder, most): (Option<Arc<str>>, Option<Bytes>)) {
        self.admissions += 1;
        let known = KnownPart { space, admission: self.admissions, holder, most };
        self.parts.insert(part.to_owned(), known);
    }

    /// Returns the space of the files but `part` that `counts` selects.
    fn space_besides(&self, part: &Path, counts: impl Fn(&KnownPart) -> bool) -> Bytes {
        let others = self.parts.iter().filter(|(path, known)| *path != part && counts(known));
        others.fold(Bytes::ZERO, |sum, (_, known)| sum + counted(known.space))
    }
}

/// Returns what a file of this space counts.
fn counted(space: Bytes) -> Bytes {
    space.max(MIN_SPACE)
}

impl PartialUploads {
    pub(crate) fn new(root: &Path, quota: Option<Bytes>, expiry: Option<Duration>) -> Self {
        let scanned = watch::Sender::new(ScanState::Scanning);
        Self { root: root.to_owned(), quota, expiry, known: Mutex::default(), scanned }
    }

    pub(crate) fn quota(&self) -> Option<Bytes> {
        self.quota
    }

    /// Waits until the partial files of all file systems that answer are counted, where a quota
    /// needs it; returns whether they are.
    pub(crate) async fn await_scan(&self, grant: &Grant) -> bool {
        let mut scanned = self.scanned.subscribe();
        let knows = scanned.wait_for(|scanned| *scanned != ScanState::Scanning);
        let is_unbounded = self.quota.is_none() && grant.quota.is_none();
        is_unbounded || timeout(SCAN_TIMEOUT, knows).await.is_ok()
    }

    /// Returns whether [`Self::used`] includes the partial files of all file systems.
    pub(crate) fn counts_all(&self) -> bool {
        *self.scanned.borrow() == ScanState::OfAll
    }

    /// Counts the partial file of an upload of `size` bytes; fails where a quota does not hold it
    /// besides the others.
    pub(crate) fn admit(&self, part: &Path, size: Bytes, grant: &Grant) -> Result<(), OverQuota> {
        let mut known = self.known.lock();
        self.check_quotas(&known, part, size, (grant.holder.as_ref(), grant.quota))?;
        let of_token = known.parts.values().filter(|known| known.holder == grant.holder);
        if !known.parts.contains_key(part) && of_token.count() >= MAX_UNFINISHED {
            return Err(OverQuota::TooMany);
        }
        known.insert(part, size, (grant.holder.clone(), grant.quota));
        Ok(())
    }

    /// Counts an admitted partial file with its present size; fails where a quota does not hold it
    /// besides the others.
    pub(crate) fn grow(&self, part: &Path, size: Bytes) -> Result<(), OverQuota> {
        let mut known = self.known.lock();
        let (holder, most) =
            known.parts.get(part).map_or((None, None), |own| (own.holder.as_ref(), own.most));
        self.check_quotas(&known, part, size, (holder, most))?;
        if let Some(own) = known.parts.get_mut(part) {
            own.space = size;
        }
        Ok(())
    }

    fn check_quotas(
        &self,
        known: &KnownParts,
        part: &Path,
        size: Bytes,
        (holder, most): (Option<&Arc<str>>, Option<Bytes>),
    ) -> Result<(), OverQuota> {
        if self.quota.is_some_and(|quota| known.space_besides(part, |_| true) + counted(size) > quota) {
            return Err(OverQuota::OfAll);
        }
        if most.is_some_and(|most| {
            known.space_besides(part, |known| known.holder.as_ref() == holder) + counted(size) > most
        }) {
            return Err(OverQuota::OfToken);
        }
        Ok(())
    }

    /// Returns the space of the partial files that a token began; of all with `None`.
    pub(crate) fn used(&self, holder: Option<&Arc<str>>) -> Bytes {
        let known = self.known.lock();
        let own = known.parts.values().filter(|known| holder.is_none() || known.holder.as_ref() == holder);
        own.fold(Bytes::ZERO, |sum, known| sum + counted(known.space))
    }

    /// Stops counting a partial file, whose lock the caller holds.
    pub(crate) fn forget(&self, part: &Path) -> Option<KnownPart> {
        self.known.lock().parts.remove(part)
    }

    /// Counts a partial file again, whose lock the caller still holds.
    pub(crate) fn restore(&self, part: &Path, known: Option<KnownPart>) {
        if let Some(known) = known {
            self.known.lock().parts.insert(part.to_owned(), known);
        }
    }

    /// Removes a partial file, whose space is free then.
    pub(crate) fn discard(&self, part: &PartFile) {
        // Before its name is free: another upload may take that at once.
        self.forget(part.path());
        part.discard();
    }

    /// Removes a partial file that holds nothing to resume.
    pub(crate) fn abandon(&self, part: &PartFile) {
        if !part.is_resumable() {
            self.discard(part);
        }
    }

    fn path_of(&self, names: &[Vec<u8>]) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
        path
    }
}

/// Runs an operation on a file system; logs where that hangs.
async fn run<T: Send + 'static>(
    disk: &Disk,
    path: &Path,
    operation: impl FnOnce(&Path) -> T + Send + 'static,
) -> Option<T> {
    let owned = path.to_owned();
    let outcome = disk.run(move || operation(&owned)).await;
    let failed = |error: &DiskError| {
        tracing::warn!(path = %path.display(), %error, "unfinished uploads on this file system are not checked now");
    };
    outcome.inspect_err(failed).ok()
}

#[cfg(test)]
mod tests;
