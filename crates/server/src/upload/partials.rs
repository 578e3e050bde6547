//! The partial files of resumable uploads: what they take of the quota, and when they expire.

mod scan;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use longhaul_core::units::Bytes;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::StoredJournal;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::PartFile;
use longhaul_engine::sink::part_names::target_of;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ActiveUploads;
use super::start::is_upload;
use crate::access::Grant;
use crate::disks::{Disk, DiskError, Disks};

/// How long an upload waits for the scan at the start, which counts what others take of the quota.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// Names of a directory from the root down.
type DirectoryNames = Vec<Vec<u8>>;

/// The partial files of a server's uploads, as far as they are known. Its lock is never held during a file operation.
pub(super) struct PartialUploads {
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
pub(super) struct KnownPart {
    /// The space that the file takes, or is to take.
    space: Bytes,
    /// The number of its admission: a later file of this name has another one.
    admission: u64,
    /// The token that began the upload.
    holder: Option<Arc<str>>,
    /// The space that all of this token's may take.
    most: Option<Bytes>,
}

/// There is not enough left of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OverQuota {
    /// Of that of all uploads.
    OfAll,
    /// Of that of the upload's token.
    OfToken,
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
        others.fold(Bytes::ZERO, |sum, (_, known)| sum + known.space)
    }
}

impl PartialUploads {
    pub(super) fn new(root: &Path, quota: Option<Bytes>, expiry: Option<Duration>) -> Self {
        let scanned = watch::Sender::new(ScanState::Scanning);
        Self { root: root.to_owned(), quota, expiry, known: Mutex::default(), scanned }
    }

    pub(super) fn quota(&self) -> Option<Bytes> {
        self.quota
    }

    /// Returns when a partial file that was last changed at this time expires.
    pub(super) fn expires(&self, changed: SystemTime) -> Option<SystemTime> {
        changed.checked_add(self.expiry?)
    }

    /// Returns how often expired and missing files are looked for.
    pub(super) fn check_interval(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        self.expiry.map_or(LONGEST, |expiry| (expiry / 4).clamp(Duration::from_millis(100), LONGEST))
    }

    /// Waits until quotas can be compared with all partial files of file systems that answer; returns whether they can.
    pub(super) async fn knows_all(&self, grant: &Grant) -> bool {
        let mut scanned = self.scanned.subscribe();
        let knows = scanned.wait_for(|scanned| *scanned != ScanState::Scanning);
        let is_unbounded = self.quota.is_none() && grant.quota.is_none();
        is_unbounded || timeout(SCAN_TIMEOUT, knows).await.is_ok()
    }

    /// Returns whether [`Self::used`] includes the partial files of all file systems.
    pub(super) fn counts_all(&self) -> bool {
        *self.scanned.borrow() == ScanState::OfAll
    }

    /// Counts the partial file of an upload of `size` bytes; fails where a quota does not hold it besides the others.
    pub(super) fn admit(&self, part: &Path, size: Bytes, grant: &Grant) -> Result<(), OverQuota> {
        self.count(&mut self.lock(), part, size, (grant.holder.clone(), grant.quota))
    }

    /// Counts a partial file, which is counted already, with its present size.
    pub(super) fn grow(&self, part: &Path, size: Bytes) -> Result<(), OverQuota> {
        let mut known = self.lock();
        let of = known.parts.get(part).map(|known| (known.holder.clone(), known.most));
        self.count(&mut known, part, size, of.unwrap_or_default())
    }

    fn count(
        &self,
        known: &mut KnownParts,
        part: &Path,
        size: Bytes,
        (holder, most): (Option<Arc<str>>, Option<Bytes>),
    ) -> Result<(), OverQuota> {
        if self.quota.is_some_and(|quota| known.space_besides(part, |_| true) + size > quota) {
            return Err(OverQuota::OfAll);
        }
        if most.is_some_and(|most| known.space_besides(part, |known| known.holder == holder) + size > most) {
            return Err(OverQuota::OfToken);
        }
        known.insert(part, size, (holder, most));
        Ok(())
    }

