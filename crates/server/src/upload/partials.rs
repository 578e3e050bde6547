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
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::PartFile;
use longhaul_engine::sink::part_names::{is_part, target_of};

use super::ActiveUploads;

/// The most directory entries scanned at the start, to bound the disk time for a large tree.
const MAX_SCANNED: usize = 100_000;

/// The partial files of a server, as far as they are known.
pub(super) struct PartialUploads {
    root: PathBuf,
    quota: Option<Bytes>,
    expiry: Option<Duration>,
    /// The space that each partial file takes, or is to take.
    known: Mutex<HashMap<PathBuf, Bytes>>,
}

/// There is not enough of the quota left.
pub(super) struct OverQuota;

impl PartialUploads {
    pub(super) fn new(root: &Path, quota: Option<Bytes>, expiry: Option<Duration>) -> Self {
        Self { root: root.to_owned(), quota, expiry, known: Mutex::default() }
    }

    pub(super) fn quota(&self) -> Option<Bytes> {
        self.quota
    }

    /// Returns when a partial file that was last written at this time expires.
    pub(super) fn expires(&self, written: SystemTime) -> Option<SystemTime> {
        written.checked_add(self.expiry?)
    }

    /// Returns how often expired files are looked for; `None` where they never expire.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        const LONGEST: Duration = Duration::from_secs(60);
        self.expiry.map(|expiry| (expiry / 4).clamp(Duration::from_millis(100), LONGEST))
    }

    /// Looks for partial files of earlier runs, and logs them: their space stays allocated until they are resumed or deleted.
    pub(super) fn scan(&self) {
        for (path, space) in find(&self.root, MAX_SCANNED) {
            tracing::info!(path = %path.display(), %space, "an unfinished upload");
            self.lock().entry(path).or_insert(space);
        }
    }

    /// Counts the partial file of an upload of `size` bytes; fails where the quota does not hold it besides the others.
    pub(super) fn admit(&self, part: &Path, size: Bytes) -> Result<(), OverQuota> {
        let mut known = self.lock();
        if let Some(quota) = self.quota {
            let others = |known: &HashMap<PathBuf, Bytes>| {
                known.iter().filter(|(path, _)| *path != part).fold(Bytes::ZERO, |sum, (_, size)| sum + *size)
            };
            if others(&known) + size > quota {
                known.retain(|path, _| path.symlink_metadata().is_ok());
            }
            if others(&known) + size > quota {
                return Err(OverQuota);
            }
        }
        known.insert(part.to_owned(), size);
        Ok(())
    }

    /// Returns the space of all partial files that exist.
    pub(super) fn used(&self) -> Bytes {
        let mut known = self.lock();
        known.retain(|path, _| path.symlink_metadata().is_ok());
        known.values().fold(Bytes::ZERO, |sum, size| sum + *size)
    }

    /// Deletes the partial files that have expired and that no upload uses.
    pub(super) fn expire(&self, active: &Arc<ActiveUploads>, now: SystemTime) {
        let paths: Vec<PathBuf> = self.lock().keys().cloned().collect();
        for path in paths {
            match self.expire_one(&path, active, now) {
                Ok(false) => {}
                Ok(true) => {
                    tracing::info!(path = %path.display(), "an expired upload is deleted");
                    self.lock().remove(&path);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => drop(self.lock().remove(&path)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "an expired upload cannot be deleted");
                }
            }
        }
    }

    fn expire_one(&self, path: &Path, active: &Arc<ActiveUploads>, now: SystemTime) -> io::Result<bool> {
        let is_expired = || {
            let written = path.symlink_metadata()?.modified()?;
            Ok::<_, io::Error>(self.expires(written).is_some_and(|expires| expires <= now))
        };
        let name = path.file_name().and_then(|name| target_of(name.as_bytes()));
        let (Some(above), Some(name)) = (path.parent(), name) else { return Ok(false) };
        if !is_expired()? {
            return Ok(false);
        }
        let part = match PartFile::open_in(Directory::open(above)?, OsStr::from_bytes(name)) {
            Ok(part) => part,
            Err(OutputError::Busy(_)) => return Ok(false),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        // File systems without file locks have only this one. An upload may have gone on since.
        let Some(_lock) = active.lock_part(part.identity()?) else { return Ok(false) };
        let expired = is_expired()?;
        if expired {
            part.discard();
        }
        Ok(expired)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Bytes>> {
        // Nothing panics while the lock is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds partial files below a directory, and the space allocated to each; skips what cannot be read.
fn find(root: &Path, most: usize) -> Vec<(PathBuf, Bytes)> {
    let (mut found, mut directories, mut looked) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            looked += 1;
            if looked > most {
                return found;
            }
            // Symbolic links are not followed: they may form cycles.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() && is_part(entry.file_name().as_encoded_bytes()) => {
                    // `st_blocks` counts units of 512 bytes.
                    let space = entry.metadata().map(|metadata| Bytes::new(metadata.blocks() * 512));
                    found.extend(space.map(|space| (entry.path(), space)));
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_files_are_found_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        std::os::unix::fs::symlink(dir.path(), below.join("round")).unwrap();
        for name in ["f", "f.longhaul-part", "f.longhaul-journal"] {
            std::fs::write(below.join(name), [7; 10_000]).unwrap();
        }
        let found = find(dir.path(), MAX_SCANNED);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == below.join("f.longhaul-part") && found[0].1 >= Bytes::new(10_000));
        assert_eq!(find(dir.path(), 1), []);
        assert_eq!(find(&dir.path().join("none"), MAX_SCANNED), []);
    }

    #[test]
    fn quota_counts_partial_files_while_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let partials = PartialUploads::new(dir.path(), Some(Bytes::new(100)), None);
        let part = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(part(name), "").unwrap();
            assert!(partials.admit(&part(name), Bytes::new(50)).is_ok());
        }
        assert!(partials.admit(&part("c"), Bytes::new(1)).is_err());
        assert!(partials.admit(&part("b"), Bytes::new(50)).is_ok(), "it is counted once");
        std::fs::remove_file(part("a")).unwrap();
        assert!(partials.admit(&part("c"), Bytes::new(51)).is_err());
        assert!(partials.admit(&part("c"), Bytes::new(50)).is_ok());
    }

    #[test]
    fn expired_file_is_deleted_unless_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let second = Duration::from_secs(1);
        let partials = PartialUploads::new(dir.path(), None, Some(10 * second));
        for name in ["f.longhaul-part", "f.longhaul-journal", "g.longhaul-part", "h"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        partials.scan();
        let (active, now) = (Arc::default(), SystemTime::now());
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        partials.expire(&active, now + 5 * second);
        assert_eq!(names().len(), 4);
        let held = PartFile::open_in(Directory::open(dir.path()).unwrap(), OsStr::new("g")).unwrap();
        partials.expire(&active, now + 20 * second);
        assert_eq!(names(), ["g.longhaul-part", "h"]);
        drop(held);
        partials.expire(&active, now + 20 * second);
        assert_eq!((names(), partials.used()), (vec!["h".to_owned()], Bytes::ZERO));
    }
}
