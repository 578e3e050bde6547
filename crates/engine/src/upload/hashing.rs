//! The source's digest, computed while the file is sent.
//!
//! | | BLAKE3, in any order of ranges | other digests, in the order of the file |
//! |---|---|---|
//! | O_DIRECT | each block is hashed in the sender's ring | read a second time, while that ring is full, and the rest at the end |
//! | page cache: sendfile, or a copy for TLS | a thread follows the senders through the page cache, range by range | the thread follows from the start |
//!
//! Bytes that the server has from an earlier run are read meanwhile.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::context::UploadContext;
use super::error::UploadError;
use super::progress::UploadProgress;
use crate::cancel::Cancel;
use crate::digest::{FileDigests, PrefixDigest, WantedDigests};
use crate::send::{ReadAhead, Reader, SourceFile};
use crate::source::http::HttpError;
use crate::threads::named;
use crate::tree_digest::TreeDigest;

/// The bytes read at once.
const READ_SIZE: Bytes = Bytes::mib(1);
/// The bytes read by one ring past the page cache.
const PAST_THE_CACHE: Bytes = Bytes::mib(64);
/// The interval at which the sender's progress is checked.
const TICK: Duration = Duration::from_millis(10);
/// The nice value, which gives a tenth of the scheduler's weight of a sending thread.
const NICE: i32 = 10;

/// A digest computed on a separate thread.
pub(super) struct Hashing {
    hashed: Receiver<Result<Checksum, UploadError>>,
    /// Kept once known, because every attempt to complete the upload needs it.
    hash: Option<Checksum>,
}

impl Hashing {
    /// Starts the thread that follows the sender.
    pub(super) fn start<'scope>(
        threads: &'scope Scope<'scope, '_>,
        context: &UploadContext<'scope>,
        algorithm: Algorithm,
    ) -> Result<Self, UploadError> {
        let UploadContext { source, reader, progress, .. } = *context;
        let (sender, hashed) = crossbeam_channel::bounded(1);
        // A file of a single block has no tree.
        let tree = Some(progress.size).filter(|_| algorithm == Algorithm::Blake3).and_then(TreeDigest::new);
        let tree = tree.map(Arc::new);
        if let Some(tree) = &tree {
            progress.set_tree(Arc::clone(tree));
        }
        let hash = move || {
            // Linux applies the call to the calling thread. A failure only leaves the thread its
            // usual priority.
            let _ = rustix::process::setpriority_process(None, NICE);
            let hashed = match tree {
                Some(tree) => follow_ranges(source, reader, progress, &tree),
                None => follow_prefix(source, reader, progress, algorithm),
            };
            // The receiver is dropped if the upload has failed.
            drop(sender.send(hashed));
        };
        named("hasher").spawn_scoped(threads, hash).map_err(|error| {
            let message = format!("cannot start a thread for the digest: {error}");
            Failure::new(FailureKind::Host, message)
        })?;
        Ok(Self { hashed, hash: None })
    }

    /// Returns the digest; `None` if it is not complete within `limit`.
    pub(super) fn within(&mut self, limit: Duration) -> Result<Option<Checksum>, UploadError> {
        if self.hash.is_none() {
            self.hash = match self.hashed.recv_timeout(limit) {
                Ok(hashed) => Some(hashed?),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(UploadError::NoDigest),
            };
        }
        Ok(self.hash.clone())
    }

    /// Replaces the digest by that of the source read again.
    pub(super) fn replace(&mut self, hash: Checksum) {
        self.hash = Some(hash);
    }
}

/// Adds the ranges that the senders do not add themselves to the tree, never ahead of the senders.
fn follow_ranges(
    source: &Arc<SourceFile>,
    reader: Reader,
    progress: &UploadProgress<'_>,
    tree: &Arc<TreeDigest>,
) -> Result<Checksum, UploadError> {
    let whole: RangeSet = [ByteRange::with_len(0, progress.size)].into_iter().collect();
    let mut buffer = vec![0; READ_SIZE.as_usize()];
    loop {
        progress.check_cancel()?;
        let is_sent = progress.read_so_far() >= progress.size;
        let hashed = tree.missing().first().map_or(progress.size.get(), |gap| gap.start());
        progress.hashed.store(hashed, Ordering::Relaxed);
        if let (true, Some(root)) = (is_sent, tree.root()) {
            return Checksum::new(Algorithm::Blake3, root.as_bytes()).ok_or(UploadError::NoDigest);
        }
        let readable = if is_sent { &whole } else { &progress.readable() };
        match reader {
            Reader::PageCache { .. } => match tree.missing_in(readable, READ_SIZE) {
                Some(part) => {
                    let bytes = &mut buffer[..part.len().as_usize()];
                    read(source, part.start(), bytes)?;
                    tree.add(part.start(), bytes);
                }
                None => wait(progress)?,
            },
            Reader::Direct { alignment } => match tree.missing_in(readable, PAST_THE_CACHE) {
                Some(part) if is_sent || !device_is_busy(progress) => {
                    read_past_the_cache(source, alignment, part, progress, tree)?;
                }
                _ => wait(progress)?,
            },
        }
    }
}

