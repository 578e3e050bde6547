//! Digests of unfinished uploads, kept from one request to the next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::proto::http::UploadId;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::passing_digest::PassingDigest;

/// The most that are kept; an upload whose digest was dropped is read back.
const MOST: usize = 64;

/// What uploads have been hashed to so far.
#[derive(Default)]
pub(super) struct UploadDigests(Mutex<VecDeque<UploadDigest>>);

struct UploadDigest {
    path: PathBuf,
    id: UploadId,
    passing: Arc<PassingDigest>,
}

impl UploadDigests {
    /// Returns the digest of an upload to `path` of `size`, of which `there` is kept: the one that earlier requests began, or a
    /// new one where that is `wanted`.
    pub(super) fn of(
        &self,
        (path, id): (&Path, UploadId),
        (there, size): (Bytes, Bytes),
        wanted: bool,
    ) -> Option<Arc<PassingDigest>> {
        let mut digests = self.lock();
        let kept = digests.iter().position(|digest| digest.path == path && digest.id == id);
        let kept = kept.and_then(|at| digests.remove(at)).filter(|kept| kept.passing.size() == size);
        let passing = match kept {
            Some(kept) => kept.passing,
            None if wanted => Arc::new(PassingDigest::new(size)?),
            None => return None,
        };
        // Received, and lost before it was committed.
        passing.forget(ByteRange::new(there.get(), size.get()));
        if digests.len() == MOST {
            digests.pop_front();
        }
        digests.push_back(UploadDigest { path: path.to_owned(), id, passing: Arc::clone(&passing) });
        Some(passing)
    }

    /// Drops a digest that is of no more use.
    pub(super) fn remove(&self, passing: &Arc<PassingDigest>) {
        self.lock().retain(|digest| !Arc::ptr_eq(&digest.passing, passing));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<UploadDigest>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::mib(1);

    #[test]
    fn digest_goes_on_from_request_to_request() {
        let (digests, bytes) = (UploadDigests::default(), vec![3; 1 << 20]);
        let of = |path: &str, id, there, wanted| {
            digests.of((Path::new(path), UploadId::new([id; 16])), (Bytes::kib(there), SIZE), wanted)
        };
        assert!(of("/a", 1, 0, false).is_none());
        of("/a", 1, 0, true).unwrap().add(0, &bytes[..700_000]);
        // Another upload, and another file.
        assert!(of("/a", 2, 0, false).is_none() && of("/b", 1, 0, false).is_none());
        // The last of it was lost.
        let passing = of("/a", 1, 512, false).unwrap();
        assert_eq!(passing.missing(), [ByteRange::new(512 << 10, 1 << 20)]);
        passing.add(512 << 10, &bytes[512 << 10..]);
        assert_eq!(of("/a", 1, 1024, false).unwrap().root(), Some(blake3::hash(&bytes)));
        digests.remove(&passing);
        assert!(of("/a", 1, 1024, false).is_none());
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let digests = UploadDigests::default();
        for id in 0..=MOST as u8 {
            digests.of((Path::new("/a"), UploadId::new([id; 16])), (Bytes::ZERO, SIZE), true);
        }
        assert_eq!(digests.lock().len(), MOST);
    }
}
