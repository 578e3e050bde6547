//! The source's digest, computed beside the sending and never in its way.
//!
//! It follows the sender through the page cache, on a thread of low priority. A file that is read past the
//! cache is read a second time: while the sender's ring is full, so that the device has time to spare, and
//! what is then left after the last byte.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::error::UploadError;
use super::shared::Shared;
use crate::send::{ReadAhead, Reader, SourceFile};
use crate::source::http::HttpError;
use crate::threads::named;

/// How much is read at once.
const PIECE: Bytes = Bytes::mib(1);
/// How often to look whether the sender has gone on.
const TICK: Duration = Duration::from_millis(10);
/// A tenth of the weight of a thread that sends.
const NICE: i32 = 10;

/// A digest that a thread of its own computes.
pub(super) struct Hashing {
    hashed: Receiver<Result<blake3::Hash, UploadError>>,
    /// Kept once it is known: every try to complete the upload needs it.
    hash: Option<blake3::Hash>,
}

impl Hashing {
    /// Begins to follow the sender.
    pub(super) fn start<'scope>(
        threads: &'scope Scope<'scope, '_>,
        source: &'scope Arc<SourceFile>,
        reader: Reader,
        shared: &'scope Shared<'scope>,
    ) -> Result<Self, UploadError> {
        let (tell, hashed) = crossbeam_channel::bounded(1);
        // Nobody may be waiting for it any more.
        let hash = move || drop(tell.send(follow(source, reader, shared)));
        named("hasher")
            .spawn_scoped(threads, hash)
            .map_err(|error| UploadError::Thread("the digest", error))?;
        Ok(Self { hashed, hash: None })
    }

    /// Returns the digest; `None` where it is not known within `limit`.
    pub(super) fn within(&mut self, limit: Duration) -> Result<Option<blake3::Hash>, UploadError> {
        if self.hash.is_none() {
            self.hash = match self.hashed.recv_timeout(limit) {
                Ok(hashed) => Some(hashed?),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(UploadError::NoDigest),
            };
        }
        Ok(self.hash)
    }
}

/// Computes the digest as far as the sender has come, until its end.
fn follow(
    source: &Arc<SourceFile>,
    reader: Reader,
    shared: &Shared<'_>,
) -> Result<blake3::Hash, UploadError> {
    // To Linux "the calling process" is the calling thread. Without it the digest is only less polite.
    let _ = rustix::process::setpriority_process(None, NICE);
    let mut hasher = blake3::Hasher::new();
    match reader {
        Reader::PageCache { .. } => through_the_cache(source, shared, &mut hasher)?,
        Reader::Direct { alignment } => past_the_cache(source, alignment, shared, &mut hasher)?,
    }
    Ok(hasher.finalize())
}

/// Waits a little for the sender.
fn wait(shared: &Shared<'_>) -> Result<(), UploadError> {
    if shared.cancel.sleep(TICK) { Err(HttpError::Cancelled.into()) } else { Ok(()) }
}

fn through_the_cache(
    source: &SourceFile,
    shared: &Shared<'_>,
    hasher: &mut blake3::Hasher,
) -> Result<(), UploadError> {
    let mut buffer = vec![0; PIECE.as_usize()];
    let mut at = Bytes::ZERO;
    while at < shared.size {
        let ready = shared.read_so_far();
        if ready < shared.size && ready < at + PIECE {
            wait(shared)?;
            continue;
        }
        let most = (shared.size - at).min(PIECE).as_usize();
        match source.file().read_at(&mut buffer[..most], at.get()) {
            Ok(0) => return Err(UploadError::Changed(source.path().clone())),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                at += Bytes::new(n as u64);
                shared.hashed.store(at.get(), Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(UploadError::cannot_read(source.path().clone(), error)),
        }
        if shared.cancel.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
    }
    Ok(())
}

fn past_the_cache(
    source: &Arc<SourceFile>,
    alignment: u64,
    shared: &Shared<'_>,
    hasher: &mut blake3::Hasher,
) -> Result<(), UploadError> {
    let all = ByteRange::with_len(0, shared.size);
    let mut ahead = ReadAhead::start(Arc::clone(source), alignment, all)
        .map_err(|error| UploadError::cannot_read(source.path().clone(), error))?;
    while !ahead.is_done() {
        if shared.read_so_far() < shared.size && shared.ring().is_none_or(|ring| ring.in_use < ring.count) {
            wait(shared)?;
            continue;
        }
        if shared.cancel.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
        let block = ahead.next(PIECE).map_err(UploadError::of_reading)?;
        hasher.update(block);
        let read = block.len();
        ahead.consume(read);
    }
    Ok(())
}
