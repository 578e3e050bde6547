//! Threads for blocking file operations, bounded for each file system: one that hangs does not hold
//! up the others.
//!
//! The file system of a path is found in the mount table, which touches no file. That is exact
//! where no symbolic link is followed; paths through links, and listings with links to other file
//! systems, have threads of their own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::Limits;
use crate::admission::shares::{Requester, Share, Shares};
use crate::paths::mount_table::MountTable;

/// Operations on one file system at once.
const OPERATIONS: usize = 24;

/// Threads of all file systems that wait for a socket at once, besides their operations.
const SOCKET_WAITS: usize = 64;

/// The file systems below the served directory.
pub(crate) struct Disks {
    state: Mutex<DisksState>,
    shared: SharedLimits,
    /// For paths through symbolic links, which may lead to any file system.
    links: Disk,
}

struct DisksState {
    mounts: MountTable,
    disks: HashMap<String, Disk>,
}

/// What all file systems share.
#[derive(Clone)]
struct SharedLimits {
    /// An operation that lasts longer is given up.
    deadline: Duration,
    /// Uploads and listings in progress on one file system.
    uploads_per_disk: usize,
    listings_per_disk: usize,
    /// Uploads in progress on all file systems, by the number of each.
    uploads: Shares<u64>,
    /// The number of the next file system.
    next: Arc<AtomicU64>,
    /// Threads that wait for a socket in the middle of an operation.
    waits: Arc<Semaphore>,
}

/// One file system; clones share it.
#[derive(Clone)]
pub(crate) struct Disk(Arc<FileSystem>);

struct FileSystem {
    number: u64,
    operations: Arc<Semaphore>,
    /// Uploads in progress.
    uploads: Shares<Requester>,
    /// Listings being made.
    listings: Shares<Requester>,
    shared: SharedLimits,
    is_local: bool,
}

/// The place of an upload among those of its file system, and among all.
pub(crate) struct UploadSlot {
    _of_requester: Share<Requester>,
    _of_disk: Share<u64>,
}

/// The place of an operation among those of its file system.
pub(crate) struct DiskPlace {
    permit: Option<OwnedSemaphorePermit>,
    operations: Arc<Semaphore>,
    waits: Arc<Semaphore>,
}

/// What became of a place that was to be lent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lent<T> {
    /// The wait has ended, and the place is held again.
    Waited(T),
    /// Too many threads wait already: the place is still held, and nothing was waited for.
    Crowded,
    /// Another operation has the place now: this one must end.
    Lost,
}

impl DiskPlace {
    /// Runs `wait`, which needs no disk, while other operations may have the place.
    pub(crate) fn lend<T>(&mut self, wait: impl FnOnce() -> T) -> Lent<T> {
        let Ok(waiting) = self.waits.try_acquire() else { return Lent::Crowded };
        self.permit = None;
        let outcome = wait();
        drop(waiting);
        self.permit = Arc::clone(&self.operations).try_acquire_owned().ok();
        if self.permit.is_some() { Lent::Waited(outcome) } else { Lent::Lost }
    }
}

/// Why an operation has no outcome.
#[derive(Debug, Error)]
pub(crate) enum DiskError {
    #[error("the disk did not answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error("no thread could run the operation")]
    Thread,
}

impl Disks {
    /// Prepares for the files below `root`.
    pub(crate) fn new(root: &Path, limits: &Limits) -> Self {
        let state = DisksState { mounts: MountTable::new(root), disks: HashMap::new() };
        let shared = SharedLimits::new(limits);
        let links = Disk::new(&shared, false);
        Self { state: Mutex::new(state), shared, links }
    }

    /// Returns the file system of the path `names` below the root, where no symbolic link is
    /// followed.
    pub(crate) fn of(&self, names: &[Vec<u8>]) -> Disk {
        let mut state = self.state.lock();
        let DisksState { mounts, disks } = &mut *state;
        let (device, is_local) =
            mounts.of(names).map_or(("", false), |mount| (&mount.device, mount.is_local));
        if let Some(disk) = disks.get(device) {
            return disk.clone();
        }
        let disk = Disk::new(&self.shared, is_local);
        disks.insert(device.to_owned(), disk.clone());
        disk
    }

    /// Returns the threads for paths through symbolic links.
    pub(crate) fn links(&self) -> &Disk {
        &self.links
    }

    /// Waits until no upload is in progress.
    pub(crate) async fn uploads_ended(&self) {
        self.shared.uploads.all_free().await;
    }
}

impl SharedLimits {
    fn new(limits: &Limits) -> Self {
        Self {
            deadline: limits.timeouts.disk,
            uploads_per_disk: limits.uploads.per_disk,
            listings_per_disk: limits.listings.per_disk,
            uploads: Shares::new(limits.uploads.in_all, limits.uploads.first),
            next: Arc::default(),
            waits: Arc::new(Semaphore::new(SOCKET_WAITS)),
        }
    }
}

impl Disk {
    fn new(shared: &SharedLimits, is_local: bool) -> Self {
        let operations = Arc::new(Semaphore::new(OPERATIONS));
        let listings = Shares::new(shared.listings_per_disk, 0);
        let uploads = Shares::new(shared.uploads_per_disk, 0);
        let (number, shared) = (shared.next.fetch_add(1, Ordering::Relaxed), shared.clone());
        Self(Arc::new(FileSystem { number, operations, uploads, listings, shared, is_local }))
    }

    /// Makes the file system of files that have no disk: long replies of them are sent by threads
    /// too.
    pub(crate) fn of_memory() -> Self {
        Self::new(&SharedLimits::new(&Limits::default()), false)
    }

