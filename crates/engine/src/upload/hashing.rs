//! The source's digest, computed while the file is sent.
//!
//! A thread of low priority follows the sender through the page cache. A file that is read past the cache is read a
//! second time: while the sender's ring is full, when the device is idle, and the rest after the last byte is sent.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::error::UploadError;
use super::progress::UploadProgress;
use crate::digest::{PrefixDigest, WantedDigests};
use crate::send::{ReadAhead, Reader, SourceFile};
use crate::source::http::HttpError;
use crate::threads::named;

/// How much is read at once.
const PIECE: Bytes = Bytes::mib(1);
/// How often the sender's progress is checked.
const TICK: Duration = Duration::from_millis(10);
/// A tenth of the scheduler's weight of a sending thread.
const NICE: i32 = 10;

/// A digest that its own thread computes.
pub(super) struct Hashing {
    hashed: Receiver<Result<Checksum, UploadError>>,
    /// Kept once it is known: every attempt to complete the upload needs it.
    hash: Option<Checksum>,
}

impl Hashing {
    /// Starts the thread that follows the sender.
    pub(super) fn start<'scope>(
        threads: &'scope Scope<'scope, '_>,
        (source, reader): (&'scope Arc<SourceFile>, Reader),
        progress: &'scope UploadProgress<'scope>,
        algorithm: Algorithm,
    ) -> Result<Self, UploadError> {
        let (tell, hashed) = crossbeam_channel::bounded(1);
        // The receiver is gone where the upload has failed.
        let hash = move || drop(tell.send(follow(source, reader, progress, algorithm)));
        named("hasher")
            .spawn_scoped(threads, hash)
            .map_err(|error| UploadError::Thread("the digest", error))?;
        Ok(Self { hashed, hash: None })
    }

    /// Returns the digest; `None` where it is not known within `limit`.
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
}

/// Computes the digest of the file, never ahead of the sender.
fn follow(
    source: &Arc<SourceFile>,
    reader: Reader,
    progress: &UploadProgress<'_>,
    algorithm: Algorithm,
) -> Result<Checksum, UploadError> {
    // Linux applies it to the calling thread. A failure only leaves the thread its usual priority.
    let _ = rustix::process::setpriority_process(None, NICE);
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
    let mut buffer = vec![0; PIECE.as_usize()];
    let mut at = Bytes::ZERO;
    while at < progress.size {
        let ready = progress.read_so_far();
        if ready < progress.size && ready < at + PIECE {
            wait(progress)?;
            continue;
        }
        let most = (progress.size - at).min(PIECE).as_usize();
        match source.file().read_at(&mut buffer[..most], at.get()) {
            Ok(0) => return Err(UploadError::Changed(source.path().clone())),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                at += Bytes::new(n as u64);
                progress.hashed.store(at.get(), Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(UploadError::cannot_read(source.path().clone(), error)),
        }
        if progress.cancel.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
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
    let mut ahead = ReadAhead::start(Arc::clone(source), alignment, all)
        .map_err(|error| UploadError::cannot_read(source.path().clone(), error))?;
    while !ahead.is_done() {
        if progress.read_so_far() < progress.size
            && progress.ring().is_none_or(|ring| ring.in_use < ring.count)
        {
            wait(progress)?;
            continue;
        }
        if progress.cancel.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
        let block = ahead.next(PIECE).map_err(UploadError::of_reading)?;
        hasher.update(block);
        let read = block.len();
        ahead.consume(read);
    }
    Ok(())
}
