//! Routes to single hosts that give TCP connections to them an initial congestion window.
//!
//! The kernel begins a connection with the window that the route to its peer names (RTAX_INITCWND, `tcp_init_cwnd`),
//! or with ten segments. A route of ours is the one in force, for one address, with that metric added; it carries a
//! protocol number of its own, by which the kernel tells it from everybody else's when it is to be removed.

use std::io;
use std::net::IpAddr;

use rustix::net::AddressFamily;

use crate::rtnetlink::{Attributes, HEADER, NLM_F_ACK, NLM_F_CREATE_EXCL, Netlink, Request};

/// The protocol of routes made here, as `ip route show proto 176` finds them.
pub const PROTOCOL: u8 = 176;
/// Their metric. Whoever adds a route to the same host has a lower one, and is obeyed.
const PRIORITY: u32 = 17_600;

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
/// Asks which table the route is in,
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
/// and for the route as it was configured, not for what follows from it.
const RTM_F_FIB_MATCH: u32 = 0x2000;
/// The gateway is on the link, whatever the addresses say.
const RTNH_F_ONLINK: u32 = 4;
const RTN_UNICAST: u8 = 1;
const RT_TABLE_MAIN: u8 = 254;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_FLOW: u16 = 11;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_PAD: u16 = 24;
const RTAX_MTU: u16 = 2;
const RTAX_INITCWND: u16 = 11;
/// Routes of both families that come, go and change.
const RTMGRP_ROUTES: u32 = 0x40 | 0x400;

/// Bytes of `struct rtmsg`.
const RTMSG: usize = 12;

/// A route to one host, made by [`HostRoutes::add`].
#[derive(Debug)]
pub struct HostRoute {
    host: IpAddr,
    table: u32,
}

/// Makes host routes, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct HostRoutes {
    netlink: Netlink,
    changes: Netlink,
}

/// What became of a route that was asked for.
#[derive(Debug)]
pub enum Added {
    /// It is there.
    Made(HostRoute),
    /// It would change more than the window, or a choice that somebody has made: why.
    LeftAlone(&'static str),
}

/// Where in a route's attributes those of ours come from.
struct Route<'a> {
    table: u32,
    scope: u8,
    flags: u32,
    attributes: Attributes<'a>,
}

impl HostRoutes {
    /// Makes sure that the kernel lets this process change routes.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN over the network namespace.
    pub fn open() -> io::Result<Self> {
        let this = Self { netlink: Netlink::open()?, changes: Netlink::listen(RTMGRP_ROUTES)? };
        // An address of RFC 5737, to which nobody has a route of this protocol; the permission is looked at first.
        let nowhere = HostRoute { host: IpAddr::from([192, 0, 2, 1]), table: RT_TABLE_MAIN.into() };
        this.remove(&nowhere)?;
        Ok(this)
    }

    /// Gives connections from `local` to `host` an initial window of so many segments of a path of this MTU.
    ///
    /// The route in force is copied: device, gateway, source address and metrics. What PMTU discovery has found belongs
    /// to a route too, so `mtu` keeps it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add(&self, host: IpAddr, local: IpAddr, segments: u32, mtu: Option<u32>) -> io::Result<Added> {
        let mut ask = route_to(
            RTM_GETROUTE,
            0,
            host,
            Rtmsg { flags: RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH, ..Rtmsg::default() },
        );
        ask.attribute(RTA_SRC, &octets(local));
        let answer = self.netlink.ask(ask)?;
        let route = match Route::read(&answer) {
            Ok(route) => route,
            Err(why) => return Ok(Added::LeftAlone(why)),
        };
        match self.netlink.ask(route.to_host(host, segments, mtu)) {
            Ok(_) => Ok(Added::Made(HostRoute { host, table: route.table })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Added::LeftAlone("there is a route to this host already"))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a route; one that is gone already is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&self, route: &HostRoute) -> io::Result<()> {
        let head = Rtmsg { protocol: PROTOCOL, ..Rtmsg::default() };
        let mut request = route_to(RTM_DELROUTE, NLM_F_ACK, route.host, head);
        request.attribute(RTA_TABLE, &route.table.to_ne_bytes());
        request.attribute(RTA_PRIORITY, &PRIORITY.to_ne_bytes());
        match self.netlink.ask(request) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Returns whether somebody else has changed the way to this host since [`Self::changes`] was last asked.
    ///
    /// A copy of a route does not follow its original.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        loop {
            match self.changes.heard() {
                Ok(Some(message)) => changes.note(&message),
                Ok(None) => return changes,
                Err(_) => {
                    changes.unknown = true;
                    return changes;
                }
            }
        }
    }
}

