//! Answers with another file: a host's addresses may serve different versions of a file, or the
//! file has changed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// The number of consecutive answers with another file, over all connections, before the file
/// counts as changed: if half of the backends are stale, ten in a row occur once in a thousand.
const MAX_DISAGREEMENTS: u32 = 10;
/// The number of consecutive such answers from one address before other addresses of the host are
/// preferred.
const ADDRESS_DISAGREEMENTS: u32 = 3;

/// Counts answers with another file than the one that the transfer started with.
#[derive(Default)]
pub(crate) struct Disagreements {
    in_a_row: AtomicU32,
    by_address: Mutex<HashMap<SocketAddr, u32>>,
}

/// The consequences of one more answer with another file.
pub(crate) struct Disagreement {
    /// Whether the file counts as changed: no answer has agreed for too long.
    pub(crate) is_final: bool,
    /// Whether other addresses of the host should be preferred.
    pub(crate) avoid_address: bool,
}

impl Disagreements {
    /// Counts an answer from `peer`.
    pub(crate) fn count(&self, peer: SocketAddr) -> Disagreement {
        let in_a_row = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        let mut by_address = self.by_address.lock();
        let from_address = by_address.entry(peer).or_default();
        *from_address += 1;
        Disagreement {
            is_final: in_a_row > MAX_DISAGREEMENTS,
            avoid_address: *from_address >= ADDRESS_DISAGREEMENTS,
        }
    }

    /// Records an answer that agrees.
    pub(crate) fn reset(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_counts_as_changed_only_after_many_disagreements_in_a_row() {
        let disagreements = Disagreements::default();
        let peer = ([127, 0, 0, 1], 80).into();
        for n in 1..=MAX_DISAGREEMENTS {
            let Disagreement { is_final, avoid_address } = disagreements.count(peer);
            assert_eq!((is_final, avoid_address), (false, n >= ADDRESS_DISAGREEMENTS));
        }
        assert!(disagreements.count(peer).is_final);
        disagreements.reset();
        let other = disagreements.count(([127, 0, 0, 2], 80).into());
        assert!(!other.is_final && !other.avoid_address);
    }
}
