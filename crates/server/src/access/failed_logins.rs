//! Limits the wrong tokens of each client, so that none of them can be guessed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::ClientKey;

/// How many wrong tokens a client may show at once.
const BURST: u32 = 20;
/// The interval at which it may show another one.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most clients that are remembered; those beyond are not limited until others are forgotten.
const MAX_CLIENTS: usize = 65_536;

/// The clients that have shown wrong tokens, with the time until which each pays for them (GCRA, ITU-T I.371).
#[derive(Default)]
pub(super) struct FailedLogins(Mutex<HashMap<ClientKey, Instant>>);

impl FailedLogins {
    /// Returns whether no token of the client is compared now: it has shown too many wrong ones.
    pub(super) fn refuses(&self, client: ClientKey, now: Instant) -> bool {
        let clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clients.get(&client).is_some_and(|paid| *paid > now + INTERVAL * (BURST - 1))
    }

    /// Counts a wrong token.
    pub(super) fn add(&self, client: ClientKey, now: Instant) {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, paid| *paid > now);
            if clients.len() >= MAX_CLIENTS {
                return;
            }
        }
        let paid = clients.entry(client).or_insert(now);
        *paid = (*paid).max(now) + INTERVAL;
    }
}
