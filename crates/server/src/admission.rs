//! Which connections may be open: a cap and a fair share of slots for each client. Pure: the time is passed in.
//!
//! A client at its cap replaces its own longest idle connection, or waits. Where all slots are taken, a client within its fair
//! share gets, in this order, the slot of the largest holder's longest idle connection, of its slowest reply if that is slow, of the
//! longest idle connection of all clients, or of the slowest reply of the largest holder that has one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Replies younger than this are compared as if they were as old: their first bytes only fill the send buffer.
const MIN_REPLY_AGE: Duration = Duration::from_secs(1);

/// A reply of a lower rate, in bytes a second, ends before an idle connection does,
const SLOW_REPLY: u64 = 64_000;
/// once it has lasted this long.
const SLOW_REPLY_AGE: Duration = Duration::from_secs(5);

/// The limits of [`Admission`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionParams {
    /// Connections open at once.
    pub(crate) connections: usize,
    /// Connections of one client open at once.
    pub(crate) per_client: usize,
    /// Connections that wait for a slot at once; further ones are refused.
    pub(crate) waiting: usize,
    /// Connections of one client that wait for a slot at once.
    pub(crate) waiting_per_client: usize,
}

/// A client: an IPv4 address, or the /64 of an IPv6 address, all of which one host can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientKey(u128);

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address) => Self(address.to_bits() >> 64 << 64),
        }
    }
}

/// A connection's number; none is used twice.
pub(crate) type ConnectionId = u64;

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It gets a slot; this connection must be closed for it.
    Now { evicted: Option<ConnectionId> },
    /// It waits until [`Admission::next`] returns it.
    Later,
    /// It must be closed.
    Never,
}

/// The connections by client.
pub(crate) struct Admission {
    params: AdmissionParams,
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

/// A slot for a new connection.
enum Slot {
    /// A free one.
    Free,
    /// That of this connection.
    Of(ConnectionId),
    /// None.
    Lacking,
}

#[derive(Default)]
struct ClientConnections {
    open: usize,
    waiting: usize,
    idle: BTreeMap<u64, ConnectionId>,
    replying: HashSet<ConnectionId>,
}

impl Admission {
    pub(crate) fn new(params: AdmissionParams) -> Self {
        Self {
            params,
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
    pub(crate) fn arrive(
        &mut self,
        client: ClientKey,
        sent: Arc<AtomicU64>,
        now: Duration,
    ) -> (ConnectionId, Admitted) {
        let id = self.next_id;
        self.next_id += 1;
        let slot = self.choose_slot(client, now);
        if matches!(slot, Slot::Lacking) && !self.may_wait(client) {
            return (id, Admitted::Never);
        }
        self.connections.insert(id, Connection { client, activity: Activity::Receiving, sent });
        let admitted = match slot {
            Slot::Free => Admitted::Now { evicted: self.open(id, client, None) },
            Slot::Of(other) => Admitted::Now { evicted: self.open(id, client, Some(other)) },
            Slot::Lacking => {
                self.clients.entry(client).or_default().waiting += 1;
                self.waiting.insert(id, client);
                Admitted::Later
            }
        };
        (id, admitted)
    }

    /// Returns a connection that has waited and now gets a slot, and the one that must be closed for it.
    pub(crate) fn next(&mut self, now: Duration) -> Option<(ConnectionId, Option<ConnectionId>)> {
        let (id, client, evicted) =
            self.waiting.iter().find_map(|(&id, &client)| match self.choose_slot(client, now) {
                Slot::Free => Some((id, client, None)),
                Slot::Of(other) => Some((id, client, Some(other))),
                Slot::Lacking => None,
            })?;
        self.stop_waiting(id, client);
        Some((id, self.open(id, client, evicted)))
    }

    /// Records that a connection waits for a request.
    pub(crate) fn idle(&mut self, id: ConnectionId) {
        self.next_idle += 1;
        self.set(id, Activity::Idle(self.next_idle));
    }

    /// Records that a connection answers a request; returns whether it still has its slot.
    pub(crate) fn replying(&mut self, id: ConnectionId, now: Duration) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        connection.sent.store(0, Ordering::Relaxed);
        self.set(id, Activity::Replying { since: now });
        true
    }

    /// Records that a connection receives an upload.
    pub(crate) fn receiving(&mut self, id: ConnectionId) {
        self.set(id, Activity::Receiving);
    }

    /// Removes a connection that has closed; one that was evicted is removed already.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.set(id, Activity::Receiving);
        let Some(Connection { client, .. }) = self.connections.remove(&id) else { return };
        if self.waiting.contains_key(&id) {
            self.stop_waiting(id, client);
        } else {
            self.count(client, |open| open - 1);
        }
        if self.clients.get(&client).is_some_and(|own| own.open == 0 && own.waiting == 0) {
            self.clients.remove(&client);
        }
    }

