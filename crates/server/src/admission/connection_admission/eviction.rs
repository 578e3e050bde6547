//! Which connection is closed for a new one where no slot is free.
//!
//! A client at its cap replaces its own longest idle connection, or waits. Where all slots are
//! taken, a client within its fair share gets, in this order, the slot of the largest holder's
//! longest idle connection, of its slowest reply if that is slow, of the longest idle connection of
//! all clients, or of the slowest reply of the largest holder that has one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Activity, ClientKey, Connection, ConnectionAdmission, ConnectionId};

/// The least age for which the rate of a reply is computed: the first bytes of a reply only fill
/// the send buffer.
const MIN_REPLY_AGE: Duration = Duration::from_secs(1);

/// A reply below this rate, in bytes a second, is slow: it is evicted before idle connections of
/// other clients.
const SLOW_REPLY: u64 = 64_000;
/// A younger reply is not yet slow.
pub(super) const SLOW_REPLY_AGE: Duration = Duration::from_secs(5);

/// A slot for a new connection: free if `None`, else that of this connection, which must be closed
/// first.
pub(super) type Slot = Option<ConnectionId>;

impl ConnectionAdmission {
    /// Chooses the slot for a connection of `client`; `None` where no slot is free, and no
    /// connection may be closed.
    pub(super) fn choose_slot(&self, client: ClientKey, now: Duration) -> Option<Slot> {
        let holds = self.clients.get(&client).map_or(0, |own| own.open);
        let own_idle = || self.longest_idle(client);
        if holds >= self.limits.per_client {
            return own_idle().map(Some);
        }
        if self.connections.len() - self.waiting.len() < self.limits.open {
            return Some(None);
        }
        let holders = self.by_count.len() + usize::from(holds == 0);
        let share = (self.limits.open / holders.max(1)).max(1);
        // What is left to a larger holder is no less than what the new connection's client then
        // has.
        let larger = self.by_count.iter().rev().take_while(|(most, _)| *most > share && *most > holds + 1);
        let mut larger = larger.map(|&(_, client)| client).peekable();
        let largest = larger.peek().copied();
        let idle_of_largest = || self.longest_idle(largest?);
        let slow_reply = || self.slowest_reply(largest?, now).filter(|&id| self.is_slow(id, now));
        let any_idle = || self.idle.values().next().copied().filter(|_| holds < share);
        idle_of_largest()
            .or_else(slow_reply)
            .or_else(any_idle)
            .or_else(|| larger.find_map(|client| self.slowest_reply(client, now)))
            .or_else(own_idle)
            .map(Some)
    }

    fn longest_idle(&self, client: ClientKey) -> Option<ConnectionId> {
        self.clients.get(&client)?.idle.values().next().copied()
    }

    fn slowest_reply(&self, client: ClientKey, now: Duration) -> Option<ConnectionId> {
        let replying = self.clients.get(&client)?.replying.iter().copied();
        replying.min_by_key(|&id| (self.reply_rate(id, now), id))
    }

    /// Returns whether a reply is so slow that it is evicted before idle connections of other
    /// clients.
    fn is_slow(&self, id: ConnectionId, now: Duration) -> bool {
        let since = match self.connections.get(&id) {
            Some(Connection { activity: Activity::Replying { since }, .. }) => *since,
            _ => return false,
        };
        now.saturating_sub(since) >= SLOW_REPLY_AGE && self.reply_rate(id, now) < SLOW_REPLY
    }

    /// Returns the mean rate of a reply, in bytes a second.
    fn reply_rate(&self, id: ConnectionId, now: Duration) -> u64 {
        match self.connections.get(&id) {
            Some(Connection { activity: Activity::Replying { since }, sent, .. }) => {
                let age = now.saturating_sub(*since).max(MIN_REPLY_AGE);
                (sent.load(Ordering::Relaxed) as f64 / age.as_secs_f64()) as u64
            }
            _ => u64::MAX,
        }
    }
}
