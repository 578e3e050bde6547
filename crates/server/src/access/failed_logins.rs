//! Limits the wrong tokens of each client, so that none of them can be guessed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::token_file::TokenEntry;
use crate::admission::ClientKey;

/// How many wrong tokens a client may show at once.
const BURST: u32 = 20;
/// The interval at which it may show another one.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most clients that are remembered; those beyond are not limited until others are forgotten.
const MAX_CLIENTS: usize = 65_536;
/// The most tokens of a client that are remembered.
const MAX_ACCEPTED: usize = 64;

/// The logins of the clients.
#[derive(Default)]
pub(super) struct FailedLogins(Mutex<HashMap<ClientKey, ClientLogins>>);

/// The logins of a client.
struct ClientLogins {
    /// The time until which its wrong tokens are paid for (GCRA, ITU-T I.371).
    paid: Instant,
    /// The names of tokens that were accepted from it. They stay so: behind a proxy or NAT, an
    /// attacker is the same client as others.
    accepted: Vec<Option<Arc<str>>>,
}

/// What becomes of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    Accepted,
    Wrong,
    /// The client has shown too many wrong tokens: a new one is not accepted, whether it is right
    /// or wrong.
    Refused,
}

impl FailedLogins {
    /// Judges a login by a token, where it is a `valid` one.
    pub(super) fn judge(&self, client: ClientKey, valid: Option<&TokenEntry>, now: Instant) -> Login {
        let mut clients = self.0.lock();
        if let Some(known) = clients.get(&client) {
            if valid.is_some_and(|token| known.accepted.contains(&token.name)) {
                return Login::Accepted;
            }
            if known.paid > now + INTERVAL * (BURST - 1) {
                return Login::Refused;
            }
        }
        let outcome = if valid.is_some() { Login::Accepted } else { Login::Wrong };
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&client) {
            clients.retain(|_, known| known.paid > now);
            if clients.len() >= MAX_CLIENTS {
                return outcome;
            }
        }
        let known = clients.entry(client).or_insert_with(|| ClientLogins { paid: now, accepted: Vec::new() });
        match valid {
            Some(token) => {
                if known.accepted.len() == MAX_ACCEPTED {
                    known.accepted.remove(0);
                }
                known.accepted.push(token.name.clone());
            }
            None => known.paid = known.paid.max(now) + INTERVAL,
        }
        outcome
    }
}
