//! A FUSE file system whose daemon can stop answering (fuse(4), include/uapi/linux/fuse.h).

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::support::skip;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Daemon {
    /// Answers all requests except FLUSH, of which the kernel then sends no more; discards written
    /// data.
    Answers,
    /// Also answers FLUSH, on which closing a file waits.
    AnswersFlush,
    /// Answers all requests but READDIR and FLUSH: a directory can be opened but not listed.
    ListsNothing,
    /// Reads no requests: the kernel aborts waiting threads when their process is killed.
    ReadsNothing,
    /// Reads requests without answering: waiting threads cannot be killed.
    AnswersNothing,
    /// Exits: the kernel fails all requests.
    Ends,
}

/// What the daemon's thread and the test share.
#[derive(Default)]
struct SharedState {
    mode: AtomicU8,
    /// The mode by which the daemon works.
    seen: AtomicU8,
    /// Requests that the daemon has read and does not answer.
    unanswered: AtomicUsize,
}

pub(crate) struct FuseMount {
    point: PathBuf,
    shared: Arc<SharedState>,
    daemon: Option<JoinHandle<()>>,
    /// Where the kernel shows the connections of all FUSE file systems.
    control: TempDir,
}

impl FuseMount {
    /// Mounts at `point`; `None`, with the reason printed, if not permitted.
    pub(crate) fn new(point: &Path, daemon: Daemon) -> Option<Self> {
        let mounted = File::options().read(true).write(true).open("/dev/fuse").and_then(|device| {
            let data = format!(
                "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions\0",
                device.as_raw_fd()
            );
            let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
            mount("test", point, "fuse", MountFlags::empty(), data)?;
            Ok(device)
        });
        match mounted {
            Ok(device) => {
                let control = tempfile::tempdir().unwrap();
                mount("test", control.path(), "fusectl", MountFlags::empty(), None).unwrap();
                let mode = AtomicU8::new(daemon as u8);
                let shared = Arc::new(SharedState { mode, ..SharedState::default() });
                let (of_daemon, files) = (Arc::clone(&shared), Files::default());
                let daemon = std::thread::spawn(move || files.answer(device, &of_daemon));
                Some(Self { point: point.to_owned(), shared, daemon: Some(daemon), control })
            }
            Err(error) => {
                skip(&format!("cannot mount FUSE: {error}"));
                None
            }
        }
    }

    /// Changes the mode; returns once the daemon works by it.
    pub(crate) fn set(&self, daemon: Daemon) {
        self.shared.mode.store(daemon as u8, Ordering::Release);
        if daemon != Daemon::Ends {
            super::wait_until("the daemon works by its new mode", || {
                self.shared.seen.load(Ordering::Acquire) == daemon as u8
            });
        }
    }

    /// Waits until the daemon has read a request and not answered it.
    pub(crate) fn wait_for_unanswered(&self) {
        super::wait_until("a request is read", || self.shared.unanswered.load(Ordering::Relaxed) > 0);
    }

    /// Waits until this many requests wait for their answers, or for the daemon to begin.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = self.point.to_str().unwrap().replace(' ', "\\040");
        let mount = mounts.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
        let number = mount.split(' ').nth(2).unwrap().split(':').nth(1).unwrap();
        let waiting = self.control.path().join(number).join("waiting");
        super::wait_until("requests wait for the daemon", || {
            let waiting = std::fs::read_to_string(&waiting).unwrap();
            waiting.trim().parse::<usize>().unwrap() >= count
        });
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.set(Daemon::Ends);
        unmount(&self.point, UnmountFlags::DETACH).unwrap();
        unmount(self.control.path(), UnmountFlags::DETACH).unwrap();
        self.daemon.take().unwrap().join().unwrap();
    }
}

const ROOT: u64 = 1;
const DIRECTORY: u32 = 0o40_755;

#[derive(Default)]
struct Files {
    nodes: HashMap<Vec<u8>, u64>,
    /// Size by node; one node for each file ever created.
    sizes: HashMap<u64, u64>,
}

/// Reads an integer of a request.
fn number<const LENGTH: usize>(request: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..LENGTH].copy_from_slice(&request[at..at + LENGTH]);
    u64::from_le_bytes(bytes)
}

