//! Tests of routes in a separate network namespace, whose only device is the loopback.

use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{RTA_METRICS, RTA_OIF, RTM_NEWLINK};

use super::changes::contains;
use super::route::{RTAX_INITCWND, RTAX_MTU, RTMSG};
use super::*;
use crate::netns::tests::in_new_network;
use crate::rtnetlink::{Attributes, HEADER, NLM_F_CREATE_EXCL};

const IFF_UP: u32 = 1;
const LOOPBACK: u32 = 1;
const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7))];
const LOCAL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Runs `job` in a network namespace in which the loopback device leads to the documentation
/// networks, with a foreign netlink socket.
fn in_network(job: impl FnOnce(&HostRoutes, &Netlink) + Send + 'static) {
    in_new_network(move || {
        let (routes, others) = (HostRoutes::open().unwrap(), Netlink::open().unwrap());
        let mut up = Request::new(RTM_NEWLINK, NLM_F_ACK);
        let header = [0, LOOPBACK, IFF_UP, IFF_UP];
        up.push(&header.map(u32::to_ne_bytes).concat());
        others.ask(up).unwrap();
        for (host, bits) in HOSTS.into_iter().zip([24, 32]) {
            others.ask(route(RTM_NEWROUTE, host, bits, |_| {})).unwrap();
        }
        routes.changes();
        job(&routes, &others);
    });
}

/// Creates the request for a foreign route over the loopback device.
fn route(kind: u16, to: IpAddr, bits: u8, metrics: impl FnOnce(&mut Request)) -> Request {
    let (family, mut network) = raw_address(to);
    let mut request = Request::new(kind, NLM_F_ACK | NLM_F_CREATE_EXCL);
    let (static_route, link) = (4, 253);
    request.push(&[family, bits, 0, 0, RT_TABLE_MAIN, static_route, link, RTN_UNICAST]);
    request.push(&[0; 4]);
    (usize::from(bits) / 8..network.len()).for_each(|byte| network[byte] = 0);
    request.attribute(RTA_DST, &network);
    request.attribute(RTA_OIF, &LOOPBACK.to_ne_bytes());
    request.nested(RTA_METRICS, metrics);
    request
}

/// Adds a foreign route to exactly this host, with a window of 20 segments.
fn add_foreign(others: &Netlink, host: IpAddr) {
    let theirs = |metrics: &mut Request| metrics.attribute(RTAX_INITCWND, &20u32.to_ne_bytes());
    others.ask(route(RTM_NEWROUTE, host, 8 * raw_address(host).1.len() as u8, theirs)).unwrap();
}

fn made(routes: &HostRoutes, host: IpAddr, local: IpAddr, mtu: Option<u32>) -> HostRoute {
    match routes.add(host, local, 500, mtu).unwrap() {
        Added::Made(made) => made,
        Added::LeftAlone(why) => panic!("{host}: {why}"),
    }
}

/// Returns the initial window and the MTU of the route to a host.
fn metrics(routes: &HostRoutes, host: IpAddr) -> (Option<u32>, Option<u32>) {
    let head = Rtmsg { flags: RTM_F_FIB_MATCH, ..Rtmsg::default() };
    let answer = routes.netlink.ask(route_to(RTM_GETROUTE, 0, host, head)).unwrap();
    let metrics = Attributes::after(&answer, HEADER + RTMSG).get(RTA_METRICS).unwrap_or(&[]);
    let metrics = Attributes::after(metrics, 0);
    (metrics.number(RTAX_INITCWND), metrics.number(RTAX_MTU))
}

#[test]
fn route_is_created_and_removed_except_to_this_host_and_unreachable_ones() {
    in_network(|routes, _| {
        for (host, local) in HOSTS.into_iter().zip(LOCAL) {
            let made = made(routes, host, local, Some(1400));
            assert_eq!(metrics(routes, host), (Some(500), Some(1400)), "{host}");
            assert!(!routes.changes().concern(host), "our own changes are none");
            assert!(matches!(routes.add(host, local, 700, None), Ok(Added::Made(_))), "{host} twice");
            assert_eq!(metrics(routes, host), (Some(700), None), "{host}, as if there had been none");
            routes.remove(&made).unwrap();
            assert_eq!(metrics(routes, host), (None, None), "{host}");
            routes.remove(&made).unwrap();
        }
    });
    in_network(|routes, _| {
        for local in LOCAL {
            assert!(matches!(routes.add(local, local, 500, None), Ok(Added::LeftAlone(_))), "{local}");
        }
        assert!(routes.add([203, 0, 113, 1].into(), LOCAL[0], 500, None).is_err());
    });
}