/// What others have changed.
#[derive(Debug, Default)]
pub struct Changes {
    prefixes: Vec<(IpAddr, u8)>,
    /// More than could be heard.
    unknown: bool,
}

impl Changes {
    /// Says whether the way to this host may be another.
    pub fn concern(&self, host: IpAddr) -> bool {
        self.unknown || self.prefixes.iter().any(|(net, bits)| contains(*net, *bits, host))
    }

    /// Takes in a message: several may come in one, each with its length.
    fn note(&mut self, mut messages: &[u8]) {
        while let Some(header) = messages.first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let kind = u16::from_ne_bytes([header[4], header[5]]);
            let Some(message) = messages.get(..length).filter(|_| length >= HEADER) else { break };
            if matches!(kind, RTM_NEWROUTE | RTM_DELROUTE) {
                self.note_route(message);
            }
            messages = messages.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }

    fn note_route(&mut self, message: &[u8]) {
        let Some(head) = message.get(HEADER..HEADER + RTMSG) else { return };
        let (family, bits, protocol) = (u16::from(head[0]), head[1], head[5]);
        if protocol == PROTOCOL {
            return;
        }
        let given = Attributes::after(message, HEADER + RTMSG).get(RTA_DST);
        let net = match (AddressFamily::from_raw(family), given) {
            (AddressFamily::INET, None) => Some(IpAddr::from([0; 4])),
            (AddressFamily::INET, Some(v4)) => <[u8; 4]>::try_from(v4).ok().map(IpAddr::from),
            (AddressFamily::INET6, None) => Some(IpAddr::from([0; 16])),
            (AddressFamily::INET6, Some(v6)) => <[u8; 16]>::try_from(v6).ok().map(IpAddr::from),
            _ => None,
        };
        self.prefixes.extend(net.map(|net| (net, bits)));
    }
}

impl<'a> Route<'a> {
    /// Reads a route; says why where it is not to be copied.
    fn read(message: &'a [u8]) -> Result<Self, &'static str> {
        let head = message.get(HEADER..HEADER + RTMSG).ok_or("the kernel's answer is too short")?;
        let attributes = Attributes::after(message, HEADER + RTMSG);
        if head[7] != RTN_UNICAST {
            return Err("it is no host of another network");
        }
        if head[5] == PROTOCOL {
            return Err("another server has made the route to it");
        }
        let known = [
            RTA_DST,
            RTA_OIF,
            RTA_GATEWAY,
            RTA_PRIORITY,
            RTA_PREFSRC,
            RTA_METRICS,
            RTA_FLOW,
            RTA_CACHEINFO,
            RTA_TABLE,
            RTA_VIA,
            RTA_PREF,
            RTA_PAD,
        ];
        if attributes.clone().any(|(kind, _)| !known.contains(&kind)) || attributes.get(RTA_OIF).is_none() {
            return Err("the route to it is of a kind that is not copied (several ways, a tunnel)");
        }
        if Attributes::after(attributes.get(RTA_METRICS).unwrap_or(&[]), 0).get(RTAX_INITCWND).is_some() {
            return Err("the route to it names a window");
        }
        let table = attributes.number(RTA_TABLE).unwrap_or(head[4].into());
        let flags = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) & RTNH_F_ONLINK;
        Ok(Self { table, scope: head[6], flags, attributes })
    }

