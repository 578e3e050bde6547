//! Looks for the partial files of earlier runs, on all file systems at once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::units::Bytes;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::{Journal, StoredJournal};
use longhaul_engine::sink::part_file;
use longhaul_engine::sink::part_names::target_of;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DirectoryNames, PartialUploads, ScanState, run};
use crate::paths::disks::{Disk, Disks};
use crate::upload::registry::upload_journal::{holder_of, is_upload};

/// The most directory entries scanned, to bound the disk time for a large tree.
const MAX_SCANNED: usize = 100_000;

/// If no listing ends for this long, the scan lets uploads begin without the count of what it waits
/// for.
const HUNG_AFTER: Duration = Duration::from_secs(3);

/// The scan of a file system.
struct FileSystemScan {
    disk: Disk,
    /// Directories to be listed.
    waiting: Vec<DirectoryNames>,
    /// Whether one is being listed.
    is_busy: bool,
}

impl PartialUploads {
    /// Looks below `directories` for partial files of earlier runs, and logs them: their space
    /// stays allocated until they are resumed or deleted. Scans all file systems at once, each by
    /// one thread; returns the directories whose file system hangs.
    pub(in crate::upload) async fn scan(
        &self,
        disks: &Disks,
        directories: Vec<DirectoryNames>,
    ) -> Vec<DirectoryNames> {
        let (mut left, mut hung, mut listings) = (MAX_SCANNED, Vec::new(), JoinSet::new());
        let mut scans: Vec<FileSystemScan> = Vec::new();
        directories.into_iter().for_each(|names| enter(&mut scans, disks, names));
        loop {
            for (at, scan) in scans.iter_mut().enumerate().filter(|_| left > 0) {
                let Some(names) = (!scan.is_busy).then(|| scan.waiting.pop()).flatten() else { continue };
                scan.is_busy = true;
                let (disk, path) = (scan.disk.clone(), self.path_of(&names));
                listings.spawn(async move {
                    let listed = run(&disk, &path, move |path| list(path, left)).await;
                    (at, names, listed)
                });
            }
            let listed = match timeout(HUNG_AFTER, listings.join_next()).await {
                Ok(None) => break,
                Ok(Some(Ok(listed))) => listed,
                // A listing that has panicked: its file system counts as scanned.
                Ok(Some(Err(_))) => continue,
                Err(_) => {
                    self.scanned.send_replace(ScanState::OfAnswering);
                    continue;
                }
            };
            let (at, names, listed) = listed;
            scans[at].is_busy = false;
            let Some(listed) = listed else {
                hung.push(names);
                hung.append(&mut scans[at].waiting);
                continue;
            };
            left = left.saturating_sub(listed.looked);
            let below = listed.directories.into_iter().map(|name| [&names[..], &[name]].concat());
            below.for_each(|names| enter(&mut scans, disks, names));
            self.enter_found(listed.uploads);
        }
        let is_complete = hung.is_empty() && left > 0;
        self.scanned.send_replace(if is_complete { ScanState::OfAll } else { ScanState::OfAnswering });
        hung
    }

    fn enter_found(&self, uploads: Vec<FoundUpload>) {
        for FoundUpload { path, space, holder } in uploads {
            tracing::info!(path = %path.display(), %space, "an unfinished upload");
            let mut known = self.known.lock();
            if !known.parts.contains_key(&path) {
                known.insert(&path, space, (holder, None));
            }
        }
    }
}

/// Enters a directory to be listed.
fn enter(scans: &mut Vec<FileSystemScan>, disks: &Disks, names: DirectoryNames) {
    let disk = disks.of(&names);
    match scans.iter_mut().find(|scan| scan.disk.is_same(&disk)) {
        Some(scan) => scan.waiting.push(names),
        None => scans.push(FileSystemScan { disk, waiting: vec![names], is_busy: false }),
    }
}

/// What a directory holds.
#[derive(Default)]
pub(super) struct Listed {
    looked: usize,
    directories: Vec<Vec<u8>>,
    pub(super) uploads: Vec<FoundUpload>,
}

/// The partial file of an upload.
pub(super) struct FoundUpload {
    path: PathBuf,
    /// The space allocated to it.
    space: Bytes,
    /// The token that began the upload.
    holder: Option<Arc<str>>,
}

/// Lists at most `most` entries of a directory; skips what cannot be read.
pub(super) fn list(path: &Path, most: usize) -> Listed {
    let mut listed = Listed::default();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(most) {
        listed.looked += 1;
        let name = entry.file_name();
        // Symbolic links are not followed: they may form cycles.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => listed.directories.push(name.as_bytes().to_vec()),
            Ok(kind) if kind.is_file() => {
                let Some(journal) = journal_of_upload(path, name.as_bytes()) else { continue };
                let Ok(metadata) = entry.metadata() else { continue };
                // `st_blocks` counts units of 512 bytes.
                let space = Bytes::new(metadata.blocks() * 512);
                let holder = holder_of(&journal).map(Arc::from);
                listed.uploads.push(FoundUpload { path: entry.path(), space, holder });
            }
            _ => {}
        }
    }
    listed
}

/// Returns the journal of the partial file that an upload has made: a download into the served
/// directory may pause too.
fn journal_of_upload(directory: &Path, name: &[u8]) -> Option<Journal> {
    let target = target_of(name)?;
    let directory = Directory::open(directory).ok()?;
    let journal = part_file::journal_of(&directory, OsStr::from_bytes(target));
    journal.ok().and_then(StoredJournal::sound).filter(is_upload)
}
