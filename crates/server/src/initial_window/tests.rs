//! Which routes stay, in a network of the test's own whose only device is the loopback.

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

/// A client by its number; there is a way to each of them.
fn client(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number as u32))
}

/// Does `job` where there is a way to the clients, and to nobody else.
fn in_network(job: impl FnOnce(Given) + Send + 'static) {
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
        job(Given::new(HostRoutes::open().unwrap()));
    };
    thread::spawn(work).join().unwrap();
}

/// Gives a client a window, so many seconds after `start`.
fn give(given: &mut Given, to: IpAddr, start: Instant, at: usize) {
    let gift = Gift { client: to, local: LOCAL, segments: Some(100), mtu: None };
    given.give(gift, start + Duration::from_secs(at as u64));
}

#[test]
fn the_oldest_makes_room_for_one_that_is_there() {
    in_network(|mut given| {
        let start = Instant::now();
        (0..MOST).for_each(|number| give(&mut given, client(number), start, number));
        assert_eq!(given.windows.len(), MOST);
        // No way leads to the one, and the other is this host.
        for stranger in [IpAddr::from([203, 0, 113, 1]), LOCAL] {
            give(&mut given, stranger, start, MOST);
            assert!(given.windows.len() == MOST && given.windows.contains_key(&client(0)), "{stranger}");
        }
        // Found once more, the first is no longer the oldest.
        give(&mut given, client(0), start, MOST + 1);
        give(&mut given, client(MOST), start, MOST + 2);
        assert_eq!(given.windows.len(), MOST);
        let stay = [0, 2, MOST].map(|number| given.windows.contains_key(&client(number)));
        assert!(stay == [true; 3] && !given.windows.contains_key(&client(1)));
    });
}

#[test]
fn what_the_kernel_keeps_counts_and_is_no_reason_to_lose_another() {
    in_network(|mut given| {
        let start = Instant::now();
        (0..=MOST).for_each(|number| give(&mut given, client(number), start, number));
        // As if the removal of all of them had been refused, and one more were there than may be.
        given.windows.values_mut().for_each(|window| window.is_over = true);
        give(&mut given, client(MOST + 1), start, MOST + 1);
        assert_eq!(given.windows.len(), MOST + 1);
        give(&mut given, client(MOST + 2), start, MOST + 2);
        assert_eq!(given.windows.len(), MOST + 1, "no more than one too many");
    });
}