    /// Chooses the slot for a connection of `client`.
    fn choose_slot(&self, client: ClientKey, now: Duration) -> Slot {
        let own = self.clients.get(&client);
        let holds = own.map_or(0, |own| own.open);
        let slot_of = |other: Option<ConnectionId>| other.map_or(Slot::Lacking, Slot::Of);
        let own_idle = || slot_of(own.and_then(|own| own.idle.values().next().copied()));
        if holds >= self.params.per_client {
            return own_idle();
        }
        if self.connections.len() - self.waiting.len() < self.params.connections {
            return Slot::Free;
        }
        let holders = self.by_count.len() + usize::from(holds == 0);
        let share = (self.params.connections / holders.max(1)).max(1);
        // What is left to a larger holder is no less than what the new connection's client then has.
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
            .map_or_else(own_idle, Slot::Of)
    }

    fn longest_idle(&self, client: ClientKey) -> Option<ConnectionId> {
        self.clients.get(&client)?.idle.values().next().copied()
    }

    fn slowest_reply(&self, client: ClientKey, now: Duration) -> Option<ConnectionId> {
        let replying = self.clients.get(&client)?.replying.iter().copied();
        replying.min_by_key(|&id| (self.rate(id, now), id))
    }

    /// Returns whether a reply is so slow that it ends before an idle connection does.
    fn is_slow(&self, id: ConnectionId, now: Duration) -> bool {
        let since = match self.connections.get(&id) {
            Some(Connection { activity: Activity::Replying { since }, .. }) => *since,
            _ => return false,
        };
        now.saturating_sub(since) >= SLOW_REPLY_AGE && self.rate(id, now) < SLOW_REPLY
    }

    /// Returns the mean rate of a reply, in bytes a second.
    fn rate(&self, id: ConnectionId, now: Duration) -> u64 {
        match self.connections.get(&id) {
            Some(Connection { activity: Activity::Replying { since }, sent, .. }) => {
                let age = now.saturating_sub(*since).max(MIN_REPLY_AGE);
                (sent.load(Ordering::Relaxed) as f64 / age.as_secs_f64()) as u64
            }
            _ => u64::MAX,
        }
    }

    /// Returns whether one more connection of `client` may wait for a slot.
    fn may_wait(&self, client: ClientKey) -> bool {
        let waiting = self.clients.get(&client).map_or(0, |own| own.waiting);
        waiting < self.params.waiting_per_client && self.waiting.len() < self.params.waiting
    }

    /// Gives a connection a slot: a free one, or that of `evicted`, which it returns.
    fn open(
        &mut self,
        id: ConnectionId,
        client: ClientKey,
        evicted: Option<ConnectionId>,
    ) -> Option<ConnectionId> {
        evicted.into_iter().for_each(|evicted| self.close(evicted));
        self.count(client, |open| open + 1);
        self.idle(id);
        evicted
    }

    fn stop_waiting(&mut self, id: ConnectionId, client: ClientKey) {
        self.waiting.remove(&id);
        if let Some(own) = self.clients.get_mut(&client) {
            own.waiting -= 1;
        }
    }

