//! Digests of unfinished uploads, kept from one request to the next.

use std::collections::VecDeque;
use std::sync::Arc;

use longhaul_core::proto::http::UploadId;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_engine::tree_digest::TreeDigest;
use parking_lot::Mutex;

/// How many digests are kept. An upload whose digest was dropped is read back.
const MAX_DIGESTS: usize = 64;

/// The digests of uploads that are not complete.
#[derive(Default)]
pub(crate) struct UploadDigests(Mutex<VecDeque<UploadDigest>>);

struct UploadDigest {
    key: UploadKey,
    tree: Arc<TreeDigest>,
}

/// Device and inode of the partial file, and the upload that it holds.
pub(crate) type UploadKey = ((u64, u64), UploadId);

impl UploadDigests {
    /// Returns the digest of an upload of `size` bytes, of which `committed` is on the device: the
    /// digest of the earlier requests where there is one, else a new one.
    ///
    /// Drops the digest where this request does not want it (`wanted` is false): the upload is read
    /// back then.
    pub(crate) fn of(
        &self,
        key: UploadKey,
        (committed, size): (&RangeSet, Bytes),
        wanted: bool,
    ) -> Option<Arc<TreeDigest>> {
        let mut digests = self.0.lock();
        let kept = digests.iter().position(|digest| digest.key == key);
        let kept = kept.and_then(|at| digests.remove(at)).filter(|kept| kept.tree.size() == size);
        if !wanted {
            return None;
        }
        let tree = match kept {
            Some(kept) => kept.tree,
            None => Arc::new(TreeDigest::new(size)?),
        };
        // Other bytes were hashed, but not committed.
        committed.gaps(ByteRange::with_len(0, size)).into_iter().for_each(|gap| tree.forget(gap));
        if digests.len() == MAX_DIGESTS {
            digests.pop_front();
        }
        digests.push_back(UploadDigest { key, tree: Arc::clone(&tree) });
        Some(tree)
    }

    /// Drops the digest of an upload that ends.
    pub(crate) fn remove(&self, tree: &Arc<TreeDigest>) {
        self.0.lock().retain(|digest| !Arc::ptr_eq(&digest.tree, tree));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::mib(1);

    fn of(digests: &UploadDigests, key: (u64, u8), committed: u64, wanted: bool) -> Option<Arc<TreeDigest>> {
        let key = ((1, key.0), UploadId::new([key.1; 16]));
        let committed = [ByteRange::with_len(0, Bytes::kib(committed))].into_iter().collect();
        digests.of(key, (&committed, SIZE), wanted)
    }

    #[test]
    fn digest_continues_from_request_to_request_unless_one_does_not_want_it() {
        let (digests, bytes) = (UploadDigests::default(), vec![3; 1 << 20]);
        of(&digests, (5, 1), 0, true).unwrap().add(0, &bytes[..700_000]);
        let whole = [ByteRange::new(0, 1 << 20)];
        // Another upload to the file, and another file.
        assert_eq!(of(&digests, (5, 2), 0, true).unwrap().missing(), whole);
        assert_eq!(of(&digests, (6, 1), 0, true).unwrap().missing(), whole);
        // Only 512 KiB were committed.
        let tree = of(&digests, (5, 1), 512, true).unwrap();
        assert_eq!(tree.missing(), [ByteRange::new(512 << 10, 1 << 20)]);
        tree.add(512 << 10, &bytes[512 << 10..]);
        assert_eq!(of(&digests, (5, 1), 1024, true).unwrap().root(), Some(blake3::hash(&bytes)));
        let digests = UploadDigests::default();
        of(&digests, (5, 1), 0, true).unwrap().add(0, &vec![3; 1 << 20]);
        assert!(of(&digests, (5, 1), 1024, false).is_none());
        assert_eq!(of(&digests, (5, 1), 1024, true).unwrap().root(), None);
        for id in 0..=MAX_DIGESTS as u8 {
            of(&digests, (5, id), 0, true);
        }
        assert_eq!(digests.0.lock().len(), MAX_DIGESTS);
    }
}