fn names(body: &[u8]) -> Vec<Vec<u8>> {
    body.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Files {
    /// Answers requests until the mode is [`Daemon::Ends`]; closing the device fails pending
    /// requests.
    fn answer(mut self, mut device: File, shared: &SharedState) {
        const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let mut request = vec![0; 1 << 20];
        loop {
            let mode = shared.mode.load(Ordering::Acquire);
            shared.seen.store(mode, Ordering::Release);
            if mode == Daemon::Ends as u8 {
                return;
            }
            if mode == Daemon::ReadsNothing as u8 {
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            }
            if poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&TICK)).unwrap() == 0 {
                continue;
            }
            let length = match device.read(&mut request) {
                Ok(length) => length,
                // The request was interrupted before it was read.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted) => {
                    continue;
                }
                // The file system was unmounted.
                Err(_) => return,
            };
            let request = &request[..length];
            let (operation, unique, node) =
                (number::<4>(request, 4), number::<8>(request, 8), number::<8>(request, 16));
            let begins = operation == INIT;
            if mode == Daemon::AnswersNothing as u8 && !begins {
                shared.unanswered.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if mode == Daemon::ListsNothing as u8 && operation == READDIR {
                continue;
            }
            let flushed = operation == FLUSH && mode == Daemon::AnswersFlush as u8;
            let outcome =
                if flushed { Some(Ok(Vec::new())) } else { self.perform(operation, node, &request[40..]) };
            let Some(outcome) = outcome else { continue };
            let (error, body) = match outcome {
                Ok(body) => (0, body),
                Err(errno) => (-errno.raw_os_error(), Vec::new()),
            };
            let mut reply = words(&[16 + body.len() as u32, error as u32]);
            reply.extend(unique.to_le_bytes());
            reply.extend(body);
            // Fails if the request was interrupted.
            let _ = device.write_all(&reply);
        }
    }

    /// Performs an operation; `None` if it has no reply.
    fn perform(&mut self, operation: u64, node: u64, body: &[u8]) -> Option<Result<Vec<u8>, Errno>> {
        Some(Ok(match operation {
            // FORGET, INTERRUPT and BATCH_FORGET.
            2 | 36 | 42 => return None,
            // Version 7.31, FUSE_PARALLEL_DIROPS, writes of 128 KiB.
            INIT => {
                let mut reply = words(&[7, 31, 1 << 16, 1 << 18, 0x0010_0010, 128 << 10, 1]);
                reply.resize(64, 0);
                reply
            }
            LOOKUP => match self.nodes.get(&names(body)[0]) {
                Some(&node) => self.entry(node),
                None => return Some(Err(Errno::NOENT)),
            },
            GETATTR => self.attributes(node),
            SETATTR => {
                // FATTR_SIZE.
                if number::<4>(body, 0) & 8 != 0 {
                    self.sizes.insert(node, number::<8>(body, 16));
                }
                self.attributes(node)
            }
            CREATE => {
                let node = self.sizes.len() as u64 + ROOT + 1;
                self.nodes.insert(names(&body[16..])[0].clone(), node);
                self.sizes.insert(node, 0);
                [self.entry(node), vec![0; 16]].concat()
            }
            // FOPEN_KEEP_CACHE.
            OPEN => words(&[0, 0, 2, 0]),
            OPENDIR => vec![0; 16],
            READ => vec![0; number::<4>(body, 16) as usize],
            READDIR => Vec::new(),
            WRITE => {
                let (offset, length) = (number::<8>(body, 8), number::<4>(body, 16));
                let size = self.sizes.entry(node).or_default();
                *size = (*size).max(offset + length);
                words(&[length as u32, 0])
            }
            UNLINK => {
                self.nodes.remove(&names(body)[0]);
                Vec::new()
            }
            RENAME | RENAME2 => {
                let names = names(&body[if operation == RENAME { 8 } else { 16 }..]);
                if let Some(node) = self.nodes.remove(&names[0]) {
                    self.nodes.insert(names[1].clone(), node);
                }
                Vec::new()
            }
            STATFS => {
                [[0xff, 0xff, 0xff, 0, 0, 0, 0, 0].repeat(5), words(&[4096, 255, 4096, 0]), vec![0; 24]]
                    .concat()
            }
            RELEASE | RELEASEDIR | FSYNC | FSYNCDIR => Vec::new(),
            _ => return Some(Err(Errno::NOSYS)),
        }))
    }

    /// Creates struct fuse_attr_out, valid for an hour.
    fn attributes(&self, node: u64) -> Vec<u8> {
        [words(&[3600, 0, 0, 0]), self.attribute(node)].concat()
    }

    /// Creates struct fuse_entry_out; attributes are valid for an hour, names are looked up each
    /// time.
    fn entry(&self, node: u64) -> Vec<u8> {
        [node.to_le_bytes().to_vec(), vec![0; 16], words(&[3600, 0, 0, 0]), self.attribute(node)].concat()
    }

    /// Creates struct fuse_attr.
    fn attribute(&self, node: u64) -> Vec<u8> {
        let mode = if node == ROOT { DIRECTORY } else { 0o100_644 };
        let size = self.sizes.get(&node).copied().unwrap_or(0);
        let numbers = [node, size, size.div_ceil(512), 0, 0, 0];
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        // Nanoseconds, mode, links, owner, device, block size, flags.
        numbers.chain(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])).collect()
    }
}

const LOOKUP: u64 = 1;
const GETATTR: u64 = 3;
const SETATTR: u64 = 4;
const UNLINK: u64 = 10;
const RENAME: u64 = 12;
const OPEN: u64 = 14;
const READ: u64 = 15;
const WRITE: u64 = 16;
const STATFS: u64 = 17;
const RELEASE: u64 = 18;
const FSYNC: u64 = 20;
const FLUSH: u64 = 25;
const INIT: u64 = 26;
const OPENDIR: u64 = 27;
const READDIR: u64 = 28;
const RELEASEDIR: u64 = 29;
const FSYNCDIR: u64 = 30;
const CREATE: u64 = 35;
const RENAME2: u64 = 45;
