//! The digests of a served file's pieces, as a Metalink (RFC 5854): with them a client finds which
//! part of its copy is wrong.
//!
//! Hashing a large file takes minutes. A request hashes for some seconds, as long as its client
//! waits; where that is not enough it is answered 503 with Retry-After, and the next one continues.
//! Each client has one turn at a time, in the order of the requests.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::http::{ReplyHead, TargetPath};
use longhaul_core::proto::metalink::{MEDIA_TYPE, MetalinkFile, MetalinkName, Pieces};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::digest::{PrefixDigest, WantedDigests};
use longhaul_engine::send::SourceFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::admission::shares::{Requester, Share, Shares};
use crate::paths::file_state::FileState;
use crate::reply::Reply;

/// The query of a file's URL that asks for its Metalink.
const QUERY: &str = "metalink";
/// The value of Link in a reply with a file: names its Metalink (RFC 6249, section 4).
pub(crate) const LINK: &str = "<?metalink>; rel=describedby; type=\"application/metalink4+xml\"";

/// How long one request hashes: a client waits for a head for 60 s.
const SLICE: Duration = Duration::from_secs(5);
/// How long a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);
/// How many files are hashed at once, one thread each.
const AT_ONCE: usize = 2;
/// How many requests are hashing or wait for their turn, one of each client or token.
const WAITING: usize = 64;
/// How many files' digests are kept, whole or in progress: 2 MiB each at most. Those of one
/// requester do not push out all others, which would begin again; but a client may get some at
/// once, and all clients behind a proxy are one.
const KEPT: usize = 32;
const KEPT_OF_ONE: usize = 8;

/// Computes and keeps the digests of files.
pub(crate) struct PieceDigests {
    files: parking_lot::Mutex<VecDeque<Arc<HashedFile>>>,
    waiting: Shares<Requester>,
    /// Served in the order of the requests.
    turns: Arc<Semaphore>,
}

/// The turn of a request to hash for a while, until dropped.
pub(crate) struct HashingTurn {
    /// Raised where the client has gone.
    cancel: Cancel,
    share: Share<Requester>,
    _turn: OwnedSemaphorePermit,
}

/// Ends the hashing of a request when dropped.
pub(crate) struct HashingWatch(Cancel);

impl Drop for HashingWatch {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns whether a request is for the digests of a file.
pub(crate) fn asks_for_digests(path: &TargetPath) -> bool {
    path.query() == Some(QUERY)
}

struct HashedFile {
    state: FileState,
    /// Has asked first.
    requester: Requester,
    length: Bytes,
    /// Poisoned by a panic amid the hashing, after which the digest would be wrong.
    progress: Mutex<PrefixDigest>,
}

impl Default for PieceDigests {
    fn default() -> Self {
        // Each has one place, which is beyond those that are shared.
        let (waiting, turns) = (Shares::new(0, WAITING), Arc::new(Semaphore::new(AT_ONCE)));
        Self { files: Default::default(), waiting, turns }
    }
}

impl PieceDigests {
    /// Waits for the turn of a request; its hashing ends when the watch is dropped.
    ///
    /// # Errors
    /// 503 where the requester has a turn already, or others take too long.
    pub(crate) async fn turn(&self, requester: &Requester) -> Result<(HashingTurn, HashingWatch), Reply> {
        let share = self.waiting.take(requester).ok_or_else(|| try_again("another file is being hashed"))?;
        let Ok(Ok(turn)) = timeout(TURN_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await else {
            return Err(try_again("other files are being hashed"));
        };
        let cancel = Cancel::new();
        let watch = HashingWatch(cancel.clone());
        Ok((HashingTurn { cancel, share, _turn: turn }, watch))
    }

    /// Answers a request for the Metalink of a file.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(crate) fn reply(&self, source: &SourceFile, turn: &HashingTurn) -> io::Result<Reply> {
        self.reply_within(source, turn, SLICE)
    }

    fn reply_within(&self, source: &SourceFile, turn: &HashingTurn, limit: Duration) -> io::Result<Reply> {
        let Some(name) = name(source) else {
            return Ok(Reply::text(404, "the file's name cannot stand in a Metalink"));
        };
        let hashed = self.of(source, turn.share.holder());
        let mut digest = match hashed.progress.try_lock() {
            Ok(digest) => digest,
            Err(TryLockError::WouldBlock) => return Ok(try_again("the file is being hashed")),
            // Half an update may be missing.
            Err(TryLockError::Poisoned(_)) => {
                self.remove(&hashed);
                return Ok(try_again("the file is hashed anew"));
            }
        };
        let size = source.metadata().size();
        if !hash(source, &mut digest, &turn.cancel.child_until(Instant::now() + limit))? {
            let percent = digest.hashed().saturating_mul(100) / size.max(1);
            return Ok(try_again(&format!("{percent} % of the file are hashed")));
        }
        if FileState::of(&source.file().metadata()?) != hashed.state {
            self.remove(&hashed);
            return Ok(try_again("the file was changed meanwhile"));
        }
        let pieces =
            Pieces { length: hashed.length, algorithm: Algorithm::Blake3, digests: digest.digests().pieces };
        Ok(document(200, name, Bytes::new(size), pieces))
    }

