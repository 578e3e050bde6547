//! Rate and RTT of the paths to clients, remembered by address for ten minutes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_core::tune::pace::{HeldRate, Pacer};
use longhaul_core::units::{Bytes, Rate, Rtt};

/// The paths to clients, at times that the caller passes in.
///
/// A path's rate is that of all connections to the client together; a new connection starts from
/// its share.
#[derive(Debug, Default)]
pub(crate) struct ClientPaths {
    clients: HashMap<IpAddr, ClientPath>,
}

#[derive(Debug, Default)]
struct ClientPath {
    /// Rate of all connections together, minimum RTT, and when they were measured.
    known: Option<(HeldRate, Duration)>,
    /// Connections on which something is being sent.
    sending: u32,
}

/// Age at which a remembered path expires: the kernel's own path MTU expires as soon
/// (`net.ipv4.route.mtu_expires`, 600 s).
pub(crate) const CLIENT_PATH_LIFETIME: Duration = Duration::from_secs(600);
/// The most paths that are remembered; the oldest makes room.
const MAX_CLIENT_PATHS: usize = 1024;
/// The highest rate that is believed of a client's `Longhaul-Pace` request header.
const MAX_CLAIMED_RATE: Rate = Rate::bits_per_sec(100_000_000_000);
/// Paths with a smaller RTT are not remembered: slow start is short on them.
const MIN_CLIENT_RTT: Rtt = Rtt::new(Duration::from_millis(10));

impl ClientPaths {
    /// Records that sending to a client starts on one more connection.
    pub(crate) fn sending_started(&mut self, client: IpAddr) {
        self.clients.entry(client).or_default().sending += 1;
    }

    /// Records that sending to a client has ended on one connection.
    pub(crate) fn sending_ended(&mut self, client: IpAddr) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.sending = entry.sending.saturating_sub(1);
            if entry.sending == 0 && entry.known.is_none() {
                self.clients.remove(&client);
            }
        }
    }

    /// Returns on how many connections something is being sent to a client.
    pub(crate) fn sending_connections(&self, client: IpAddr) -> u32 {
        self.clients.get(&client).map_or(0, |entry| entry.sending)
    }

    /// Records the rate of all connections to a client together; returns it where the path is
    /// remembered.
    ///
    /// A path that was too fast for pacing is remembered as such until it expires: a slower
    /// receiver tells nothing of it.
    pub(crate) fn record(&mut self, client: IpAddr, found: HeldRate, now: Duration) -> Option<HeldRate> {
        if found.rtt < MIN_CLIENT_RTT {
            return None;
        }
        let remembered = self.remembered(client, found.rtt, now);
        if remembered.is_some_and(|known| known.rate > found.rate.max(Pacer::PACED_BELOW)) {
            return Some(found);
        }
        if self.clients.get(&client).is_none_or(|entry| entry.known.is_none()) {
            self.make_room(now);
        }
        self.clients.entry(client).or_default().known = Some((found, now));
        Some(found)
    }

    /// Records a lower bound: the rate `share` of each sending connection, below which none was
    /// probed; returns the rate that is remembered then.
    ///
    /// The bound replaces smaller and expired values only. The last of several connections that
    /// share a path reports the smallest sum, for no other connection is sending any more.
    pub(crate) fn record_lower_bound(
        &mut self,
        client: IpAddr,
        share: HeldRate,
        now: Duration,
    ) -> Option<HeldRate> {
        let sharing = u64::from(self.sending_connections(client).max(1));
        let all = share.rate.as_bits_per_sec().saturating_mul(sharing);
        let found = HeldRate { rate: Rate::bits_per_sec(all), ..share };
        match self.remembered(client, found.rtt, now).filter(|known| known.rate >= found.rate) {
            Some(more) => Some(more),
            None => self.record(client, found, now),
        }
    }

    /// Returns the rate at which a sending connection may start: its share of the remembered rate,
    /// else of `claimed`, the rate that the client itself remembers.
    ///
    /// `None` where neither is known, where `rtt` belongs to another path, or where slow start
    /// begins as fast.
    pub(crate) fn starting_rate(
        &self,
        client: IpAddr,
        claimed: Option<HeldRate>,
        rtt: Rtt,
        segment: Bytes,
        now: Duration,
    ) -> Option<Rate> {
        let path = self.known(client, claimed, rtt, now)?;
        let sending = self.sending_connections(client).max(1);
        let share =
            HeldRate { rate: Rate::bits_per_sec(path.rate.as_bits_per_sec() / u64::from(sending)), ..path };
        let usable = rtt >= MIN_CLIENT_RTT && share.initial_window(segment).is_some();
        usable.then_some(share.rate)
    }

    /// Returns the remembered path to a client, else `claimed`; `None` where neither is known, or
    /// `rtt` belongs to another path.
    pub(crate) fn known(
        &self,
        client: IpAddr,
        claimed: Option<HeldRate>,
        rtt: Rtt,
        now: Duration,
    ) -> Option<HeldRate> {
        let remembered = self.clients.get(&client).and_then(|entry| entry.known);
        let claimed = claimed.map(|claimed| HeldRate { rate: claimed.rate.min(MAX_CLAIMED_RATE), ..claimed });
        let path = remembered.and_then(|known| unexpired(known, now)).or(claimed)?;
        path.may_hold_at(rtt).then_some(path)
    }

    /// Returns the remembered path to a client, unless it has expired, or `rtt` belongs to another
    /// path.
    fn remembered(&self, client: IpAddr, rtt: Rtt, now: Duration) -> Option<HeldRate> {
        let known = self.clients.get(&client).and_then(|entry| entry.known)?;
        unexpired(known, now).filter(|known| known.may_hold_at(rtt))
    }

    /// Removes expired paths, and the oldest, where [`MAX_CLIENT_PATHS`] are remembered.
    ///
    /// Entries without a remembered path are as many as connections, and are kept.
    fn make_room(&mut self, now: Duration) {
        if self.clients.values().filter(|client| client.known.is_some()).count() < MAX_CLIENT_PATHS {
            return;
        }
        let oldest = self.clients.values().filter_map(|client| client.known).map(|(_, at)| at).min();
        let has_expired = |at: Duration| {
            oldest.is_some_and(|oldest| at <= oldest) || now.saturating_sub(at) > CLIENT_PATH_LIFETIME
        };
        self.clients.retain(|_, client| {
            client.known = client.known.filter(|(_, at)| !has_expired(*at));
            client.known.is_some() || client.sending > 0
        });
    }
}

