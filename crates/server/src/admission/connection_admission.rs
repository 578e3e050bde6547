//! Which connections get a slot: a cap, and a fair share of slots for each client. Pure: the time
//! is passed in.
//!
//! [`ConnectionAdmission`] holds the connections by client; `eviction` chooses the one that is
//! closed for a new one.

mod eviction;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eviction::Slot;

use crate::ConnectionLimits;
use crate::admission::ClientKey;

/// The share of the places to wait for a slot that one client may have: a quarter.
const WAITING_CLIENTS: usize = 4;

/// A connection's number; none is used twice.
pub(super) type ConnectionId = u64;

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It gets a slot; this connection must be closed for it.
    Now { evicted: Option<ConnectionId> },
    /// It waits until [`ConnectionAdmission::next`] returns it.
    Later,
    /// It must be closed.
    Never,
}

/// The connections by client.
pub(super) struct ConnectionAdmission {
    limits: ConnectionLimits,
    next_id: ConnectionId,
    next_idle: u64,
    connections: HashMap<ConnectionId, Connection>,
    clients: HashMap<ClientKey, ClientConnections>,
    /// Clients by the number of their connections.
    by_count: BTreeSet<(usize, ClientKey)>,
    /// Idle connections of all clients, the longest idle first.
    idle: BTreeMap<u64, ConnectionId>,
    /// Connections that wait for a slot, in the order of their arrival.
    waiting: BTreeMap<ConnectionId, ClientKey>,
}

struct Connection {
    client: ClientKey,
    activity: Activity,
    /// Bytes of the reply in progress that the socket has accepted.
    sent: Arc<AtomicU64>,
}

enum Activity {
    /// Waits for a request or a TLS handshake; holds its place in the order of idle connections.
    Idle(u64),
    /// Is sent a reply.
    Replying { since: Duration },
    /// Receives an upload, which is never evicted: its client has shown a token.
    Receiving,
}

#[derive(Default)]
struct ClientConnections {
    open: usize,
    waiting: usize,
    idle: BTreeMap<u64, ConnectionId>,
    replying: HashSet<ConnectionId>,
}

impl ConnectionAdmission {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            next_id: 0,
            next_idle: 0,
            connections: HashMap::new(),
            clients: HashMap::new(),
            by_count: BTreeSet::new(),
            idle: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Decides on a new connection, which is idle at first; `sent` counts the bytes of its replies.
    pub(super) fn arrive(
        &mut self,
        client: ClientKey,
        sent: Arc<AtomicU64>,
        now: Duration,
    ) -> (ConnectionId, Admitted) {
        let id = self.next_id;
        self.next_id += 1;
        let slot = self.choose_slot(client, now);
        if slot.is_none() && !self.may_wait(client) {
            return (id, Admitted::Never);
        }
        self.connections.insert(id, Connection { client, activity: Activity::Receiving, sent });
        let admitted = match slot {
            Some(slot) => Admitted::Now { evicted: self.open(id, client, slot) },
            None => {
                self.clients.entry(client).or_default().waiting += 1;
                self.waiting.insert(id, client);
                Admitted::Later
            }
        };
        (id, admitted)
    }

    /// Returns a connection that has waited and now gets a slot, and the one that must be closed
    /// for it.
    pub(super) fn next(&mut self, now: Duration) -> Option<(ConnectionId, Option<ConnectionId>)> {
        let mut waiting = self.waiting.iter().map(|(&id, &client)| (id, client));
        let (id, client, slot) =
            waiting.find_map(|(id, client)| Some((id, client, self.choose_slot(client, now)?)))?;
        self.stop_waiting(id, client);
        Some((id, self.open(id, client, slot)))
    }

    /// Records that a connection waits for a request.
    pub(super) fn idle(&mut self, id: ConnectionId) {
        self.next_idle += 1;
        self.set_activity(id, Activity::Idle(self.next_idle));
    }

    /// Records that a connection answers a request; returns whether it still has its slot.
    pub(super) fn replying(&mut self, id: ConnectionId, now: Duration) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        connection.sent.store(0, Ordering::Relaxed);
        self.set_activity(id, Activity::Replying { since: now });
        true
    }

    /// Records that a connection receives an upload.
    pub(super) fn receiving(&mut self, id: ConnectionId) {
        self.set_activity(id, Activity::Receiving);
    }

    /// Removes a connection that has closed; one that was evicted is removed already.
    pub(super) fn close(&mut self, id: ConnectionId) {
        self.set_activity(id, Activity::Receiving);
        let Some(Connection { client, .. }) = self.connections.remove(&id) else { return };
        if self.waiting.contains_key(&id) {
            self.stop_waiting(id, client);
        } else {
            self.change_open_count(client, |open| open - 1);
        }
        if self.clients.get(&client).is_some_and(|own| own.open == 0 && own.waiting == 0) {
            self.clients.remove(&client);
        }
    }

    /// Returns whether one more connection of `client` may wait for a slot.
    fn may_wait(&self, client: ClientKey) -> bool {
        let waiting = self.clients.get(&client).map_or(0, |own| own.waiting);
        let most = self.limits.waiting;
        waiting < most.div_ceil(WAITING_CLIENTS) && self.waiting.len() < most
    }

    /// Gives a connection a slot; returns the connection that must be closed for it.
    fn open(&mut self, id: ConnectionId, client: ClientKey, slot: Slot) -> Option<ConnectionId> {
        slot.into_iter().for_each(|evicted| self.close(evicted));
        self.change_open_count(client, |open| open + 1);
        self.idle(id);
        slot
    }

    fn stop_waiting(&mut self, id: ConnectionId, client: ClientKey) {
        self.waiting.remove(&id);
        if let Some(own) = self.clients.get_mut(&client) {
            own.waiting -= 1;
        }
    }

    /// Moves a connection between the tables by activity.
    fn set_activity(&mut self, id: ConnectionId, activity: Activity) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(client) = self.clients.get_mut(&connection.client) else { return };
        match &connection.activity {
            Activity::Idle(order) => {
                self.idle.remove(order);
                client.idle.remove(order);
            }
            Activity::Replying { .. } => {
                client.replying.remove(&id);
            }
            Activity::Receiving => {}
        }
        match &activity {
            Activity::Idle(order) => {
                self.idle.insert(*order, id);
                client.idle.insert(*order, id);
            }
            Activity::Replying { .. } => {
                client.replying.insert(id);
            }
            Activity::Receiving => {}
        }
        connection.activity = activity;
    }

    /// Changes the number of a client's open connections.
    fn change_open_count(&mut self, client: ClientKey, change: impl Fn(usize) -> usize) {
        let own = self.clients.entry(client).or_default();
        self.by_count.remove(&(own.open, client));
        own.open = change(own.open);
        if own.open > 0 {
            self.by_count.insert((own.open, client));
        }
    }
}