    /// Returns the space of all partial files.
    pub(super) fn used(&self) -> Bytes {
        self.lock().parts.values().fold(Bytes::ZERO, |sum, known| sum + known.space)
    }

    /// Stops counting a partial file, whose lock the caller holds.
    pub(super) fn forget(&self, part: &Path) -> Option<KnownPart> {
        self.lock().parts.remove(part)
    }

    /// Counts a partial file again, whose lock the caller still holds.
    pub(super) fn restore(&self, part: &Path, known: Option<KnownPart>) {
        if let Some(known) = known {
            self.lock().parts.insert(part.to_owned(), known);
        }
    }

    /// Removes a partial file, whose space is free then.
    pub(super) fn discard(&self, part: &PartFile) {
        // Before its name is free: another upload may take that at once.
        self.forget(part.path());
        part.discard();
    }

    /// Removes a partial file that holds nothing to resume.
    pub(super) fn abandon(&self, part: &PartFile) {
        if !part.is_resumable() {
            self.discard(part);
        }
    }

    /// Deletes the partial files that have expired and that no upload uses; stops counting those that others have deleted.
    pub(super) async fn check(self: &Arc<Self>, disks: &Disks, active: &Arc<ActiveUploads>, now: SystemTime) {
        let parts: Vec<_> =
            self.lock().parts.iter().map(|(path, known)| (path.clone(), known.admission)).collect();
        let mut rounds: Vec<(Disk, Vec<(PathBuf, u64)>)> = Vec::new();
        for part in parts {
            let disk = disks.of(&self.directory_names(&part.0));
            match rounds.iter_mut().find(|(other, _)| other.is_same(&disk)) {
                Some((_, parts)) => parts.push(part),
                None => rounds.push((disk, vec![part])),
            }
        }
        let mut checks = JoinSet::new();
        for (disk, parts) in rounds {
            let (partials, active) = (Arc::clone(self), Arc::clone(active));
            checks.spawn(async move {
                for (path, admission) in parts {
                    let (partials, active) = (Arc::clone(&partials), Arc::clone(&active));
                    let check = move |path: &Path| partials.check_one(path, admission, &active, now);
                    if run(&disk, &path, check).await.is_none() {
                        break;
                    }
                }
            });
        }
        checks.join_all().await;
    }

