//! Threads for blocking file operations, bounded for each file system: one that hangs does not hold up the others.
//!
//! The file system of a path is found in the mount table, which touches no file. That is exact where no symbolic link is followed;
//! paths through links have threads of their own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::proto::http::ReplyHead;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::reply::Reply;

/// Operations on one file system at once; fewer than [`crate::Limits::pages`], so that listings of one that hangs leave some to others.
const OPERATIONS: usize = 24;

/// The file systems below the served directory.
pub(crate) struct Disks {
    root: PathBuf,
    deadline: Duration,
    state: Mutex<DisksState>,
    /// For paths through symbolic links, which may lead to any file system.
    links: Disk,
}

struct DisksState {
    table: Option<File>,
    /// Mount points and the device of each, in the order of the table: a later one covers an earlier one.
    mounts: Vec<(PathBuf, String)>,
    disks: HashMap<String, Disk>,
}

/// One file system.
#[derive(Clone)]
pub(crate) struct Disk {
    operations: Arc<Semaphore>,
    deadline: Duration,
}

/// Why an operation has no outcome.
#[derive(Debug, Error)]
pub(crate) enum DiskError {
    #[error("the disk did not answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error("no thread could run the operation")]
    Thread,
}

impl DiskError {
    /// Returns 503.
    pub(crate) fn reply(&self) -> Reply {
        let head = ReplyHead::new(503).with("Retry-After", "30");
        Reply::explained(head, &format!("{self}; try again"))
    }
}

impl Disks {
    /// Prepares for the files below `root`; an operation that lasts longer than `deadline` is given up.
    pub(crate) fn new(root: &Path, deadline: Duration) -> Self {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let table = File::open("/proc/self/mountinfo");
        let table = table.inspect_err(|error| tracing::warn!(%error, "the mount table cannot be read: all files count as one file system"));
        let state = DisksState { table: table.ok(), mounts: Vec::new(), disks: HashMap::new() };
        Self { root, deadline, state: Mutex::new(state), links: Disk::new(deadline) }
    }

    /// Returns the file system of the path `names` below the root, where no symbolic link is followed.
    pub(crate) fn of(&self, names: &[Vec<u8>]) -> Disk {
        let mut path = self.root.clone();
        path.extend(names.iter().map(|name| OsString::from_vec(name.clone())));
        let mut state = self.lock();
        state.refresh(&self.root);
        let mount = state.mounts.iter().filter(|(point, _)| path.starts_with(point));
        // Of two at one place the later one, which covers the other.
        let device = mount.max_by_key(|(point, _)| point.as_os_str().len());
        let device = device.map(|(_, device)| device.clone()).unwrap_or_default();
        state.disks.entry(device).or_insert_with(|| Disk::new(self.deadline)).clone()
    }

    /// Returns the threads for paths through symbolic links.
    pub(crate) fn links(&self) -> &Disk {
        &self.links
    }

    fn lock(&self) -> MutexGuard<'_, DisksState> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DisksState {
    /// Reads the mount table where it has changed, which poll(2) reports: the mount points below `root`, and those that hold it.
    fn refresh(&mut self, root: &Path) {
        let Some(table) = &mut self.table else { return };
        let mut changed = [PollFd::new(&*table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !self.mounts.is_empty() && matches!(poll(&mut changed, Some(&now)), Ok(0)) {
            return;
        }
        let mut text = Vec::new();
        if table.rewind().and_then(|()| table.read_to_end(&mut text)).is_ok() {
            let mounts = text.split(|&byte| byte == b'\n').filter_map(parse_mount);
            self.mounts =
                mounts.filter(|(point, _)| point.starts_with(root) || root.starts_with(point)).collect();
        }
    }
}

/// Parses a line of /proc/self/mountinfo (proc(5)).
fn parse_mount(line: &[u8]) -> Option<(PathBuf, String)> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let point = unescape(fields.nth(1)?);
    Some((PathBuf::from(std::ffi::OsStr::from_bytes(&point)), device))
}

/// Replaces `\040` and the like by the bytes that they stand for.
fn unescape(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let code = octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

impl Disk {
    fn new(deadline: Duration) -> Self {
        Self { operations: Arc::new(Semaphore::new(OPERATIONS)), deadline }
    }

    /// Runs an operation on a blocking thread. One that exceeds the deadline keeps its thread until the kernel ends it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DiskError> {
        let run = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&self.operations).acquire_owned().await;
            let run = spawn_blocking(move || {
                let outcome = operation();
                drop(permit);
                outcome
            });
            run.await.map_err(|_| DiskError::Thread)
        };
        timeout(self.deadline, run).await.unwrap_or(Err(DiskError::Timeout(self.deadline)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        let line = b"36 35 98:0 /mnt1 /mnt/two\\040words rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(parse_mount(line), Some((PathBuf::from("/mnt/two words"), "98:0".to_owned())));
        assert_eq!(parse_mount(b""), None);
        assert_eq!(unescape(b"a\\9\\"), b"a\\9\\");
    }

    #[tokio::test]
    async fn hung_operations_do_not_hold_up_another_file_system() {
        let (hung, sound) = (Disk::new(Duration::from_millis(100)), Disk::new(Duration::from_secs(5)));
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
