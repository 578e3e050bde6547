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
use longhaul_core::failure::Failure;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::context::UploadContext;
use super::error::UploadError;
use super::progress::UploadProgress;
use crate::cancel::Cancel;
use crate::digest::{FileDigests, PrefixDigest, WantedDigests};
use crate::send::{ReadAhead, Reader, SourceFile};
use crate::threads::{named, not_started};
use crate::tree_digest::TreeDigest;

/// The bytes read at once.
const READ_SIZE: Bytes = Bytes::mib(1);
/// The bytes read by one ring past the page cache.
const PAST_THE_CACHE: Bytes = Bytes::mib(64);
/// The interval at which the sender's progress is checked.
const PROGRESS_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The nice value, which gives a tenth of the scheduler's weight of a sending thread.
const NICE: i32 = 10;

/// A digest computed on a separate thread.
pub(super) struct Hashing {
    hashed: Receiver<Result<Checksum, UploadError>>,
    /// Kept once known, because every attempt to complete the upload needs it.
    hash: Option<Checksum>,
}

impl Hashing {
    /// Starts the thread that follows the sender, unless it runs already.
    pub(super) fn start<'scope>(
        threads: &'scope Scope<'scope, '_>,
        context: &UploadContext<'scope>,
        algorithm: Algorithm,
    ) -> Result<(), UploadError> {
        let UploadContext { source, reader, progress, .. } = *context;
        let mut hashing = progress.hashing.lock();
        if hashing.is_some() {
            return Ok(());
        }
        let (sender, hashed) = crossbeam_channel::bounded(1);
        let digest = GrowingDigest::new(algorithm, progress.size);
        if let GrowingDigest::Tree(tree) = &digest {
            // Set once, under the lock of `hashing`.
            let _ = progress.tree.set(Arc::clone(tree));
        }
        let hash = move || {
            // Linux applies the call to the calling thread. A failure only leaves the thread its
            // usual priority.
            let _ = rustix::process::setpriority_process(None, NICE);
            // The receiver is dropped if the upload has failed.
            drop(sender.send(follow(source, reader, progress, digest)));
        };
        named("hasher").spawn_scoped(threads, hash).map_err(|error| not_started("the digest", &error))?;
        *hashing = Some(Self { hashed, hash: None });
        Ok(())
    }

    /// Returns the digest; `None` if it is not complete within `limit`.
    pub(super) fn within(&mut self, limit: Duration) -> Result<Option<Checksum>, UploadError> {
        if self.hash.is_none() {
            self.hash = match self.hashed.recv_timeout(limit) {
                Ok(hashed) => Some(hashed?),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(UploadError::no_digest()),
            };
        }
        Ok(self.hash.clone())
    }

    /// Replaces the digest by that of the source read again.
    pub(super) fn replace(&mut self, hash: Checksum) {
        self.hash = Some(hash);
    }
}

/// The digest, to which the thread adds ranges as they are read.
enum GrowingDigest {
    /// Ranges are added in any order; a ring adds its blocks itself.
    Tree(Arc<TreeDigest>),
    /// Ranges are added in the order of the file.
    Prefix(PrefixDigest),
}

impl GrowingDigest {
    fn new(algorithm: Algorithm, size: Bytes) -> Self {
        // A file of a single block has no tree.
        let tree = if algorithm == Algorithm::Blake3 { TreeDigest::new(size) } else { None };
        let prefix = || PrefixDigest::new(WantedDigests { whole: Some(algorithm), pieces: None });
        tree.map_or_else(|| Self::Prefix(prefix()), |tree| Self::Tree(Arc::new(tree)))
    }

    /// Returns the offset up to which the file of `size` bytes is hashed without a gap.
    fn hashed(&self, size: Bytes) -> u64 {
        match self {
            Self::Tree(tree) => tree.missing().first().map_or(size.get(), |gap| gap.start()),
            Self::Prefix(digest) => digest.hashed(),
        }
    }

    /// Returns a range of at most `most` bytes that is to be added next and is `readable`.
    fn missing_in(&self, readable: &RangeSet, most: Bytes, size: Bytes) -> Option<ByteRange> {
        match self {
            Self::Tree(tree) => tree.missing_in(readable, most),
            Self::Prefix(digest) => {
                let next = ByteRange::new(digest.hashed(), size.get().min(digest.hashed() + most.get()));
                (!next.is_empty() && readable.gaps(next).is_empty()).then_some(next)
            }
        }
    }