    /// Changes what a connection does.
    fn set(&mut self, id: ConnectionId, activity: Activity) {
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

    fn count(&mut self, client: ClientKey, change: impl Fn(usize) -> usize) {
        let own = self.clients.entry(client).or_default();
        self.by_count.remove(&(own.open, client));
        own.open = change(own.open);
        if own.open > 0 {
            self.by_count.insert((own.open, client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Model {
        admission: Admission,
        now: Duration,
    }

    impl Model {
        fn new(connections: usize, per_client: usize) -> Self {
            let params = AdmissionParams { connections, per_client, waiting: 3, waiting_per_client: 2 };
            Self { admission: Admission::new(params), now: Duration::ZERO }
        }

        fn arrive(&mut self, client: &str) -> (ConnectionId, Admitted) {
            self.now += SECOND;
            self.admission.arrive(key(client), Arc::default(), self.now)
        }

        /// A connection with a reply that has sent so many bytes.
        fn reply(&mut self, client: &str, sent: u64) -> ConnectionId {
            let counter = Arc::new(AtomicU64::new(0));
            let (id, admitted) = self.admission.arrive(key(client), Arc::clone(&counter), self.now);
            assert!(matches!(admitted, Admitted::Now { .. }), "{client}: {admitted:?}");
            assert!(self.admission.replying(id, self.now));
            counter.store(sent, Ordering::Relaxed);
            id
        }
    }

    fn key(client: &str) -> ClientKey {
        client.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn ipv6_network_is_one_client() {
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("127.0.0.1"), key("127.0.0.2"));
        assert_eq!(key("127.0.0.1"), key("::ffff:127.0.0.1"));
    }

    #[test]
    fn slowest_reply_of_the_largest_holder_ends_for_another_client() {
        let mut model = Model::new(4, 4);
        model.reply("10.0.0.1", 0);
        let slow = [9_000, 2_000, 5_000].map(|sent| model.reply("10.0.0.2", sent));
        assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(slow[1]) });
        // The clients hold 1, 2 and 1 connections: no further eviction makes that fairer.
        assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(4) }, "its own idle one");
        assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
    }

    #[test]
    fn idle_connection_ends_before_a_reply() {
        let mut model = Model::new(3, 3);
        model.reply("10.0.0.2", 0);
        let idle = model.arrive("10.0.0.2").0;
        model.reply("10.0.0.2", 0);
        assert_eq!(model.arrive("10.0.0.1").1, Admitted::Now { evicted: Some(idle) });
    }

    #[test]
    fn idle_connection_of_another_client_ends_before_a_fast_reply() {
        let mut model = Model::new(4, 4);
        model.reply("10.0.0.2", 1 << 30);
        model.reply("10.0.0.2", 1 << 30);
        let idle = model.arrive("10.0.0.1").0;
        model.arrive("10.0.0.3");
        assert_eq!(model.arrive("10.0.0.4").1, Admitted::Now { evicted: Some(idle) });
    }

    #[test]
    fn slow_reply_of_the_largest_holder_ends_before_an_idle_connection_of_another_client() {
        let mut model = Model::new(3, 3);
        let slow = model.reply("10.0.0.2", 10_000);
        model.reply("10.0.0.2", 1 << 30);
        model.arrive("10.0.0.1");
        model.now += SLOW_REPLY_AGE;
        assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(slow) });
    }

    #[test]
    fn uploads_of_the_largest_holder_do_not_keep_idle_connections_of_others_open() {
        let mut model = Model::new(3, 3);
        for _ in 0..2 {
            let upload = model.arrive("10.0.0.2").0;
            model.admission.receiving(upload);
        }
        let idle = model.arrive("10.0.0.1").0;
        assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: Some(idle) });
    }

    #[test]
    fn upload_is_not_evicted() {
        let mut model = Model::new(2, 2);
        let upload = model.arrive("10.0.0.2").0;
        model.admission.receiving(upload);
        let reply = model.reply("10.0.0.2", 1 << 30);
        assert_eq!(model.arrive("10.0.0.1").1, Admitted::Now { evicted: Some(reply) });
    }

    #[test]
    fn client_at_its_cap_takes_nothing_from_others() {
        let mut model = Model::new(10, 2);
        let idle = model.arrive("10.0.0.1").0;
        model.reply("10.0.0.2", 0);
        let own = model.arrive("10.0.0.2").0;
        assert_eq!(model.arrive("10.0.0.2").1, Admitted::Now { evicted: Some(own) });
        assert!(model.admission.replying(3, model.now));
        assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
        assert_eq!(model.arrive("10.0.0.2").1, Admitted::Later);
        assert_eq!(model.arrive("10.0.0.2").1, Admitted::Never);
        assert_eq!(model.arrive("10.0.0.3").1, Admitted::Now { evicted: None });
        model.admission.close(idle);
        assert_eq!(model.admission.next(model.now), None);
        model.admission.close(3);
        assert_eq!(model.admission.next(model.now), Some((4, None)));
    }

    #[test]
    fn waiting_connection_gets_the_slot_of_one_that_becomes_idle() {
        let mut model = Model::new(2, 2);
        let first = model.reply("10.0.0.1", 0);
        model.reply("10.0.0.1", 0);
        let (third, admitted) = model.arrive("10.0.0.1");
        assert_eq!((admitted, model.admission.next(model.now)), (Admitted::Later, None));
        model.admission.idle(first);
        assert_eq!(model.admission.next(model.now), Some((third, Some(first))));
        assert!(!model.admission.replying(first, model.now), "it has no slot any more");
        model.admission.close(first);
        assert_eq!(model.admission.next(model.now), None);
    }

    #[test]
    fn tables_are_empty_once_all_have_closed() {
        let mut model = Model::new(3, 3);
        for client in 0..20 {
            let (id, _) = model.arrive(&format!("10.0.0.{}", client % 4));
            if client % 3 == 0 {
                model.admission.replying(id, model.now);
            }
        }
        (0..20).for_each(|id| model.admission.close(id));
        let Admission { connections, clients, by_count, idle, waiting, .. } = model.admission;
        assert!(connections.is_empty() && clients.is_empty() && by_count.is_empty() && idle.is_empty());
        assert!(waiting.is_empty());
    }
}
