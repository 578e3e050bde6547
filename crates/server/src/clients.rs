//! What is remembered of the paths to clients, by address, for a while.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_core::tune::pace::Known;
use longhaul_core::units::{Bytes, Rate, Rtt};

/// The paths to clients; when something happens is an argument.
///
/// It is of all that send to one client together; one that begins takes its share of that.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: HashMap<IpAddr, Client>,
}

#[derive(Debug, Default)]
struct Client {
    /// What all connections held together, and when.
    known: Option<(Known, Duration)>,
    /// How many are being sent something.
    sending: u32,
}

/// What is older says nothing about the path of now; the kernel forgets a path's MTU after as long.
pub(crate) const OLDEST: Duration = Duration::from_secs(600);
/// Those learned last are kept.
const MOST: usize = 1024;
/// What a client says that it remembers is no more than this.
const FASTEST_CLAIM: Rate = Rate::bits_per_sec(100_000_000_000);
/// On a shorter path slow start is over soon.
const SHORTEST: Rtt = Rtt::new(Duration::from_millis(10));

impl Clients {
    /// Notes that something is being sent to a client.
    pub(crate) fn begins(&mut self, client: IpAddr) {
        self.clients.entry(client).or_default().sending += 1;
    }

    /// Notes that it has been.
    pub(crate) fn ends(&mut self, client: IpAddr) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.sending = entry.sending.saturating_sub(1);
            if entry.sending == 0 && entry.known.is_none() {
                self.clients.remove(&client);
            }
        }
    }

    /// Returns how many connections a client is being sent something on.
    pub(crate) fn sharing(&self, client: IpAddr) -> u32 {
        self.clients.get(&client).map_or(0, |entry| entry.sending)
    }

    /// Takes in what the connections to a client hold together; returns it where it is worth remembering.
    pub(crate) fn learn(&mut self, client: IpAddr, found: Known, now: Duration) -> Option<Known> {
        if found.rtt < SHORTEST {
            return None;
        }
        if self.clients.get(&client).is_none_or(|entry| entry.known.is_none()) {
            self.make_room(now);
        }
        self.clients.entry(client).or_default().known = Some((found, now));
        Some(found)
    }

    /// Takes in what each connection to a client holds without having looked for more; returns what is known of the path then.
    ///
    /// Of connections that share a path the last to end has nobody beside it: that it holds less than all of them did says nothing.
    pub(crate) fn learn_at_least(&mut self, client: IpAddr, share: Known, now: Duration) -> Option<Known> {
        let sharing = u64::from(self.sharing(client).max(1));
        let all = share.rate.as_bits_per_sec().saturating_mul(sharing);
        let found = Known { rate: Rate::bits_per_sec(all), ..share };
        let known =
            self.clients.get(&client).and_then(|entry| entry.known).and_then(|known| fresh(known, now));
        match known.filter(|known| known.may_hold_at(found.rtt) && known.rate >= found.rate) {
            Some(more) => Some(more),
            None => self.learn(client, found, now),
        }
    }

    /// Returns the rate from which a connection may start that has begun to be sent something; `asked` is what its client remembers,
    /// which counts where nothing is known here.
    ///
    /// `None` where nobody knows, where this RTT is of another path, or where slow start begins no slower.
    pub(crate) fn recall(
        &self,
        client: IpAddr,
        asked: Option<Known>,
        rtt: Rtt,
        segment: Bytes,
        now: Duration,
    ) -> Option<Rate> {
        let entry = self.clients.get(&client);
        let claimed = asked.map(|asked| Known { rate: asked.rate.min(FASTEST_CLAIM), ..asked });
        let path = entry.and_then(|entry| entry.known).and_then(|known| fresh(known, now)).or(claimed)?;
        let sending = entry.map_or(1, |entry| entry.sending.max(1));
        let share =
            Known { rate: Rate::bits_per_sec(path.rate.as_bits_per_sec() / u64::from(sending)), ..path };
        let usable = share.may_hold_at(rtt) && rtt >= SHORTEST && share.initial_window(segment).is_some();
        usable.then_some(share.rate)
    }

    /// Forgets what is too old, and the oldest where that of too many is known.
    ///
    /// Of the others there are no more than connections.
    fn make_room(&mut self, now: Duration) {
        if self.clients.values().filter(|client| client.known.is_some()).count() < MOST {
            return;
        }
        let oldest = self.clients.values().filter_map(|client| client.known).map(|(_, at)| at).min();
        let too_old =
            |at: Duration| oldest.is_some_and(|oldest| at <= oldest) || now.saturating_sub(at) > OLDEST;
        self.clients.retain(|_, client| {
            client.known = client.known.filter(|(_, at)| !too_old(*at));
            client.known.is_some() || client.sending > 0
        });
    }
}