    /// Makes the request for the same route to one host, with an initial window.
    fn to_host(&self, host: IpAddr, segments: u32, mtu: Option<u32>) -> Request {
        let head = Rtmsg { protocol: PROTOCOL, scope: self.scope, flags: self.flags };
        let mut request = route_to(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE_EXCL, host, head);
        for kind in [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_PREFSRC, RTA_FLOW, RTA_PREF] {
            if let Some(value) = self.attributes.get(kind) {
                request.attribute(kind, value);
            }
        }
        request.attribute(RTA_TABLE, &self.table.to_ne_bytes());
        request.attribute(RTA_PRIORITY, &PRIORITY.to_ne_bytes());
        let metrics = Attributes::after(self.attributes.get(RTA_METRICS).unwrap_or(&[]), 0);
        request.nested(RTA_METRICS, |nested| {
            metrics.clone().for_each(|(kind, value)| nested.attribute(kind, value));
            if let Some(mtu) = mtu.filter(|_| metrics.get(RTAX_MTU).is_none()) {
                nested.attribute(RTAX_MTU, &mtu.to_ne_bytes());
            }
            nested.attribute(RTAX_INITCWND, &segments.to_ne_bytes());
        });
        request
    }
}

/// What of `struct rtmsg` differs from request to request.
#[derive(Debug, Clone, Copy, Default)]
struct Rtmsg {
    protocol: u8,
    scope: u8,
    flags: u32,
}

/// Begins a request for the route to one host.
fn route_to(kind: u16, nlm_flags: u16, host: IpAddr, head: Rtmsg) -> Request {
    let address = octets(host);
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let bits = 8 * address.len() as u8;
    let source_bits = if kind == RTM_GETROUTE { bits } else { 0 };
    let mut request = Request::new(kind, nlm_flags);
    let Rtmsg { protocol, scope, flags } = head;
    // The attribute says which table, for its number may not fit here.
    let scope = if kind == RTM_DELROUTE { ANY_SCOPE } else { scope };
    let route_kind = if kind == RTM_NEWROUTE { RTN_UNICAST } else { 0 };
    request.push(&[family.as_raw() as u8, bits, source_bits, 0, 0, protocol, scope, route_kind]);
    request.push(&flags.to_ne_bytes());
    request.attribute(RTA_DST, &address);
    request
}

