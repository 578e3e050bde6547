//! Routes to single hosts that give TCP connections to them an initial congestion window.
//!
//! The kernel begins a connection with the window that the route to its peer names (RTAX_INITCWND, `tcp_init_cwnd`),
//! or with ten segments. A route of ours is the one in force, for one address, with that metric added; it carries a
//! protocol number of its own, by which the kernel tells it from everybody else's when it is to be removed.

mod changes;
mod route;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use rustix::net::AddressFamily;

pub use changes::Changes;

use crate::rtnetlink::{NLM_F_ACK, Netlink, Request, cut_short, messages};
use route::Route;

/// The protocol of routes made here, as `ip route show proto 176` finds them.
const PROTOCOL: u8 = 176;
/// Their metric: a route to the same host that an administrator adds has a lower one, and precedes.
const PRIORITY: u32 = 17_600;

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
/// Asks which table the route is in,
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
/// and for the route as it was configured, not for what follows from it.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTN_UNICAST: u8 = 1;
const RT_TABLE_MAIN: u8 = 254;
/// The same, where it stands in an attribute.
const MAIN: u32 = RT_TABLE_MAIN as u32;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_PRIORITY: u16 = 6;
const RTA_TABLE: u16 = 15;
/// Routes of both families that come, go and change.
const RTMGRP_ROUTES: u32 = 0x40 | 0x400;

/// A route to one host, made by [`HostRoutes::add`].
#[derive(Debug)]
pub struct HostRoute {
    host: IpAddr,
    table: u32,
}

impl HostRoute {
    /// Returns the command that removes it, for people.
    pub fn removal(&self) -> String {
        let table = match self.table {
            MAIN => String::new(),
            other => format!(" table {other}"),
        };
        format!("ip route del {} proto {PROTOCOL}{table}", self.host)
    }
}

/// Makes host routes, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct HostRoutes {
    netlink: Netlink,
    /// Its address: what it asks for is no change of others.
    own: u32,
    changes: Netlink,
    /// Held by the one process that makes such routes here; the kernel frees it with the process.
    _turn: UnixListener,
}

/// The name of that turn, which is each network namespace's own.
const TURN: &str = "longhaul-routes";

/// What became of a route that was asked for.
#[derive(Debug)]
pub enum Added {
    /// It is there.
    Made(HostRoute),
    /// It would change more than the window, or a choice that somebody has made: why.
    LeftAlone(&'static str),
}

impl HostRoutes {
    /// Makes sure that the kernel lets this process change routes, and that it is the only one that makes these.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN over the network namespace, EADDRINUSE where another process makes such routes in it.
    pub fn open() -> io::Result<Self> {
        let netlink = Netlink::open()?;
        // An address of RFC 5737, to which nobody has a route of this protocol; the permission is looked at first.
        let nowhere = HostRoute { host: IpAddr::from([192, 0, 2, 1]), table: MAIN };
        remove(&netlink, &nowhere)?;
        let turn = UnixListener::bind_addr(&SocketAddr::from_abstract_name(TURN)?)?;
        let own = netlink.port()?;
        Ok(Self { netlink, own, changes: Netlink::listen(RTMGRP_ROUTES)?, _turn: turn })
    }

    /// Removes what a process has left that was killed; returns what the kernel has refused to.
    ///
    /// # Errors
    /// What the kernel says where it does not list its routes.
    pub fn clear(&self) -> io::Result<Vec<(IpAddr, io::Error)>> {
        let refused = |left: HostRoute| Some((left.host, self.remove(&left).err()?));
        Ok(left_over()?.into_iter().filter_map(refused).collect())
    }

    /// Gives connections from `local` to `host` an initial window of so many segments of a path of this MTU.
    ///
    /// The route in force is copied: device, gateway, source address and metrics. What PMTU discovery has found belongs
    /// to a route too, so `mtu` keeps it. A route of ours that is there already, which could not be removed, is replaced.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add(&self, host: IpAddr, local: IpAddr, segments: u32, mtu: Option<u32>) -> io::Result<Added> {
        let mut answer = self.in_force(host, local)?;
        // Nobody else makes such routes while we have the turn.
        if let Some(left) = Route::parse(&answer).and_then(|route| route.ours()) {
            self.remove(&left)?;
            answer = self.in_force(host, local)?;
        }
        let route = Route::parse(&answer).ok_or_else(cut_short)?;
        if let Some(why) = route.why_left_alone() {
            return Ok(Added::LeftAlone(why));
        }
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        let made = HostRoute { host, table: route.table };
        let mut result = self.netlink.ask(route.to_host(host, segments, mtu));
        if result.as_ref().is_err_and(is_there) {
            // Behind the one in force; only one of ours is removed.
            self.remove(&made)?;
            result = self.netlink.ask(route.to_host(host, segments, mtu));
        }
        match result {
            Ok(_) => Ok(Added::Made(made)),
            Err(error) if is_there(&error) => Ok(Added::LeftAlone("there is a route to this host already")),
            Err(error) => Err(error),
        }
    }

    /// Asks for the route in force from `local` to `host`.
    fn in_force(&self, host: IpAddr, local: IpAddr) -> io::Result<Vec<u8>> {
        let head = Rtmsg { flags: RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH, ..Rtmsg::default() };
        let mut ask = route_to(RTM_GETROUTE, 0, host, head);
        ask.attribute(RTA_SRC, &octets(local));
        self.netlink.ask(ask)
    }

    /// Removes a route; one that is gone already is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(&self, route: &HostRoute) -> io::Result<()> {
        remove(&self.netlink, route)
    }

    /// Returns what others have changed since this was last asked.
    ///
    /// A copy of a route does not follow its original; and whoever removes one of ours need not be us.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        loop {
            match self.changes.heard() {
                Ok(Some(message)) => changes.note(&message, self.own),
                Ok(None) => return changes,
                Err(_) => {
                    changes.lost_count();
                    return changes;
                }
            }
        }
    }
}

/// Removes a route; one that is gone already is none.
fn remove(netlink: &Netlink, route: &HostRoute) -> io::Result<()> {
    let head = Rtmsg { protocol: PROTOCOL, ..Rtmsg::default() };
    let mut request = route_to(RTM_DELROUTE, NLM_F_ACK, route.host, head);
    request.attribute(RTA_TABLE, &route.table.to_ne_bytes());
    request.attribute(RTA_PRIORITY, &PRIORITY.to_ne_bytes());
    match netlink.ask(request) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
        other => other.map(drop),
    }
}

/// Finds the routes of this protocol and metric, to single hosts.
fn left_over() -> io::Result<Vec<HostRoute>> {
    let mut all = Request::new(RTM_GETROUTE, 0);
    // Of both families, of this protocol.
    all.push(&[0, 0, 0, 0, 0, PROTOCOL, 0, 0, 0, 0, 0, 0]);
    let mut found = Vec::new();
    for part in Netlink::open()?.dump(all)? {
        for (_, message) in messages(&part) {
            found.extend(Route::parse(message).and_then(|route| route.ours()));
        }
    }
    Ok(found)
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