fn unexpired((known, at): (HeldRate, Duration), now: Duration) -> Option<HeldRate> {
    (now.saturating_sub(at) <= CLIENT_PATH_LIFETIME).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const SEGMENT: Bytes = Bytes::new(1448);
    const MS: fn(u64) -> Rtt = |ms| Rtt::new(Duration::from_millis(ms));
    const AT: fn(u64) -> Duration = Duration::from_secs;

    fn known(mbit: u64) -> HeldRate {
        HeldRate { rate: Rate::bits_per_sec(mbit * 1_000_000), rtt: MS(100) }
    }

    fn host(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    fn starting_mbit(clients: &ClientPaths, ms: u64, at: u64) -> Option<u64> {
        clients
            .starting_rate(HOST, None, MS(ms), SEGMENT, AT(at))
            .map(|rate| rate.as_bits_per_sec() / 1_000_000)
    }

    #[test]
    fn path_is_remembered_until_it_expires_or_a_lower_bound_is_larger() {
        let mut clients = ClientPaths::default();
        assert_eq!(starting_mbit(&clients, 100, 0), None);
        clients.record(HOST, known(400), AT(1));
        assert_eq!(starting_mbit(&clients, 120, 2), Some(400));
        assert_eq!(starting_mbit(&clients, 250, 2), None, "another RTT");
        assert_eq!(starting_mbit(&clients, 100, 1 + CLIENT_PATH_LIFETIME.as_secs() + 1), None, "too old");
        assert_eq!(clients.record(HOST, HeldRate { rtt: MS(2), ..known(400) }, AT(3)), None, "too short");
        clients.record(HOST, known(1), AT(3));
        assert_eq!(starting_mbit(&clients, 100, 3), None, "slower than slow start begins");
        let expired = 4 + CLIENT_PATH_LIFETIME.as_secs() + 1;
        for (mbit, at, remembered) in
            [(9000, 4, 9000), (2000, 5, 9000), (2000, expired, 2000), (1000, expired, 1000)]
        {
            assert_eq!(clients.record(HOST, known(mbit), AT(at)), Some(known(mbit)));
            assert_eq!(starting_mbit(&clients, 100, at), Some(remembered), "{mbit} at {at}");
        }
        let mut clients = ClientPaths::default();
        (0..4).for_each(|_| clients.sending_started(HOST));
        for left in [4, 3, 2, 1] {
            assert_eq!(clients.record_lower_bound(HOST, known(40), AT(1)), Some(known(160)), "{left}");
            clients.sending_ended(HOST);
        }
        let (end, longer) = (CLIENT_PATH_LIFETIME.as_secs(), HeldRate { rtt: MS(300), ..known(30) });
        // A higher rate replaces it at once; a lower one only after it has expired, or on another
        // path.
        for (measured, at, recorded) in [
            (known(200), 2, Some(known(200))),
            (known(40), 2 + end, Some(known(200))),
            (known(40), 3 + end, Some(known(40))),
            (longer, 4 + end, Some(longer)),
            (HeldRate { rtt: MS(2), ..known(400) }, 0, None),
        ] {
            assert_eq!(clients.record_lower_bound(HOST, measured, AT(at)), recorded, "{measured:?} at {at}");
        }
    }

    #[test]
    fn starting_rate_is_divided_among_sending_connections_also_if_it_is_claimed() {
        let mut clients = ClientPaths::default();
        clients.sending_started(HOST);
        clients.sending_started(HOST);
        assert_eq!(clients.record(HOST, known(400), AT(1)), Some(known(400)));
        assert_eq!((clients.sending_connections(HOST), starting_mbit(&clients, 100, 1)), (2, Some(200)));
        clients.sending_started(HOST);
        assert_eq!(starting_mbit(&clients, 100, 1), Some(133));
        (0..4).for_each(|_| clients.sending_ended(HOST));
        assert_eq!((clients.sending_connections(HOST), starting_mbit(&clients, 100, 1)), (0, Some(400)));
        let mut clients = ClientPaths::default();
        let asks = |clients: &ClientPaths, mbit: u64, ms: u64, at: u64| {
            let rate = clients.starting_rate(HOST, Some(known(mbit)), MS(ms), SEGMENT, AT(at));
            rate.map(|rate| rate.as_bits_per_sec() / 1_000_000)
        };
        assert_eq!([100, 250].map(|ms| asks(&clients, 300, ms, 0)), [Some(300), None]);
        assert_eq!(asks(&clients, u64::MAX / 1_000_000, 100, 0), Some(100_000), "claims are capped");
        clients.sending_started(HOST);
        clients.sending_started(HOST);
        assert_eq!(asks(&clients, 300, 100, 0), Some(150), "a claim is divided too");
        clients.record(HOST, known(400), AT(0));
        assert_eq!(asks(&clients, 300, 100, 1), Some(200));
        assert_eq!(asks(&clients, 300, 100, CLIENT_PATH_LIFETIME.as_secs() + 1), Some(150));
    }

    #[test]
    fn oldest_path_is_removed_at_the_limit_even_while_its_client_is_sending() {
        let mut clients = ClientPaths::default();
        clients.sending_started(host(0));
        clients.sending_ended(host(0));
        assert!(clients.clients.is_empty(), "a client without a path is not kept");
        for n in 0..MAX_CLIENT_PATHS as u32 + 5 {
            clients.sending_started(host(n));
            clients.record(host(n), known(100), Duration::from_millis(n.into()));
            if n % 2 == 0 {
                clients.sending_ended(host(n));
            }
        }
        let is_known = |n| clients.clients.get(&host(n)).is_some_and(|client| client.known.is_some());
        assert!(!is_known(4) && is_known(5));
        let known_ones = clients.clients.values().filter(|client| client.known.is_some()).count();
        // The first five paths are removed; two of their clients are still sending.
        assert_eq!((known_ones, clients.clients.len()), (MAX_CLIENT_PATHS, MAX_CLIENT_PATHS + 2));
        (0..5).for_each(|n| clients.sending_ended(host(n)));
        assert_eq!(clients.clients.len(), MAX_CLIENT_PATHS);
    }
}