/// RT_SCOPE_NOWHERE, which in a removal stands for any.
const ANY_SCOPE: u8 = 255;

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Says whether the network that these first bits of `net` name holds `host`.
fn contains(net: IpAddr, bits: u8, host: IpAddr) -> bool {
    let (net, host) = (octets(net), octets(host));
    let bits = usize::from(bits);
    net.len() == host.len()
        && (0..bits.min(8 * net.len())).all(|bit| (net[bit / 8] ^ host[bit / 8]) & (0x80 >> (bit % 8)) == 0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::thread;

    use super::*;
    use crate::netns;

    const RTM_NEWLINK: u16 = 16;
    const IFF_UP: u32 = 1;
    const LOOPBACK: u32 = 1;
    const HOSTS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
    ];
    const LOCAL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

    /// Does `job` in a network namespace in which the loopback device leads to the documentation's networks.
    fn in_network(job: impl FnOnce(&HostRoutes) + Send + 'static) {
        let work = move || {
            if let Err(why) = netns::enter_new_network() {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
                return println!("skipped: {why}");
            }
            let routes = HostRoutes::open().unwrap();
            let mut up = Request::new(RTM_NEWLINK, NLM_F_ACK);
            let header = [0, LOOPBACK, IFF_UP, IFF_UP];
            up.push(&header.map(u32::to_ne_bytes).concat());
            routes.netlink.ask(up).unwrap();
            for (host, bits) in HOSTS.into_iter().zip([24, 32]) {
                routes.netlink.ask(route(RTM_NEWROUTE, host, bits, |_| {})).unwrap();
            }
            routes.changes();
            job(&routes);
        };
        thread::spawn(work).join().unwrap();
    }

    /// Makes the request for a route of somebody else's over the loopback device.
    fn route(kind: u16, to: IpAddr, bits: u8, metrics: impl FnOnce(&mut Request)) -> Request {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let mut request = Request::new(kind, NLM_F_ACK | NLM_F_CREATE_EXCL);
        let (static_route, link) = (4, 253);
        request.push(&[family.as_raw() as u8, bits, 0, 0, RT_TABLE_MAIN, static_route, link, RTN_UNICAST]);
        request.push(&[0; 4]);
        let mut network = octets(to);
        (usize::from(bits) / 8..network.len()).for_each(|byte| network[byte] = 0);
        request.attribute(RTA_DST, &network);
        request.attribute(RTA_OIF, &LOOPBACK.to_ne_bytes());
        request.nested(RTA_METRICS, metrics);
        request
    }

    /// Returns the window and the MTU that the route to a host names.
    fn metrics(routes: &HostRoutes, host: IpAddr) -> (Option<u32>, Option<u32>) {
        let head = Rtmsg { flags: RTM_F_FIB_MATCH, ..Rtmsg::default() };
        let answer = routes.netlink.ask(route_to(RTM_GETROUTE, 0, host, head)).unwrap();
        let metrics = Attributes::after(&answer, HEADER + RTMSG).get(RTA_METRICS).unwrap_or(&[]);
        let metrics = Attributes::after(metrics, 0);
        (metrics.number(RTAX_INITCWND), metrics.number(RTAX_MTU))
    }

    #[test]
    fn a_route_is_made_and_removed() {
        in_network(|routes| {
            for (host, local) in HOSTS.into_iter().zip(LOCAL) {
                let Added::Made(made) = routes.add(host, local, 500, Some(1400)).unwrap() else {
                    panic!("no route to {host}")
                };
                assert_eq!(metrics(routes, host), (Some(500), Some(1400)), "{host}");
                assert!(!routes.changes().concern(host), "our own changes are none");
                assert!(matches!(routes.add(host, local, 9, None), Ok(Added::LeftAlone(_))), "{host} twice");
                routes.remove(&made).unwrap();
                assert_eq!(metrics(routes, host), (None, None), "{host}");
                routes.remove(&made).unwrap();
            }
        });
    }

    #[test]
    fn somebody_elses_routes_are_left_alone() {
        in_network(|routes| {
            for (host, local) in HOSTS.into_iter().zip(LOCAL) {
                let bits = 8 * octets(host).len() as u8;
                let Added::Made(ours) = routes.add(host, local, 500, None).unwrap() else { panic!("{host}") };
                let theirs = |metrics: &mut Request| metrics.attribute(RTAX_INITCWND, &20u32.to_ne_bytes());
                routes.netlink.ask(route(RTM_NEWROUTE, host, bits, theirs)).unwrap();
                assert!(routes.changes().concern(host), "{host}");
                assert!(!routes.changes().concern(host), "{host}, once");
                assert_eq!(metrics(routes, host).0, Some(20), "theirs comes first");
                routes.remove(&ours).unwrap();
                routes.remove(&ours).unwrap();
                assert_eq!(metrics(routes, host).0, Some(20), "and stays");
                let Ok(Added::LeftAlone(why)) = routes.add(host, local, 500, None) else { panic!("{host}") };
                assert!(why.contains("names a window"), "{why}");
            }
        });
    }

    #[test]
    fn this_host_and_nowhere_get_no_route() {
        in_network(|routes| {
            for local in LOCAL {
                assert!(matches!(routes.add(local, local, 500, None), Ok(Added::LeftAlone(_))), "{local}");
            }
            assert!(routes.add([203, 0, 113, 1].into(), LOCAL[0], 500, None).is_err());
        });
    }

    #[test]
    fn a_network_holds_its_hosts() {
        let [v4, v6] = HOSTS;
        assert!(contains([198, 51, 100, 0].into(), 24, v4) && contains([0; 4].into(), 0, v4));
        assert!(!contains([198, 51, 101, 0].into(), 24, v4) && !contains([0; 4].into(), 0, v6));
        assert!(contains(v6, 128, v6) && !contains(LOCAL[1], 128, v6) && contains(v4, 200, v4));
    }

    #[test]
    fn a_message_that_is_no_route_changes_nothing() {
        let mut changes = Changes::default();
        for message in
            [&[][..], &[0; 3], &[0xff; 40], &[16, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0; 64]]
        {
            changes.note(message);
        }
        assert!(HOSTS.iter().all(|host| !changes.concern(*host)));
    }
}