    /// Returns the file's digests as far as they are known.
    fn of(&self, source: &SourceFile, requester: &Requester) -> Arc<HashedFile> {
        let state = FileState::of(source.metadata());
        let mut files = self.files.lock();
        if let Some(known) = files.iter().find(|file| file.state == state) {
            return Arc::clone(known);
        }
        let length = Pieces::length_for(Bytes::new(source.metadata().size()));
        let wanted = WantedDigests { whole: None, pieces: Some((Algorithm::Blake3, length)) };
        let progress = Mutex::new(PrefixDigest::new(wanted));
        let file = Arc::new(HashedFile { state, requester: requester.clone(), length, progress });
        let is_own = |file: &Arc<HashedFile>| file.requester == *requester;
        if files.iter().filter(|file| is_own(file)).count() >= KEPT_OF_ONE {
            let oldest = files.iter().rposition(is_own);
            oldest.and_then(|oldest| files.remove(oldest));
        }
        files.truncate(KEPT - 1);
        files.push_front(Arc::clone(&file));
        file
    }

    fn remove(&self, hashed: &Arc<HashedFile>) {
        let mut files = self.files.lock();
        files.retain(|file| !Arc::ptr_eq(file, hashed));
    }
}

fn try_again(why: &str) -> Reply {
    Reply::later(503, 1, &format!("{why}; try again"))
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
    Reply::document(head, document.to_document())
}

/// Hashes the file's rest until that is cancelled, a block at least; returns whether all of it is
/// hashed.
fn hash(source: &SourceFile, digest: &mut PrefixDigest, cancel: &Cancel) -> io::Result<bool> {
    let size = source.metadata().size();
    let mut block = vec![0; 1 << 20];
    while digest.hashed() < size {
        let left = usize::try_from(size - digest.hashed()).unwrap_or(usize::MAX);
        let block = &mut block[..left.min(1 << 20)];
        source.file().read_exact_at(block, digest.hashed())?;
        digest.update(block);
        if cancel.is_cancelled() {
            return Ok(digest.hashed() == size);
        }
    }
    Ok(true)
}

/// Returns the file's name; `None` where a Metalink cannot have it.
fn name(source: &SourceFile) -> Option<MetalinkName> {
    MetalinkName::parse(source.path().file_name()?.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use longhaul_core::proto::metalink::Metalink;
    use longhaul_engine::send::Piece;

    use super::*;

    fn source(path: &std::path::Path) -> SourceFile {
        SourceFile::new(File::open(path).unwrap(), path.to_owned()).unwrap()
    }

    fn document(reply: Reply) -> Pieces {
        assert_eq!(reply.status(), 200);
        let Some(Piece::Text(text)) = reply.into_body().pop() else { panic!("no text") };
        Metalink::parse(&text).unwrap().files.remove(0).pieces.unwrap()
    }

    #[tokio::test]
    async fn large_file_is_hashed_in_several_requests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a & b");
        let bytes: Vec<u8> = (0..(2 << 20) + 5).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let digests = PieceDigests::default();
        let [ann, bob] = ["ann", "bob"].map(|name| Requester::Token(name.into()));
        let (turn, _watch) = digests.turn(&ann).await.ok().unwrap();
        let reply = || digests.reply_within(&source(&path), &turn, Duration::ZERO).unwrap();
        assert_eq!([reply().status(), reply().status()], [503, 503]);
        // However many files another requester asks for.
        let (other, _watch) = digests.turn(&bob).await.ok().unwrap();
        for number in 0..=KEPT {
            let path = dir.path().join(number.to_string());
            std::fs::write(&path, "x").unwrap();
            assert_eq!(digests.reply_within(&source(&path), &other, SLICE).unwrap().status(), 200);
        }
        // Nor some files of its own.
        for number in 0..3 {
            let path = dir.path().join(number.to_string());
            std::fs::write(&path, "own").unwrap();
            assert_eq!(digests.reply_within(&source(&path), &turn, SLICE).unwrap().status(), 200);
        }
        let pieces = document(reply());
        let hashes: Vec<_> =
            bytes.chunks(1 << 20).map(|piece| blake3::hash(piece).to_hex().to_string()).collect();
        assert_eq!(pieces.digests.iter().map(|digest| digest.hex()).collect::<Vec<_>>(), hashes);
        // Kept, until the file changes.
        assert_eq!(reply().status(), 200);
        std::fs::write(&path, &bytes[1..]).unwrap();
        assert_eq!(reply().status(), 503);
    }

    #[tokio::test]
    async fn one_requester_has_one_turn_which_ends_when_it_is_no_longer_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(300 << 30).unwrap();
        let (digests, file) = (PieceDigests::default(), source(&path));
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| Requester::Token(name.into()));
        let (turn, watch) = digests.turn(&ann).await.ok().unwrap();
        let refused = digests.turn(&ann).await.err().map(|reply| reply.status());
        let (other, _other_watch) = digests.turn(&bob).await.ok().unwrap();
        let waiting = digests.turn(&eve);
        tokio::pin!(waiting);
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err(), "two hash at once");
        assert_eq!(refused, Some(503));
        drop(watch);
        // Far longer than a test may take, if it were not cancelled.
        let reply = digests.reply_within(&file, &turn, Duration::from_secs(3600)).unwrap();
        assert_eq!((reply.status(), other.cancel.is_cancelled()), (503, false));
        drop(turn);
        assert!(waiting.await.is_ok());
    }
}