    fn check_one(&self, path: &Path, admission: u64, active: &Arc<ActiveUploads>, now: SystemTime) {
        match self.expire_one(path, active, now) {
            Ok(false) => {}
            Ok(true) => tracing::info!(path = %path.display(), "an expired upload is deleted"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut known = self.lock();
                if known.parts.get(path).is_some_and(|known| known.admission == admission) {
                    known.parts.remove(path);
                }
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "an expired upload cannot be deleted")
            }
        }
    }

    fn expire_one(&self, path: &Path, active: &Arc<ActiveUploads>, now: SystemTime) -> io::Result<bool> {
        let is_expired = || {
            // The time of modification may be one that the client has set.
            let changed = u64::try_from(path.symlink_metadata()?.ctime()).unwrap_or(0);
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
            Ok::<_, io::Error>(self.expires(changed).is_some_and(|expires| expires <= now))
        };
        let name = path.file_name().and_then(|name| target_of(name.as_bytes()));
        let (Some(above), Some(name)) = (path.parent(), name) else { return Ok(false) };
        if !is_expired()? {
            return Ok(false);
        }
        let part = match PartFile::open_existing_in(Directory::open(above)?, OsStr::from_bytes(name)) {
            Ok(part) => part,
            Err(OutputError::Busy(_)) => return Ok(false),
            Err(OutputError::Create { source, .. }) => return Err(source),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        // File systems without file locks have only this one. An upload may have gone on since, or a download begun.
        let Some(_lock) = active.lock_part(part.identity()?) else { return Ok(false) };
        let is_upload =
            part.journal().ok().and_then(StoredJournal::sound).is_some_and(|found| is_upload(&found));
        let expired = is_expired()? && is_upload;
        if expired {
            self.discard(&part);
        }
        Ok(expired)
    }

    fn path_of(&self, names: &[Vec<u8>]) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
        path
    }

    /// Returns the names of a file's directory below the root.
    fn directory_names(&self, path: &Path) -> Vec<Vec<u8>> {
        let below = path.parent().and_then(|above| above.strip_prefix(&self.root).ok());
        below.into_iter().flatten().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, KnownParts> {
        // Nothing panics while the lock is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests {
    use longhaul_core::identity::Identity;
    use longhaul_core::ranges::RangeSet;
    use longhaul_engine::sink::journal::{Journal, JournalSource};

    use super::scan::list;
    use super::*;
    use crate::disks::DiskLimits;

    const DISK: DiskLimits =
        DiskLimits { deadline: Duration::from_secs(5), uploads: 1, uploads_in_all: 1, listings: 1 };

    /// Makes a partial file of 10 000 bytes, with a journal of a file from `url`.
    fn pause(directory: &Path, name: &str, url: &str) {
        let identity = Identity::from(longhaul_core::proto::http::Validator::parse("\"tag\"").unwrap());
        let source = JournalSource::new(url, url.to_owned(), identity);
        let journal = Journal::new(Bytes::new(10_000), vec![source], None);
        std::fs::write(directory.join(format!("{name}.longhaul-part")), [7; 10_000]).unwrap();
        let text = journal.encode(&RangeSet::new()).unwrap();
        std::fs::write(directory.join(format!("{name}.longhaul-journal")), text).unwrap();
    }

    /// Scans the whole tree.
    async fn scan(partials: &PartialUploads) {
        let hung = partials.scan(&Disks::new(&partials.root, DISK), vec![Vec::new()]).await;
        assert!(hung.is_empty() && partials.counts_all());
    }

    fn admit(partials: &PartialUploads, part: &Path, size: Bytes) -> Result<(), OverQuota> {
        partials.admit(part, size, &Grant::default())
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn partial_files_of_uploads_are_found_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        std::os::unix::fs::symlink(dir.path(), below.join("round")).unwrap();
        pause(&below, "f", "upload:1");
        pause(&below, "download", "https://host/download");
        for name in ["f", "g.longhaul-part"] {
            std::fs::write(below.join(name), [7; 10_000]).unwrap();
        }
        let partials = PartialUploads::new(dir.path(), Some(Bytes::new(100)), None);
        scan(&partials).await;
        let known: Vec<_> = partials.lock().parts.keys().cloned().collect();
        assert_eq!(known, [below.join("f.longhaul-part")]);
        assert!(partials.used() >= Bytes::new(10_000) && partials.knows_all(&Grant::default()).await);
        assert!(list(&below, 0).uploads.is_empty() && list(&dir.path().join("none"), 9).uploads.is_empty());
    }

    #[tokio::test]
    async fn quota_is_unknown_until_the_scan_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let quota = |quota| PartialUploads::new(dir.path(), quota, None);
        let partials = quota(Some(Bytes::new(100)));
        assert!(
            timeout(Duration::from_millis(50), partials.knows_all(&Grant::default())).await.is_err(),
            "it waits"
        );
        scan(&partials).await;
        assert!(partials.knows_all(&Grant::default()).await);
        assert!(quota(None).knows_all(&Grant::default()).await);
    }

    #[tokio::test]
    async fn quota_counts_partial_files_until_they_are_complete_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let partials = Arc::new(PartialUploads::new(dir.path(), Some(Bytes::new(100)), None));
        let part = |name: &str| dir.path().join(name);
        for name in ["a.longhaul-part", "b.longhaul-part"] {
            std::fs::write(part(name), "").unwrap();
            assert!(admit(&partials, &part(name), Bytes::new(50)).is_ok());
        }
        assert!(admit(&partials, &part("c.longhaul-part"), Bytes::new(1)).is_err());
        assert!(admit(&partials, &part("b.longhaul-part"), Bytes::new(50)).is_ok(), "it is counted once");
        std::fs::remove_file(part("a.longhaul-part")).unwrap();
        partials.check(&Disks::new(dir.path(), DISK), &Arc::default(), SystemTime::now()).await;
        assert!(admit(&partials, &part("c.longhaul-part"), Bytes::new(51)).is_err());
        assert!(admit(&partials, &part("c.longhaul-part"), Bytes::new(50)).is_ok());
        let counted = partials.forget(&part("b.longhaul-part"));
        assert_eq!(partials.used(), Bytes::new(50));
        partials.restore(&part("b.longhaul-part"), counted);
        assert_eq!(partials.used(), Bytes::new(100));
    }

    #[tokio::test]
    async fn expired_upload_is_deleted_unless_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let (second, disks) = (Duration::from_secs(1), Disks::new(dir.path(), DISK));
        let partials = Arc::new(PartialUploads::new(dir.path(), None, Some(10 * second)));
        for name in ["f", "g"] {
            pause(dir.path(), name, "upload:1");
        }
        pause(dir.path(), "download", "https://host/download");
        std::fs::write(dir.path().join("h"), "x").unwrap();
        // A time of modification is the client's to choose.
        let part = std::fs::File::options().write(true).open(dir.path().join("f.longhaul-part"));
        part.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        scan(&partials).await;
        let (active, now) = (Arc::default(), SystemTime::now());
        partials.check(&disks, &active, now + 5 * second).await;
        assert_eq!(names(dir.path()).len(), 7);
        let held = PartFile::open_in(Directory::open(dir.path()).unwrap(), OsStr::new("g")).unwrap();
        partials.check(&disks, &active, now + 20 * second).await;
        let download = ["download.longhaul-journal", "download.longhaul-part"];
        let left = [&download[..], &["g.longhaul-journal", "g.longhaul-part", "h"]].concat();
        assert_eq!(names(dir.path()), left);
        drop(held);
        partials.check(&disks, &active, now + 20 * second).await;
        assert_eq!(
            (names(dir.path()), partials.used()),
            ([&download[..], &["h"]].concat().iter().map(ToString::to_string).collect(), Bytes::ZERO)
        );
    }

    #[tokio::test]
    async fn download_into_the_place_of_an_upload_does_not_expire() {
        let dir = tempfile::tempdir().unwrap();
        let partials = Arc::new(PartialUploads::new(dir.path(), None, Some(Duration::from_secs(10))));
        let part = dir.path().join("f.longhaul-part");
        assert!(admit(&partials, &part, Bytes::new(10)).is_ok());
        pause(dir.path(), "f", "https://host/f");
        let later = SystemTime::now() + Duration::from_secs(20);
        partials.check(&Disks::new(dir.path(), DISK), &Arc::default(), later).await;
        assert!(part.exists());
    }

    #[tokio::test]
    async fn operation_on_a_file_system_that_hangs_ends() {
        let hung = Disks::new(Path::new("/"), DiskLimits { deadline: Duration::from_millis(50), ..DISK });
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let (disk, path) = (hung.of(&[]), Path::new("/"));
        assert_eq!(run(&disk, path, move |_: &Path| held.recv().is_ok()).await, None);
        drop(release);
        assert_eq!(run(&disk, path, |_| 5).await, Some(5));
    }

    #[test]
    fn token_takes_no_more_than_its_own_quota() {
        let partials = PartialUploads::new(Path::new("/"), Some(Bytes::new(100)), None);
        let grant =
            |name: &str| Grant { holder: Some(name.into()), quota: Some(Bytes::new(60)), ..Grant::default() };
        let admit = |name: &str, size: u64, token: &str| {
            partials.admit(Path::new(name), Bytes::new(size), &grant(token))
        };
        assert_eq!(admit("/a", 40, "ann"), Ok(()));
        assert_eq!(admit("/b", 30, "ann"), Err(OverQuota::OfToken));
        assert_eq!(admit("/b", 50, "bob"), Ok(()));
        assert_eq!(admit("/c", 20, "ann"), Err(OverQuota::OfAll));
        assert_eq!(partials.grow(Path::new("/b"), Bytes::new(61)), Err(OverQuota::OfAll));
        partials.forget(Path::new("/a"));
        assert_eq!(partials.grow(Path::new("/b"), Bytes::new(61)), Err(OverQuota::OfToken));
        assert_eq!(partials.grow(Path::new("/b"), Bytes::new(60)), Ok(()));
    }
}