#[test]
fn removal_command_names_protocol_and_table() {
    let removals = HOSTS.map(|host| HostRoute { host, table: MAIN }.removal());
    assert_eq!(removals, ["ip route del 198.51.100.7 proto 176", "ip route del 2001:db8::7 proto 176"]);
    let elsewhere = HostRoute { host: HOSTS[0], table: 1000 }.removal();
    assert_eq!(elsewhere, "ip route del 198.51.100.7 proto 176 table 1000");
}

#[test]
fn foreign_routes_are_not_changed() {
    in_network(|routes, others| {
        for (host, local) in HOSTS.into_iter().zip(LOCAL) {
            let ours = made(routes, host, local, None);
            add_foreign(others, host);
            assert!(routes.changes().concern(host), "{host}");
            assert!(!routes.changes().concern(host), "{host}, once");
            assert_eq!(metrics(routes, host).0, Some(20), "theirs comes first");
            assert!(matches!(routes.add(host, local, 500, None), Ok(Added::LeftAlone(_))), "{host}");
            routes.remove(&ours).unwrap();
            routes.remove(&ours).unwrap();
            assert_eq!(metrics(routes, host).0, Some(20), "and stays");
            let Ok(Added::LeftAlone(why)) = routes.add(host, local, 500, None) else { panic!("{host}") };
            assert!(why.contains("names a window"), "{why}");
        }
    });
}

#[test]
fn removal_of_our_route_by_another_program_is_a_change() {
    in_network(|routes, others| {
        for (host, local) in HOSTS.into_iter().zip(LOCAL) {
            let made = made(routes, host, local, None);
            assert!(!routes.changes().concern(host), "{host}");
            remove(others, &made).unwrap();
            assert!(routes.changes().concern(host), "{host}");
            // The route is already gone, so removing it again is not a change.
            routes.remove(&made).unwrap();
            assert!(!routes.changes().concern(host), "{host}");
        }
    });
}

#[test]
fn only_routes_of_a_killed_process_are_removed() {
    in_network(|routes, _| {
        for (host, local) in HOSTS.into_iter().zip(LOCAL) {
            assert!(matches!(routes.add(host, local, 500, None), Ok(Added::Made(_))), "{host}");
        }
        let found: Vec<_> = left_over().unwrap().iter().map(|route| route.host).collect();
        assert!(HOSTS.iter().all(|host| found.contains(host)) && found.len() == 2, "{found:?}");
        let taken = HostRoutes::open().unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(metrics(routes, HOSTS[0]).0, Some(500), "whose turn it is keeps them");
        assert!(routes.clear().unwrap().is_empty());
        assert!(HOSTS.iter().all(|host| metrics(routes, *host).0.is_none()));
    });
    in_network(|_, others| {
        HOSTS.into_iter().for_each(|host| add_foreign(others, host));
        assert!(left_over().unwrap().is_empty());
    });
}

#[test]
fn networks_contain_their_hosts_and_other_messages_are_ignored() {
    let [v4, v6] = HOSTS;
    assert!(contains([198, 51, 100, 0].into(), 24, v4) && contains([0; 4].into(), 0, v4));
    assert!(!contains([198, 51, 101, 0].into(), 24, v4) && !contains([0; 4].into(), 0, v6));
    assert!(contains(v6, 128, v6) && !contains(LOCAL[1], 128, v6) && contains(v4, 200, v4));
    let mut changes = Changes::default();
    for message in
        [&[][..], &[0; 3], &[0xff; 40], &[16, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 64]]
    {
        changes.note(message, 1);
    }
    assert!(HOSTS.iter().all(|host| !changes.concern(*host)));
}