/// Returns what is known and not too old.
fn fresh((known, at): (Known, Duration), now: Duration) -> Option<Known> {
    (now.saturating_sub(at) <= OLDEST).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const SEGMENT: Bytes = Bytes::new(1448);
    const MS: fn(u64) -> Rtt = |ms| Rtt::new(Duration::from_millis(ms));
    const AT: fn(u64) -> Duration = Duration::from_secs;

    fn known(mbit: u64) -> Known {
        Known { rate: Rate::bits_per_sec(mbit * 1_000_000), rtt: MS(100) }
    }

    fn recalled(clients: &Clients, ms: u64, at: u64) -> Option<u64> {
        clients.recall(HOST, None, MS(ms), SEGMENT, AT(at)).map(|rate| rate.as_bits_per_sec() / 1_000_000)
    }

    #[test]
    fn a_path_is_remembered_for_a_while_and_while_it_is_the_same() {
        let mut clients = Clients::default();
        assert_eq!(recalled(&clients, 100, 0), None);
        clients.learn(HOST, known(400), AT(1));
        assert_eq!(recalled(&clients, 120, 2), Some(400));
        assert_eq!(recalled(&clients, 250, 2), None, "another RTT");
        assert_eq!(recalled(&clients, 100, 1 + OLDEST.as_secs() + 1), None, "too old");
        assert_eq!(clients.learn(HOST, Known { rtt: MS(2), ..known(400) }, AT(3)), None, "too short");
        clients.learn(HOST, known(1), AT(3));
        assert_eq!(recalled(&clients, 100, 3), None, "slower than slow start begins");
    }

    #[test]
    fn connections_to_one_client_share_its_path() {
        let mut clients = Clients::default();
        clients.begins(HOST);
        clients.begins(HOST);
        assert_eq!(clients.learn(HOST, known(400), AT(1)), Some(known(400)));
        assert_eq!((clients.sharing(HOST), recalled(&clients, 100, 1)), (2, Some(200)));
        clients.begins(HOST);
        assert_eq!(recalled(&clients, 100, 1), Some(133));
        clients.ends(HOST);
        clients.ends(HOST);
        clients.ends(HOST);
        clients.ends(HOST);
        assert_eq!((clients.sharing(HOST), recalled(&clients, 100, 1)), (0, Some(400)));
    }

    #[test]
    fn what_the_last_to_end_holds_is_not_the_path() {
        let mut clients = Clients::default();
        (0..4).for_each(|_| clients.begins(HOST));
        for left in [4, 3, 2, 1] {
            assert_eq!(clients.learn_at_least(HOST, known(40), AT(1)), Some(known(160)), "{left}");
            clients.ends(HOST);
        }
        // More than that is told at once; less when that is too old, or of another path.
        assert_eq!(clients.learn_at_least(HOST, known(200), AT(2)), Some(known(200)));
        assert_eq!(clients.learn_at_least(HOST, known(40), AT(2 + OLDEST.as_secs())), Some(known(200)));
        assert_eq!(clients.learn_at_least(HOST, known(40), AT(3 + OLDEST.as_secs())), Some(known(40)));
        let longer = Known { rtt: MS(300), ..known(30) };
        assert_eq!(clients.learn_at_least(HOST, longer, AT(4 + OLDEST.as_secs())), Some(longer));
        assert_eq!(
            clients.learn_at_least(HOST, Known { rtt: MS(2), ..known(400) }, AT(0)),
            None,
            "too short"
        );
    }

    #[test]
    fn what_a_client_remembers_counts_where_nothing_is_known_here() {
        let mut clients = Clients::default();
        let asks = |clients: &Clients, mbit: u64, ms: u64, at: u64| {
            let rate = clients.recall(HOST, Some(known(mbit)), MS(ms), SEGMENT, AT(at));
            rate.map(|rate| rate.as_bits_per_sec() / 1_000_000)
        };
        assert_eq!([100, 250].map(|ms| asks(&clients, 300, ms, 0)), [Some(300), None]);
        assert_eq!(asks(&clients, u64::MAX / 1_000_000, 100, 0), Some(100_000), "nobody knows so much");
        clients.begins(HOST);
        clients.begins(HOST);
        assert_eq!(asks(&clients, 300, 100, 0), Some(150), "its connections share that too");
        clients.learn(HOST, known(400), AT(0));
        assert_eq!(asks(&clients, 300, 100, 1), Some(200));
        assert_eq!(asks(&clients, 300, 100, OLDEST.as_secs() + 1), Some(150));
    }

    #[test]
    fn the_oldest_make_room_and_strangers_leave_nothing() {
        let mut clients = Clients::default();
        let host = |n: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(n));
        clients.begins(host(0));
        clients.ends(host(0));
        assert!(clients.clients.is_empty());
        for n in 0..MOST as u32 + 5 {
            clients.learn(host(n), known(100), Duration::from_millis(n.into()));
        }
        assert_eq!(clients.clients.len(), MOST);
        assert!(!clients.clients.contains_key(&host(4)) && clients.clients.contains_key(&host(5)));
    }

    #[test]
    fn those_that_are_being_sent_something_make_room_too() {
        let mut clients = Clients::default();
        let host = |n: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(n));
        for n in 0..MOST as u32 + 5 {
            clients.begins(host(n));
            clients.learn(host(n), known(100), Duration::from_millis(n.into()));
            if n % 2 == 0 {
                clients.ends(host(n));
            }
        }
        let known_ones = clients.clients.values().filter(|client| client.known.is_some()).count();
        assert_eq!(known_ones, MOST);
        // The first five are forgotten; two of them are still counted.
        assert_eq!(clients.clients.len(), MOST + 2);
        (0..5).for_each(|n| clients.ends(host(n)));
        assert_eq!(clients.clients.len(), MOST);
    }
}
