//! The current target of a URL: a redirect's target expires, and a host's addresses may serve different versions of a
//! file.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::failure::Failure;
use parking_lot::Mutex;

use crate::cancel::Cancel;
use crate::source::http::client::{Client, ClientAhead};
use crate::source::http::connection::Connection;
use crate::source::http::error::HttpError;
use crate::source::http::target::resolved_url::ResolvedUrl;

/// The number of consecutive answers with another file, over all connections, before the file counts as changed: if
/// half of the backends are stale, ten in a row occur once in a thousand.
const MAX_DISAGREEMENTS: u32 = 10;
/// The number of consecutive such answers from one address before other addresses of the host are preferred.
const ADDRESS_DISAGREEMENTS: u32 = 3;
/// The maximum number of consecutive new redirects without an answer with bytes.
const MAX_REFRESHES: u32 = 5;

/// The target of the URL's redirects; each worker has a copy.
#[derive(Clone, Default)]
pub(crate) struct Location {
    pub(crate) target: Option<ResolvedUrl>,
    /// Incremented each time the original URL is requested again.
    pub(crate) generation: u32,
    /// The number of such requests since the last answer with bytes.
    fruitless: u32,
}

impl Location {
    /// Starts with the target of the first answer.
    pub(crate) fn new(target: ResolvedUrl) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// Sets the target from a new request of the original URL.
    pub(crate) fn refresh(&mut self, target: ResolvedUrl) {
        self.target = Some(target);
        self.generation += 1;
        self.fruitless += 1;
    }

    /// Records an answer with bytes of the file.
    pub(crate) fn note_answer(&mut self) {
        self.fruitless = 0;
    }

    /// Returns whether requesting the original URL again may avoid `error`.
    pub(crate) fn may_have_expired(&self, error: &HttpError) -> bool {
        error.may_be_expired() && self.may_be_renewed()
    }

    /// Returns whether the original URL may redirect elsewhere, or make another challenge, and has not failed too often.
    pub(crate) fn may_be_renewed(&self) -> bool {
        let changes = |target: &ResolvedUrl| target.is_redirected() || target.has_challenge();
        self.target.as_ref().is_some_and(changes) && self.fruitless < MAX_REFRESHES
    }

    /// Connects to the target: by `ahead` if given; if `fresh`, not over a kept connection.
    pub(crate) fn connect(
        &mut self,
        client: &Client,
        ahead: Option<ClientAhead>,
        fresh: bool,
        cancel: &Cancel,
    ) -> Result<Connection, HttpError> {
        match (&mut self.target, ahead) {
            (Some(target), Some(ahead)) => client.connect_over(target, ahead, cancel),
            (Some(target), None) if fresh => client.connect_fresh(target, cancel),
            (Some(target), None) => client.connect(target, cancel),
            (None, _) => Err(Failure::interrupted().into()),
        }
    }

    /// Returns whether another address of the host may do better than one.
    pub(crate) fn has_others(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.addresses.usable() > 1)
    }

    /// Prefers other addresses of the host to `peer`.
    pub(crate) fn avoid(&mut self, peer: SocketAddr) {
        if let Some(target) = &mut self.target {
            target.addresses.avoid(peer);
        }
    }
}

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