    /// Returns whether both are one file system.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether what the kernel has cached of it is found without waiting.
    pub(crate) fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Allows one more upload; `None` where the requester has its share of the file system, or that
    /// of all.
    ///
    /// Some file systems that hang leave places to another; the first upload of each has
    /// [`UploadLimits::first`](crate::UploadLimits) places more, for where many hang.
    pub(crate) fn upload_slot(&self, requester: &Requester) -> Option<UploadSlot> {
        let FileSystem { number, uploads, shared, .. } = &*self.0;
        Some(UploadSlot { _of_requester: uploads.take(requester)?, _of_disk: shared.uploads.take(number)? })
    }

    /// Allows one more listing to be made; `None` where the requester has its share.
    pub(crate) fn listing_permit(&self, requester: &Requester) -> Option<Share<Requester>> {
        self.0.listings.take(requester)
    }

    /// Drops what holds files open, on a blocking thread where that may wait for a server or a
    /// daemon.
    pub(crate) fn close(&self, files: impl Send + 'static) {
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.0.is_local) else { return };
        let operations = Arc::clone(&self.0.operations);
        runtime.spawn(async move {
            let permit = operations.acquire_owned().await;
            spawn_blocking(move || {
                drop(files);
                drop(permit);
            });
        });
    }

    /// Runs an operation on a blocking thread. One that exceeds the deadline keeps its thread until
    /// the kernel ends it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskError> {
        self.run_in_place(|_| operation()).await
    }

    /// Runs an operation that may lend its place.
    pub(crate) async fn run_in_place<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut DiskPlace) -> T + Send + 'static,
    ) -> Result<T, DiskError> {
        let run = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&self.0.operations).acquire_owned().await.ok();
            let (operations, waits) = (Arc::clone(&self.0.operations), Arc::clone(&self.0.shared.waits));
            let mut place = DiskPlace { permit, operations, waits };
            let run = spawn_blocking(move || operation(&mut place));
            run.await.map_err(|_| DiskError::Thread)
        };
        let deadline = self.0.shared.deadline;
        timeout(deadline, run).await.unwrap_or(Err(DiskError::Timeout(deadline)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UploadLimits;

    /// A disk whose operations may wait at so many places.
    fn waiting(places: usize) -> (Arc<Semaphore>, Disk) {
        let waits = Arc::new(Semaphore::new(places));
        let shared = SharedLimits { waits: Arc::clone(&waits), ..SharedLimits::new(&Limits::default()) };
        (waits, Disk::new(&shared, false))
    }

    #[tokio::test]
    async fn operation_that_waits_for_a_socket_lends_its_place_if_few_wait() {
        let (_waits, disk) = waiting(OPERATIONS);
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        let waiting: Vec<_> = (0..OPERATIONS)
            .map(|_| {
                let (disk, held) = (disk.clone(), held.clone());
                tokio::spawn(async move { disk.run_in_place(move |place| place.lend(|| held.recv())).await })
            })
            .collect();
        // Each has begun once it holds no place.
        while disk.0.shared.waits.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(disk.run(|| 5).await.ok(), Some(5));
        drop(release);
        for waiting in waiting {
            assert!(waiting.await.is_ok());
        }
        let (waits, disk) = self::waiting(1);
        let held = waits.acquire_owned().await.unwrap();
        assert_eq!(disk.run_in_place(|place| place.lend(|| 5)).await.ok(), Some(Lent::Crowded));
        drop(held);
        assert_eq!(disk.run_in_place(|place| place.lend(|| 5)).await.ok(), Some(Lent::Waited(5)));
        let operations = Arc::clone(&disk.0.operations);
        let take_all = move |place: &mut DiskPlace| {
            let mut taken = Vec::new();
            place.lend(|| {
                taken.extend(std::iter::from_fn(|| Arc::clone(&operations).try_acquire_owned().ok()));
            })
        };
        assert_eq!(disk.run_in_place(take_all).await.ok(), Some(Lent::Lost));
    }

    #[tokio::test]
    async fn hung_file_systems_leave_an_upload_to_another_up_to_a_bound() {
        let mut limits = Limits::default();
        limits.uploads = UploadLimits { per_disk: 8, in_all: 16, first: 36, ..limits.uploads };
        let shared = SharedLimits::new(&limits);
        let take_all = |disk: &Disk| {
            let tokens = (0..9).map(|number: u8| Requester::Token(number.to_string().into()));
            tokens.filter_map(|token| disk.upload_slot(&token)).collect::<Vec<_>>()
        };
        let hung: Vec<Disk> = (0..40).map(|_| Disk::new(&shared, false)).collect();
        let held: Vec<_> = hung.iter().map(take_all).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts[..6], [8, 4, 2, 1, 1, 1]);
        assert!(counts[6..].iter().all(|&count| count == 1), "{counts:?}");
        let last = take_all(&Disk::new(&shared, false));
        assert_eq!((last.len(), shared.uploads.in_all()), (1, 16 + 36));
        assert!(take_all(&Disk::new(&shared, false)).is_empty());
        drop((held, last));
        assert_eq!(shared.uploads.in_all(), 0);
        assert_eq!(take_all(&hung[39]).len(), 8);
    }

    #[tokio::test]
    async fn hung_operations_do_not_hold_up_another_file_system() {
        let [hung, sound] = [50, 60_000].map(|millis| {
            let deadline = Duration::from_millis(millis);
            let shared = SharedLimits { deadline, ..SharedLimits::new(&Limits::default()) };
            Disk::new(&shared, false)
        });
        let (release, held) = crossbeam_channel::bounded::<()>(0);
        for _ in 0..OPERATIONS + 2 {
            let held = held.clone();
            let outcome = hung.run(move || held.recv().is_ok()).await;
            assert!(matches!(outcome, Err(DiskError::Timeout(_))));
        }
        assert_eq!(sound.run(|| 5).await.ok(), Some(5));
        drop(release);
    }
}
