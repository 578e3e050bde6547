//! The digests of a served file's pieces, as a Metalink (RFC 5854): with them a client finds which part of its copy is wrong.
//!
//! Hashing a large file takes minutes. A request hashes for some seconds; where that is not enough it is answered 503 with
//! Retry-After, and the next one continues.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::http::ReplyHead;
use longhaul_core::proto::metalink::{MEDIA_TYPE, MetalinkFile, MetalinkName, Pieces};
use longhaul_core::units::Bytes;
use longhaul_engine::digest::{PrefixDigest, WantedDigests};
use longhaul_engine::send::{Piece, SourceFile};
use tokio::sync::Semaphore;

use crate::reply::Reply;

/// The query of a file's URL that asks for its Metalink.
pub(crate) const QUERY: &str = "metalink";
/// The value of Link in a reply with a file: names its Metalink (RFC 6249, section 4).
pub(crate) const LINK: &str = "<?metalink>; rel=describedby; type=\"application/metalink4+xml\"";

/// How long one request hashes: a client waits for a head for 60 s.
const SLICE: Duration = Duration::from_secs(5);
/// How many files are hashed at once, one thread each.
const AT_ONCE: usize = 2;
/// How many files' digests are kept, whole or in progress: 2 MiB each at most.
const KEPT: usize = 8;

/// Computes and keeps the digests of files.
pub(crate) struct PieceDigests {
    files: Mutex<VecDeque<Arc<HashedFile>>>,
    slots: Semaphore,
}

/// Device, inode, size, and times of modification and change, which every write changes.
type FileState = (u64, u64, u64, (i64, i64), (i64, i64));

struct HashedFile {
    state: FileState,
    length: Bytes,
    progress: Mutex<PrefixDigest>,
}

impl Default for PieceDigests {
    fn default() -> Self {
        Self { files: Mutex::default(), slots: Semaphore::new(AT_ONCE) }
    }
}

impl PieceDigests {
    /// Answers a request for the Metalink of a file.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(crate) fn reply(&self, source: &SourceFile) -> io::Result<Reply> {
        self.reply_within(source, SLICE)
    }

    fn reply_within(&self, source: &SourceFile, limit: Duration) -> io::Result<Reply> {
        let wait = |why: &str| {
            let head = ReplyHead::new(503).with("Retry-After", "1");
            Ok(Reply::explained(head, why))
        };
        let Some(name) = name(source) else {
            return Ok(Reply::text(404, "the file's name cannot stand in a Metalink"));
        };
        let hashed = self.of(source);
        let Ok(_slot) = self.slots.try_acquire() else {
            return wait("other files are being hashed; try again");
        };
        let mut digest = match hashed.progress.try_lock() {
            Ok(digest) => digest,
            Err(TryLockError::WouldBlock) => return wait("the file is being hashed; try again"),
            // Half an update may be missing.
            Err(TryLockError::Poisoned(_)) => {
                self.remove(&hashed);
                return wait("the file is hashed anew; try again");
            }
        };
        let size = source.metadata().size();
        if !hash(source, &mut digest, Instant::now() + limit)? {
            let percent = digest.hashed().saturating_mul(100) / size.max(1);
            return wait(&format!("{percent} % of the file are hashed; try again"));
        }
        if state(&source.file().metadata()?) != hashed.state {
            self.remove(&hashed);
            return wait("the file was changed meanwhile; try again");
        }
        let pieces =
            Pieces { length: hashed.length, algorithm: Algorithm::Blake3, digests: digest.digests().pieces };
        Ok(document(200, name, Bytes::new(size), pieces))
    }

    /// Returns the file's digests as far as they are known.
    fn of(&self, source: &SourceFile) -> Arc<HashedFile> {
        let state = state(source.metadata());
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.iter().find(|file| file.state == state) {
            return Arc::clone(known);
        }
        let length = Pieces::length_for(Bytes::new(source.metadata().size()));
        let wanted = WantedDigests { whole: None, pieces: Some((Algorithm::Blake3, length)) };
        let file = Arc::new(HashedFile { state, length, progress: Mutex::new(PrefixDigest::new(wanted)) });
        files.truncate(KEPT - 1);
        files.push_front(Arc::clone(&file));
        file
    }

    fn remove(&self, hashed: &Arc<HashedFile>) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| !Arc::ptr_eq(file, hashed));
    }
}

/// Makes the reply with the Metalink of a file.
pub(crate) fn document(status: u16, name: MetalinkName, size: Bytes, pieces: Pieces) -> Reply {
    let head =
        ReplyHead::new(status).with("Content-Type", MEDIA_TYPE).with("X-Content-Type-Options", "nosniff");
    let document = MetalinkFile {
        name,
        size: Some(size),
        checksums: Vec::new(),
        pieces: Some(pieces).filter(|pieces| !pieces.digests.is_empty()),
        sources: Vec::new(),
    };
    Reply::new(head, vec![Piece::Text(document.to_document().into_bytes())])
}

/// Hashes the file's rest until `deadline`, a block at least; returns whether all of it is hashed.
fn hash(source: &SourceFile, digest: &mut PrefixDigest, deadline: Instant) -> io::Result<bool> {
    let size = source.metadata().size();
    let mut block = vec![0; 1 << 20];
    while digest.hashed() < size {
        let left = usize::try_from(size - digest.hashed()).unwrap_or(usize::MAX);
        let block = &mut block[..left.min(1 << 20)];
        source.file().read_exact_at(block, digest.hashed())?;
        digest.update(block);
        if Instant::now() >= deadline {
            return Ok(digest.hashed() == size);
        }
    }
    Ok(true)
}

fn state(metadata: &std::fs::Metadata) -> FileState {
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    (metadata.dev(), metadata.ino(), metadata.size(), modified, changed)
}

/// Returns the file's name; `None` where a Metalink cannot have it.
fn name(source: &SourceFile) -> Option<MetalinkName> {
    MetalinkName::parse(source.path().file_name()?.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use longhaul_core::proto::metalink::Metalink;

    use super::*;

    fn source(path: &std::path::Path) -> SourceFile {
        SourceFile::new(File::open(path).unwrap(), path.to_owned()).unwrap()
    }

    fn document(reply: Reply) -> Pieces {
        assert_eq!(reply.status(), 200);
        let Some(Piece::Text(text)) = reply.into_body().pop() else { panic!("no text") };
        Metalink::parse(&text).unwrap().files.remove(0).pieces.unwrap()
    }

    #[test]
    fn large_file_is_hashed_in_several_requests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a & b");
        let bytes: Vec<u8> = (0..(2 << 20) + 5).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let digests = PieceDigests::default();
        let reply = || digests.reply_within(&source(&path), Duration::ZERO).unwrap();
        assert_eq!([reply().status(), reply().status()], [503, 503]);
        let pieces = document(reply());
        let hashes: Vec<_> =
            bytes.chunks(1 << 20).map(|piece| blake3::hash(piece).to_hex().to_string()).collect();
        assert_eq!(pieces.digests.iter().map(|digest| digest.hex()).collect::<Vec<_>>(), hashes);
        // Kept, until the file changes.
        assert_eq!(reply().status(), 200);
        std::fs::write(&path, &bytes[1..]).unwrap();
        assert_eq!(reply().status(), 503);
    }
}
