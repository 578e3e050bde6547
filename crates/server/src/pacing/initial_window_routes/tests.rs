//! Which routes are kept and which removed, in a network namespace whose only device is the
//! loopback.

use std::net::Ipv4Addr;
use std::thread;

use longhaul_sys::netns;
use longhaul_sys::rtnetlink::{NLM_F_ACK, NLM_F_CREATE_EXCL, Netlink, Request};
use rustix::net::AddressFamily;

use super::*;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const IFF_UP: u32 = 1;
const LOOPBACK: u32 = 1;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The address of a client, to which there is a route.
fn client(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number as u32))
}

/// Runs `job` in a namespace with routes to the clients only.
fn in_network(job: impl FnOnce(RouteTable) + Send + 'static) {
    let work = move || {
        if let Err(why) = netns::enter_new_network() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            return println!("skipped: {why}");
        }
        let netlink = Netlink::open().unwrap();
        let mut up = Request::new(RTM_NEWLINK, NLM_F_ACK);
        up.push(&[0, LOOPBACK, IFF_UP, IFF_UP].map(u32::to_ne_bytes).concat());
        netlink.ask(up).unwrap();
        let mut route = Request::new(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE_EXCL);
        let (bits, main, by_hand, link, unicast) = (15, 254, 4, 253, 1);
        route.push(&[AddressFamily::INET.as_raw() as u8, bits, 0, 0, main, by_hand, link, unicast]);
        route.push(&[0; 4]);
        route.attribute(RTA_DST, &[198, 18, 0, 0]);
        route.attribute(RTA_OIF, &LOOPBACK.to_ne_bytes());
        netlink.ask(route).unwrap();
        job(RouteTable::new(HostRoutes::open().unwrap()));
    };
    thread::spawn(work).join().unwrap();
}

/// Requests a window for a client, `at` seconds after `start`.
fn set(table: &mut RouteTable, to: IpAddr, start: Instant, at: usize) {
    let request = WindowRequest { client: to, local: LOCAL, segments: Some(100), mtu: None };
    table.set(request, start + Duration::from_secs(at as u64));
}

#[test]
fn oldest_route_is_replaced_only_when_another_was_added() {
    in_network(|mut table| {
        let start = Instant::now();
        (0..MAX_ROUTES).for_each(|number| set(&mut table, client(number), start, number));
        assert_eq!(table.windows.len(), MAX_ROUTES);
        // There is no route to the first address; the second is this host's own.
        for stranger in [IpAddr::from([203, 0, 113, 1]), LOCAL] {
            set(&mut table, stranger, start, MAX_ROUTES);
            let is_kept = table.windows.contains_key(&client(0));
            assert!(table.windows.len() == MAX_ROUTES && is_kept, "{stranger}");
        }
        // Requested again, the first is no longer the oldest.
        set(&mut table, client(0), start, MAX_ROUTES + 1);
        set(&mut table, client(MAX_ROUTES), start, MAX_ROUTES + 2);
        assert_eq!(table.windows.len(), MAX_ROUTES);
        let stay = [0, 2, MAX_ROUTES].map(|number| table.windows.contains_key(&client(number)));
        assert!(stay == [true; 3] && !table.windows.contains_key(&client(1)));
    });
}

#[test]
fn routes_that_cannot_be_removed_count_towards_the_limit_and_evict_no_other() {
    in_network(|mut table| {
        let start = Instant::now();
        (0..=MAX_ROUTES).for_each(|number| set(&mut table, client(number), start, number));
        // As if the kernel had refused to remove all of them, with one route above the limit.
        table.windows.values_mut().for_each(|window| window.is_over = true);
        set(&mut table, client(MAX_ROUTES + 1), start, MAX_ROUTES + 1);
        assert_eq!(table.windows.len(), MAX_ROUTES + 1);
        set(&mut table, client(MAX_ROUTES + 2), start, MAX_ROUTES + 2);
        assert_eq!(table.windows.len(), MAX_ROUTES + 1, "at most one route above the limit");
    });
}