    fn add(&mut self, start: u64, bytes: &[u8]) {
        match self {
            Self::Tree(tree) => tree.add(start, bytes),
            Self::Prefix(digest) => digest.update(bytes),
        }
    }

    /// Returns the checksum of a file that is hashed whole.
    fn checksum(&self) -> Option<Checksum> {
        match self {
            Self::Tree(tree) => Checksum::new(Algorithm::Blake3, tree.root()?.as_bytes()),
            Self::Prefix(digest) => digest.digests().whole,
        }
    }
}

/// Adds the ranges that the senders do not add themselves, never ahead of the senders in the page
/// cache.
fn follow(
    source: &Arc<SourceFile>,
    reader: Reader,
    progress: &UploadProgress<'_>,
    mut digest: GrowingDigest,
) -> Result<Checksum, UploadError> {
    let size = progress.size;
    let whole: RangeSet = [ByteRange::with_len(0, size)].into_iter().collect();
    let mut buffer = vec![0; READ_SIZE.as_usize()];
    loop {
        progress.check_cancel()?;
        let is_sent = progress.read_so_far() >= size;
        let hashed = digest.hashed(size);
        progress.hashed.store(hashed, Ordering::Relaxed);
        if is_sent && hashed >= size.get() {
            return digest.checksum().ok_or_else(UploadError::no_digest);
        }
        // Past the page cache, a digest in the order of the file reads everything a second time.
        let reads_twice = matches!((reader, &digest), (Reader::Direct { .. }, GrowingDigest::Prefix(_)));
        let most = if reads_twice { size } else { PAST_THE_CACHE };
        let readable = if is_sent || reads_twice { &whole } else { &progress.readable() };
        match reader {
            Reader::PageCache { .. } => match digest.missing_in(readable, READ_SIZE, size) {
                Some(part) => {
                    let bytes = &mut buffer[..part.len().as_usize()];
                    read(source, part.start(), bytes)?;
                    digest.add(part.start(), bytes);
                }
                None => wait(progress)?,
            },
            Reader::Direct { alignment } => match digest.missing_in(readable, most, size) {
                Some(part) => read_past_the_cache(source, alignment, part, progress, &mut digest)?,
                None => wait(progress)?,
            },
        }
    }
}

/// Fills `bytes` from the file through the page cache.
fn read(source: &SourceFile, at: u64, bytes: &mut [u8]) -> Result<(), UploadError> {
    source.during(|| source.file().read_exact_at(bytes, at)).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => source.changed().into(),
        _ => source.unreadable(&error).into(),
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
            return Err(Failure::interrupted().into());
        }
        let most = buffer.len().min(Bytes::new(range.end() - at).as_usize());
        read(source, at, &mut buffer[..most])?;
        digest.update(&buffer[..most]);
        at += most as u64;
    }
    Ok(digest.digests())
}

/// Adds a range that is read past the page cache, while the sender does not wait for the device:
/// its ring is full then.
fn read_past_the_cache(
    source: &Arc<SourceFile>,
    alignment: u64,
    part: ByteRange,
    progress: &UploadProgress<'_>,
    digest: &mut GrowingDigest,
) -> Result<(), UploadError> {
    let is_busy = || {
        let has_full_ring = progress.ring().is_some_and(|ring| ring.in_use == ring.count);
        progress.read_so_far() < progress.size && !has_full_ring
    };
    while is_busy() {
        wait(progress)?;
    }
    let tree = if let GrowingDigest::Tree(tree) = &*digest { Some(tree) } else { None };
    let mut ahead = ReadAhead::start(Arc::clone(source), alignment, part, tree)
        .map_err(|error| source.unreadable(&error))?;
    while !ahead.is_done() {
        if is_busy() {
            wait(progress)?;
            continue;
        }
        progress.check_cancel()?;
        let at = part.start() + ahead.sent().get();
        let block = ahead.next(READ_SIZE)?;
        if let GrowingDigest::Prefix(_) = digest {
            digest.add(at, block);
        }
        let length = block.len();
        ahead.consume(length);
    }
    Ok(())
}

/// Waits for the sender's progress.
fn wait(progress: &UploadProgress<'_>) -> Result<(), UploadError> {
    if progress.cancel.sleep(PROGRESS_CHECK_INTERVAL) { Err(Failure::interrupted().into()) } else { Ok(()) }
}