/// Fills `bytes` from the file through the page cache.
fn read(source: &SourceFile, at: u64, bytes: &mut [u8]) -> Result<(), UploadError> {
    source.file().read_exact_at(bytes, at).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => UploadError::changed(source.path()),
        _ => UploadError::cannot_read(source.path(), &error),
    })
}

/// Computes digests of a range of the file, read through the page cache.
pub(super) fn digests_of(
    source: &SourceFile,
    range: ByteRange,
    wanted: WantedDigests,
    cancel: &Cancel,
) -> Result<FileDigests, UploadError> {
    let mut digest = PrefixDigest::new(wanted);
    let mut buffer = vec![0; READ_SIZE.min(range.len()).as_usize()];
    let mut at = range.start();
    while at < range.end() {
        if cancel.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
        let most = buffer.len().min(Bytes::new(range.end() - at).as_usize());
        read(source, at, &mut buffer[..most])?;
        digest.update(&buffer[..most]);
        at += most as u64;
    }
    Ok(digest.digests())
}

/// Reads a range past the page cache; the ring adds it to the tree.
fn read_past_the_cache(
    source: &Arc<SourceFile>,
    alignment: u64,
    part: ByteRange,
    progress: &UploadProgress<'_>,
    tree: &Arc<TreeDigest>,
) -> Result<(), UploadError> {
    let mut ahead = ReadAhead::start(Arc::clone(source), alignment, part, Some(tree))
        .map_err(|error| UploadError::cannot_read(source.path(), &error))?;
    while !ahead.is_done() {
        progress.check_cancel()?;
        let length = ahead.next(part.len()).map_err(UploadError::of_reading)?.len();
        ahead.consume(length);
    }
    Ok(())
}

/// Returns whether the sender waits for the device, which the ring shows by not being full.
fn device_is_busy(progress: &UploadProgress<'_>) -> bool {
    progress.ring().is_none_or(|ring| ring.in_use < ring.count)
}

/// Computes the digest in the order of the file, never ahead of the sender.
fn follow_prefix(
    source: &Arc<SourceFile>,
    reader: Reader,
    progress: &UploadProgress<'_>,
    algorithm: Algorithm,
) -> Result<Checksum, UploadError> {
    let mut hasher = PrefixDigest::new(WantedDigests { whole: Some(algorithm), pieces: None });
    match reader {
        Reader::PageCache { .. } => through_the_cache(source, progress, &mut hasher)?,
        Reader::Direct { alignment } => past_the_cache(source, alignment, progress, &mut hasher)?,
    }
    hasher.digests().whole.ok_or(UploadError::NoDigest)
}

/// Waits for the sender's progress.
fn wait(progress: &UploadProgress<'_>) -> Result<(), UploadError> {
    if progress.cancel.sleep(TICK) { Err(HttpError::Cancelled.into()) } else { Ok(()) }
}

fn through_the_cache(
    source: &SourceFile,
    progress: &UploadProgress<'_>,
    hasher: &mut PrefixDigest,
) -> Result<(), UploadError> {
    let mut buffer = vec![0; READ_SIZE.as_usize()];
    let mut at = Bytes::ZERO;
    while at < progress.size {
        let ready = progress.read_so_far();
        if ready < progress.size && ready < at + READ_SIZE {
            wait(progress)?;
            continue;
        }
        let most = (progress.size - at).min(READ_SIZE).as_usize();
        read(source, at.get(), &mut buffer[..most])?;
        hasher.update(&buffer[..most]);
        at += Bytes::new(most as u64);
        progress.hashed.store(at.get(), Ordering::Relaxed);
        progress.check_cancel()?;
    }
    Ok(())
}

fn past_the_cache(
    source: &Arc<SourceFile>,
    alignment: u64,
    progress: &UploadProgress<'_>,
    hasher: &mut PrefixDigest,
) -> Result<(), UploadError> {
    let all = ByteRange::with_len(0, progress.size);
    let mut ahead = ReadAhead::start(Arc::clone(source), alignment, all, None)
        .map_err(|error| UploadError::cannot_read(source.path(), &error))?;
    while !ahead.is_done() {
        if progress.read_so_far() < progress.size && device_is_busy(progress) {
            wait(progress)?;
            continue;
        }
        progress.check_cancel()?;
        let block = ahead.next(READ_SIZE).map_err(UploadError::of_reading)?;
        hasher.update(block);
        let read = block.len();
        ahead.consume(read);
    }
    Ok(())
}
