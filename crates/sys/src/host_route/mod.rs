//! Routes to single hosts that set the initial congestion window of TCP connections.
//!
//! The kernel takes the initial window of a connection from the route to its peer (RTAX_INITCWND,
//! `tcp_init_cwnd`), by default ten segments. A route created here is a copy of the current route
//! for one address, with this metric added. It has a separate protocol number, by which it is
//! identified for removal.

mod changes;
mod route;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use libc::{
    RT_TABLE_MAIN, RTA_DST, RTA_PRIORITY, RTA_SRC, RTA_TABLE, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE,
    RTN_UNICAST,
};

pub use changes::Changes;

use crate::rtnetlink::{NLM_F_ACK, Netlink, Request, cut_short, messages, raw_address};
use route::Route;

/// The protocol number of routes created here, as in `ip route show proto 176`.
const PROTOCOL: u8 = 176;
/// The priority of the routes: a host route added by an administrator has a lower value, and takes
/// precedence.
const PRIORITY: u32 = 17_600;

/// Of linux/rtnetlink.h, as libc lacks it for musl: the answer has the table of the route.
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
/// As above: the answer is the route itself, not a copy for the address.
const RTM_F_FIB_MATCH: u32 = 0x2000;

/// The number of the main table as an attribute.
const MAIN: u32 = RT_TABLE_MAIN as u32;
/// Notifications about routes of both families.
const RTMGRP_ROUTES: u32 = 0x40 | 0x400;

/// A route to one host, made by [`HostRoutes::add`].
#[derive(Debug)]
pub struct HostRoute {
    host: IpAddr,
    table: u32,
}

impl HostRoute {
    /// Returns the command that removes the route, for messages.
    pub fn removal(&self) -> String {
        let table = match self.table {
            MAIN => String::new(),
            other => format!(" table {other}"),
        };
        format!("ip route del {} proto {PROTOCOL}{table}", self.host)
    }
}

/// Creates host routes in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct HostRoutes {
    netlink: Netlink,
    /// The address of `netlink`: changes requested by it are ignored.
    own: u32,
    changes: Netlink,
    /// Held by the only process that creates such routes in the namespace; released by the kernel
    /// at process exit.
    _turn: UnixListener,
}

/// The abstract socket name of that lock, separate for each network namespace.
const TURN: &str = "longhaul-routes";

/// The outcome of adding a route.
#[derive(Debug)]
pub enum Added {
    /// The route was created.
    Made(HostRoute),
    /// The route would change more than the window, or override an existing choice: the reason.
    LeftAlone(&'static str),
}

impl HostRoutes {
    /// Checks that the kernel lets this process change routes, and that no other process creates
    /// such routes.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN in the network namespace, EADDRINUSE if another process creates
    /// such routes in it.
    pub fn open() -> io::Result<Self> {
        let netlink = Netlink::open()?;
        // An address of RFC 5737, without a route of this protocol; the kernel checks the
        // permission first.
        let nowhere = HostRoute { host: IpAddr::from([192, 0, 2, 1]), table: MAIN };
        remove(&netlink, &nowhere)?;
        let turn = UnixListener::bind_addr(&SocketAddr::from_abstract_name(TURN)?)?;
        let own = netlink.port()?;
        Ok(Self { netlink, own, changes: Netlink::listen(RTMGRP_ROUTES)?, _turn: turn })
    }

    /// Removes routes left by a killed process; returns those that the kernel refused to remove.
    ///
    /// # Errors
    /// The kernel's error on listing routes.
    pub fn clear(&self) -> io::Result<Vec<(IpAddr, io::Error)>> {
        let refused = |left: HostRoute| Some((left.host, self.remove(&left).err()?));
        Ok(left_over()?.into_iter().filter_map(refused).collect())
    }

    /// Sets an initial window of `segments` for connections from `local` to `host`, on a path of
    /// MTU `mtu`.
    ///
    /// Copies the current route: device, gateway, source address and metrics. The result of PMTU
    /// discovery belongs to the current route, so `mtu` preserves it. A remaining route of this
    /// protocol is replaced.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add(&self, host: IpAddr, local: IpAddr, segments: u32, mtu: Option<u32>) -> io::Result<Added> {
        let mut answer = self.in_force(host, local)?;
        // Only this process creates routes of this protocol while it holds the lock.
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
            // The new route does not take precedence over the current one; only the new one is
            // removed.
            self.remove(&made)?;
            result = self.netlink.ask(route.to_host(host, segments, mtu));
        }
        match result {
            Ok(_) => Ok(Added::Made(made)),
            Err(error) if is_there(&error) => Ok(Added::LeftAlone("there is a route to this host already")),
            Err(error) => Err(error),
        }
    }

    /// Requests the current route from `local` to `host`.
    fn in_force(&self, host: IpAddr, local: IpAddr) -> io::Result<Vec<u8>> {
        // The configured route, not the resulting one, and the number of its table.
        let head = Rtmsg { flags: RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH, ..Rtmsg::default() };
        let mut ask = route_to(RTM_GETROUTE, 0, host, head);
        ask.attribute(RTA_SRC, &raw_address(local).1);
        self.netlink.ask(ask)
    }

    /// Removes a route; a missing route is not an error.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self, route: &HostRoute) -> io::Result<()> {
        remove(&self.netlink, route)
    }

    /// Returns changes by other programs since the last call.
    ///
    /// A copied route does not follow changes of its original, and other programs may remove a
    /// copy.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        loop {
            match self.changes.notification() {
                Ok(Some(message)) => changes.note(&message, self.own),
                Ok(None) => return changes,
                Err(_) => {
                    changes.note_lost();
                    return changes;
                }
            }
        }
    }
}

/// Removes a route; a missing route is not an error.
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

/// Lists the routes of this protocol and priority to single hosts.
fn left_over() -> io::Result<Vec<HostRoute>> {
    let mut all = Request::new(RTM_GETROUTE, 0);
    // Both families, this protocol.
    all.push(&[0, 0, 0, 0, 0, PROTOCOL, 0, 0, 0, 0, 0, 0]);
    let mut found = Vec::new();
    for part in Netlink::open()?.dump(all)? {
        for (_, message) in messages(&part) {
            found.extend(Route::parse(message).and_then(|route| route.ours()));
        }
    }
    Ok(found)
}

/// The fields of `struct rtmsg` that differ between requests.
#[derive(Debug, Clone, Copy, Default)]
struct Rtmsg {
    protocol: u8,
    scope: u8,
    flags: u32,
}

/// Starts a request for the route to one host.
fn route_to(kind: u16, nlm_flags: u16, host: IpAddr, head: Rtmsg) -> Request {
    let (family, address) = raw_address(host);
    let bits = 8 * address.len() as u8;
    let source_bits = if kind == RTM_GETROUTE { bits } else { 0 };
    let mut request = Request::new(kind, nlm_flags);
    let Rtmsg { protocol, scope, flags } = head;
    // An attribute contains the table, whose number may not fit here.
    let scope = if kind == RTM_DELROUTE { ANY_SCOPE } else { scope };
    let route_kind = if kind == RTM_NEWROUTE { RTN_UNICAST } else { 0 };
    request.push(&[family, bits, source_bits, 0, 0, protocol, scope, route_kind]);
    request.push(&flags.to_ne_bytes());
    request.attribute(RTA_DST, &address);
    request
}

/// RT_SCOPE_NOWHERE, which matches any scope in a removal.
const ANY_SCOPE: u8 = 255;
