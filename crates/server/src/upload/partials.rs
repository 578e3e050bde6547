//! The partial files of resumable uploads: what they take of the quota, when they expire, and their listing.

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
use longhaul_engine::sink::part_file::{self, PartFile};
use longhaul_engine::sink::part_names::target_of;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ActiveUploads;
use super::start::is_upload;
use crate::disks::{Disk, Disks};

/// The most directory entries scanned at the start, to bound the disk time for a large tree.
const MAX_SCANNED: usize = 100_000;

/// How long an upload waits for the scan at the start, which counts what others take of the quota.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// The partial files of a server's uploads, as far as they are known. Its lock is never held during a file operation.
pub(super) struct PartialUploads {
    root: PathBuf,
    quota: Option<Bytes>,
    expiry: Option<Duration>,
    known: Mutex<KnownParts>,
    /// Whether the partial files of earlier runs are known.
    scanned: watch::Sender<bool>,
}

#[derive(Default)]
struct KnownParts {
    parts: HashMap<PathBuf, KnownPart>,
    admissions: u64,
}

/// A partial file, from its admission until it is complete or deleted.
#[derive(Clone, Copy)]
pub(super) struct KnownPart {
    /// The space that the file takes, or is to take.
    space: Bytes,
    /// The number of its admission: a later file of this name has another one.
    admission: u64,
}

/// There is not enough of the quota left.
pub(super) struct OverQuota;

impl KnownParts {
    fn insert(&mut self, part: &Path, space: Bytes) {
        self.admissions += 1;
        self.parts.insert(part.to_owned(), KnownPart { space, admission: self.admissions });
    }
}

impl PartialUploads {
    pub(super) fn new(root: &Path, quota: Option<Bytes>, expiry: Option<Duration>) -> Self {
        let scanned = watch::Sender::new(false);
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

    /// Waits until the quota can be compared with all partial files; returns whether it can.
    pub(super) async fn knows_all(&self) -> bool {
        let mut scanned = self.scanned.subscribe();
        self.quota.is_none() || timeout(SCAN_TIMEOUT, scanned.wait_for(|scanned| *scanned)).await.is_ok()
    }

    /// Looks for partial files of earlier runs, and logs them: their space stays allocated until they are resumed or deleted.
    pub(super) async fn scan(&self, disks: &Disks) {
        let (mut directories, mut left, mut hung) = (vec![Vec::new()], MAX_SCANNED, Vec::new());
        while let Some(names) = directories.pop().filter(|_| left > 0) {
            let path = self.path_of(&names);
            let listed = run(disks.of(&names), &mut hung, &path, move |path| list(path, left)).await;
            let Some(listed) = listed else { continue };
            left -= listed.looked;
            directories.extend(listed.directories.into_iter().map(|name| [&names[..], &[name]].concat()));
            for (path, space) in listed.uploads {
                tracing::info!(path = %path.display(), %space, "an unfinished upload");
                let mut known = self.lock();
                if !known.parts.contains_key(&path) {
                    known.insert(&path, space);
                }
            }
        }
        self.scanned.send_replace(true);
    }

    /// Counts the partial file of an upload of `size` bytes; fails where the quota does not hold it besides the others.
    pub(super) fn admit(&self, part: &Path, size: Bytes) -> Result<(), OverQuota> {
        let mut known = self.lock();
        if let Some(quota) = self.quota {
            let others = known.parts.iter().filter(|(path, _)| *path != part);
            let others = others.fold(Bytes::ZERO, |sum, (_, known)| sum + known.space);
            if others + size > quota {
                return Err(OverQuota);
            }
        }
        known.insert(part, size);
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
        let mut hung = Vec::new();
        for (path, admission) in parts {
            let (partials, active) = (Arc::clone(self), Arc::clone(active));
            let check = move |path: &Path| partials.check_one(path, admission, &active, now);
            run(disks.of(&self.directory_names(&path)), &mut hung, &path, check).await;
        }
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

/// Runs an operation on a file system, unless that is one of those that `hung` in this round, and notes it there where it hangs.
async fn run<T: Send + 'static>(
    disk: Disk,
    hung: &mut Vec<Disk>,
    path: &Path,
    operation: impl FnOnce(&Path) -> T + Send + 'static,
) -> Option<T> {
    if hung.iter().any(|other| other.is_same(&disk)) {
        return None;
    }
    let owned = path.to_owned();
    let outcome = disk.run(move || operation(&owned)).await;
    let failed = |error| {
        tracing::warn!(path = %path.display(), %error, "unfinished uploads on this file system are not checked now");
        hung.push(disk);
    };
    outcome.map_err(failed).ok()
}

/// What a directory holds.
#[derive(Default)]
struct Listed {
    looked: usize,
    directories: Vec<Vec<u8>>,
    /// The partial files of uploads, and the space allocated to each.
    uploads: Vec<(PathBuf, Bytes)>,
}

/// Lists at most `most` entries of a directory; skips what cannot be read.
fn list(path: &Path, most: usize) -> Listed {
    let mut listed = Listed::default();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(most) {
        listed.looked += 1;
        let name = entry.file_name();
        // Symbolic links are not followed: they may form cycles.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => listed.directories.push(name.as_bytes().to_vec()),
            Ok(kind) if kind.is_file() && is_upload_part(path, name.as_bytes()) => {
                // `st_blocks` counts units of 512 bytes.
                let space = entry.metadata().map(|metadata| Bytes::new(metadata.blocks() * 512));
                listed.uploads.extend(space.map(|space| (entry.path(), space)));
            }
            _ => {}
        }
    }
    listed
}

/// Returns whether a name is of a partial file that an upload has made: a download into the served directory may pause too.
fn is_upload_part(directory: &Path, name: &[u8]) -> bool {
    let Some(target) = target_of(name) else { return false };
    let Ok(directory) = Directory::open(directory) else { return false };
    let journal = part_file::journal_of(&directory, OsStr::from_bytes(target));
    journal.ok().and_then(StoredJournal::sound).is_some_and(|journal| is_upload(&journal))
}

#[cfg(test)]
mod tests {
    use longhaul_core::identity::Identity;
    use longhaul_core::ranges::RangeSet;
    use longhaul_engine::sink::journal::{Journal, JournalSource};

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
        partials.scan(&Disks::new(dir.path(), DISK)).await;
        let known: Vec<_> = partials.lock().parts.keys().cloned().collect();
        assert_eq!(known, [below.join("f.longhaul-part")]);
        assert!(partials.used() >= Bytes::new(10_000) && partials.knows_all().await);
        assert!(list(&below, 0).uploads.is_empty() && list(&dir.path().join("none"), 9).uploads.is_empty());
    }

