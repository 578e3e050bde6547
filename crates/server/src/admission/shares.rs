//! Shares of what is costly: listings, hashing, uploads, TLS handshakes. One client, or one token,
//! cannot take all of it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::watch;

use crate::admission::ClientKey;

/// Takes shares of what requests need: a named token, from whatever address it comes, else a
/// client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    Client(ClientKey),
    Token(Arc<str>),
}

/// Places that holders share; clones share them.
///
/// A holder's places are bounded by the number of free ones, so that the present holders at their
/// bound still leave places to a new one. (The rule of switches that share a buffer: Choudhury and
/// Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998, with alpha =
/// 1.) Some places beyond that are for the first share of a holder only, for the case of many
/// holders.
#[derive(Clone)]
pub(crate) struct Shares<K> {
    places: usize,
    first_places: usize,
    taken: watch::Sender<Taken<K>>,
}

struct Taken<K> {
    in_all: usize,
    of: HashMap<K, usize>,
}

/// A place, until dropped.
pub(crate) struct Share<K: Eq + Hash> {
    holder: K,
    taken: watch::Sender<Taken<K>>,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    pub(crate) fn new(places: usize, first_places: usize) -> Self {
        Self { places, first_places, taken: watch::Sender::new(Taken { in_all: 0, of: HashMap::new() }) }
    }

    /// Takes one more place for a holder; `None` where it has its share, or none is left.
    pub(crate) fn take(&self, holder: &K) -> Option<Share<K>> {
        let is_taken = self.taken.send_if_modified(|taken| {
            let own = taken.of.get(holder).copied().unwrap_or(0);
            let is_free = match own {
                0 => taken.in_all < self.places.saturating_add(self.first_places),
                own => own + taken.in_all < self.places,
            };
            if is_free {
                taken.in_all += 1;
                taken.of.insert(holder.clone(), own + 1);
            }
            is_free
        });
        is_taken.then(|| Share { holder: holder.clone(), taken: self.taken.clone() })
    }

    /// Waits until no place is taken.
    pub(crate) async fn all_free(&self) {
        // Fails only without a sender, and `self` has one.
        let _ = self.taken.subscribe().wait_for(|taken| taken.in_all == 0).await;
    }

    #[cfg(test)]
    pub(crate) fn in_all(&self) -> usize {
        self.taken.borrow().in_all
    }
}

impl<K: Eq + Hash> Share<K> {
    pub(crate) fn holder(&self) -> &K {
        &self.holder
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.taken.send_modify(|taken| {
            taken.in_all -= 1;
            match taken.of.get_mut(&self.holder) {
                Some(own) if *own > 1 => *own -= 1,
                _ => drop(taken.of.remove(&self.holder)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_has_as_many_places_as_are_left_and_each_has_a_first_one() {
        let shares = Shares::new(16, 3);
        let take_all = |holder: usize| std::iter::from_fn(|| shares.take(&holder)).collect::<Vec<_>>();
        let held: Vec<_> = (0..9).map(take_all).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2, 1, 1, 1, 1, 1, 0]);
        drop(held);
        assert_eq!((shares.in_all(), shares.taken.borrow().of.len()), (0, 0));
        let shares = Shares::new(2, 0);
        let held = [1, 1, 2, 3].map(|holder| shares.take(&holder));
        assert_eq!(held.each_ref().map(Option::is_some), [true, false, true, false]);
    }
}
