//! When partial files expire, and the deletion of those that have.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::StoredJournal;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::PartFile;
use longhaul_engine::sink::part_names::target_of;
use tokio::task::JoinSet;

use super::{DirectoryNames, PartialUploads, run};
use crate::paths::disks::{Disk, Disks};
use crate::upload::registry::active::ActiveUploads;
use crate::upload::registry::upload_journal::is_upload;

impl PartialUploads {
    /// Returns when a partial file that was last changed at this time expires.
    pub(crate) fn expires(&self, changed: SystemTime) -> Option<SystemTime> {
        changed.checked_add(self.expiry?)
    }

    /// Returns how often expired and missing files are looked for.
    pub(crate) fn check_interval(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(60);
        self.expiry.map_or(LONGEST, |expiry| (expiry / 4).clamp(Duration::from_millis(100), LONGEST))
    }

    /// Deletes the partial files that have expired and that no upload uses; stops counting those
    /// that others have deleted.
    pub(crate) async fn check(self: &Arc<Self>, disks: &Disks, active: &Arc<ActiveUploads>, now: SystemTime) {
        let parts: Vec<_> =
            self.known.lock().parts.iter().map(|(path, known)| (path.clone(), known.admission)).collect();
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
                let mut known = self.known.lock();
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
        // File systems without file locks have only this one. An upload may have gone on since, or
        // a download begun.
        let Some(_lock) = active.lock_part(part.identity()?) else { return Ok(false) };
        let is_upload =
            part.journal().ok().and_then(StoredJournal::sound).is_some_and(|found| is_upload(&found));
        let expired = is_expired()? && is_upload;
        if expired {
            self.discard(&part);
        }
        Ok(expired)
    }

    /// Returns the names of a file's directory below the root.
    fn directory_names(&self, path: &Path) -> DirectoryNames {
        let below = path.parent().and_then(|above| above.strip_prefix(&self.root).ok());
        below.into_iter().flatten().map(|name| name.as_bytes().to_vec()).collect()
    }
}