    #[tokio::test]
    async fn quota_is_unknown_until_the_scan_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let quota = |quota| PartialUploads::new(dir.path(), quota, None);
        let partials = quota(Some(Bytes::new(100)));
        assert!(timeout(Duration::from_millis(50), partials.knows_all()).await.is_err(), "it waits");
        partials.scan(&Disks::new(dir.path(), DISK)).await;
        assert!(partials.knows_all().await);
        assert!(quota(None).knows_all().await);
    }

    #[tokio::test]
    async fn quota_counts_partial_files_until_they_are_complete_or_gone() {
        let dir = tempfile::tempdir().unwrap();
        let partials = Arc::new(PartialUploads::new(dir.path(), Some(Bytes::new(100)), None));
        let part = |name: &str| dir.path().join(name);
        for name in ["a.longhaul-part", "b.longhaul-part"] {
            std::fs::write(part(name), "").unwrap();
            assert!(partials.admit(&part(name), Bytes::new(50)).is_ok());
        }
        assert!(partials.admit(&part("c.longhaul-part"), Bytes::new(1)).is_err());
        assert!(partials.admit(&part("b.longhaul-part"), Bytes::new(50)).is_ok(), "it is counted once");
        std::fs::remove_file(part("a.longhaul-part")).unwrap();
        partials.check(&Disks::new(dir.path(), DISK), &Arc::default(), SystemTime::now()).await;
        assert!(partials.admit(&part("c.longhaul-part"), Bytes::new(51)).is_err());
        assert!(partials.admit(&part("c.longhaul-part"), Bytes::new(50)).is_ok());
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
        partials.scan(&disks).await;
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
        assert!(partials.admit(&part, Bytes::new(10)).is_ok());
        pause(dir.path(), "f", "https://host/f");
        let later = SystemTime::now() + Duration::from_secs(20);
        partials.check(&Disks::new(dir.path(), DISK), &Arc::default(), later).await;
        assert!(part.exists());
    }

    #[tokio::test]
    async fn file_system_that_hangs_is_left_out_of_a_round() {
        let (hung, sound) = (
            Disks::new(Path::new("/"), DiskLimits { deadline: Duration::from_millis(50), ..DISK }),
            Disks::new(Path::new("/"), DISK),
        );
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let (mut round, path) = (Vec::new(), Path::new("/"));
        let wait = move |_: &Path| held.recv().is_ok();
        assert_eq!(run(hung.of(&[]), &mut round, path, wait).await, None);
        assert_eq!(run(hung.of(&[]), &mut round, path, |_| 5).await, None);
        assert_eq!(run(sound.of(&[]), &mut round, path, |_| 5).await, Some(5));
        drop(release);
    }
}
