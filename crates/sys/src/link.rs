//! Network devices and routes (rtnetlink(7)), in the calling thread's network namespace.
//!
//! `/sys/class/net` shows the devices of the namespace that mounted it, which may be another one.

use std::io;
use std::net::IpAddr;

use libc::{
    IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU, RT_TABLE_MAIN, RTA_DST,
    RTA_MULTIPATH, RTA_OIF, RTA_PRIORITY, RTM_GETLINK, RTM_GETROUTE, RTM_NEWLINK, RTM_NEWROUTE, RTN_UNICAST,
};
use rustix::net::AddressFamily;

use crate::rtnetlink::{Attributes, HEADER, Netlink, Request, cut_short, messages, raw_address};

/// Bytes of `struct rtmsg`, `struct ifinfomsg`.
const RTMSG: usize = 12;
const IFINFOMSG: usize = 16;

const IFF_LOOPBACK: u32 = 8;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The index in this network namespace.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The MTU in bytes.
    pub mtu: Option<u32>,
    /// Whether it is the loopback device.
    pub is_loopback: bool,
    /// The kind of a virtual device ("tun", "vlan"); `None` for hardware.
    pub kind: Option<String>,
    /// The hardware address.
    pub address: Vec<u8>,
}

/// Returns the outgoing device of packets to `host`.
///
/// # Errors
/// ENETUNREACH without a route, or another error of the kernel.
pub fn towards(host: IpAddr) -> io::Result<Link> {
    let (family, octets) = raw_address(host);
    let mut request = Request::new(RTM_GETROUTE, 0);
    request.push(&[family, 8 * octets.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    request.attribute(RTA_DST, &octets);
    let netlink = Netlink::open()?;
    let answer = netlink.ask(request)?;
    link(&netlink, outgoing(&answer).ok_or_else(cut_short)?)
}

/// Returns the device of the default route, of IPv4 before IPv6; `None` without a default route.
///
/// Reads the main table only.
///
/// # Errors
/// The kernel's error.
pub fn of_default_route() -> io::Result<Option<Link>> {
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        let mut request = Request::new(RTM_GETROUTE, 0);
        request.push(&[family.as_raw() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let parts = Netlink::open()?.dump(request)?;
        let routes = parts.iter().flat_map(|part| messages(part));
        // The route with the lowest metric applies.
        let best = routes.filter_map(|(kind, message)| default_route(kind, message)).min();
        if let Some((_, index)) = best {
            return link(&Netlink::open()?, index).map(Some);
        }
    }
    Ok(None)
}

/// Returns the metric and device of a route if it is a default route of the main table.
fn default_route(kind: u16, message: &[u8]) -> Option<(u32, u32)> {
    let &[_, bits, _, _, table, _, _, route_kind, ..] = message.get(HEADER..)?.first_chunk::<RTMSG>()?;
    let is_default = kind == RTM_NEWROUTE && bits == 0 && table == RT_TABLE_MAIN && route_kind == RTN_UNICAST;
    let metric = Attributes::after(message, HEADER + RTMSG).number(RTA_PRIORITY).unwrap_or(0);
    is_default.then_some(())?;
    Some((metric, outgoing(message)?))
}

/// Returns the device of a route; of a multipath route, the first device.
fn outgoing(route: &[u8]) -> Option<u32> {
    /// The offset of the device in `struct rtnexthop`.
    const NEXT_HOP_INDEX: usize = 4;
    let attributes = Attributes::after(route, HEADER + RTMSG);
    let shared = || {
        let hops = attributes.get(RTA_MULTIPATH)?;
        number_at(hops, NEXT_HOP_INDEX)
    };
    attributes.number(RTA_OIF).or_else(shared)
}

/// Returns the device of a name.
///
/// # Errors
/// ENODEV without such a device.
pub fn named(name: &str) -> io::Result<Link> {
    let mut request = Request::new(RTM_GETLINK, 0);
    request.push(&[0; IFINFOMSG]);
    request.attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    parse_link(&Netlink::open()?.ask(request)?).ok_or_else(cut_short)
}

/// Requests the data of a device.
fn link(netlink: &Netlink, index: u32) -> io::Result<Link> {
    let mut request = Request::new(RTM_GETLINK, 0);
    let mut head = [0; IFINFOMSG];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    request.push(&head);
    parse_link(&netlink.ask(request)?).ok_or_else(cut_short)
}

fn parse_link(message: &[u8]) -> Option<Link> {
    let (kind, _) = messages(message).next()?;
    let index = number_at(message, HEADER + 4).filter(|_| kind == RTM_NEWLINK)?;
    let flags = number_at(message, HEADER + 8)?;
    let attributes = Attributes::after(message, HEADER + IFINFOMSG);
    Some(Link {
        index,
        name: text(attributes.get(IFLA_IFNAME)?),
        mtu: attributes.number(IFLA_MTU),
        is_loopback: flags & IFF_LOOPBACK != 0,
        kind: attributes.within(IFLA_LINKINFO).get(IFLA_INFO_KIND).map(text),
        address: attributes.get(IFLA_ADDRESS).unwrap_or_default().to_vec(),
    })
}

/// Reads a 32-bit number.
pub(crate) fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Reads a zero-terminated string.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// A message in the kernel's format: header, `head`, attributes.
    fn message(kind: u16, head: &[u8], fill: impl FnOnce(&mut Request)) -> Vec<u8> {
        let mut request = Request::new(kind, 0);
        request.push(head);
        fill(&mut request);
        request.finish()
    }

    #[test]
    fn devices_are_found_by_route_and_name() {
        for host in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            let Ok(link) = towards(host) else {
                assert!(host.is_ipv6(), "a host without IPv6 has IPv4");
                continue;
            };
            assert!(link.is_loopback && link.name == "lo" && link.mtu.is_some(), "{link:?}");
            assert_eq!(named("lo").unwrap(), link);
        }
        assert_eq!(named("none0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(named("a-name-longer-than-the-kernel-takes").is_err());
        // A host without a default route has none to report.
        if let Some(link) = of_default_route().unwrap() {
            assert!(link.index > 0 && !link.name.is_empty(), "{link:?}");
        }
    }

    #[test]
    fn default_route_needs_the_main_table_and_a_device_and_truncated_answers_are_ignored() {
        let head = |bits, table| [2, bits, 0, 0, table, 3, 0, RTN_UNICAST, 0, 0, 0, 0];
        let plain = message(RTM_NEWROUTE, &head(0, RT_TABLE_MAIN), |fill| {
            fill.attribute(RTA_OIF, &2u32.to_ne_bytes());
            fill.attribute(RTA_PRIORITY, &100u32.to_ne_bytes());
        });
        assert_eq!(default_route(RTM_NEWROUTE, &plain), Some((100, 2)));
        let shared = message(RTM_NEWROUTE, &head(0, RT_TABLE_MAIN), |fill| {
            fill.attribute(RTA_MULTIPATH, &[8, 0, 0, 0, 7, 0, 0, 0]);
        });
        assert_eq!(default_route(RTM_NEWROUTE, &shared), Some((0, 7)));
        for (bits, table, device) in [(24, RT_TABLE_MAIN, true), (0, 255, true), (0, RT_TABLE_MAIN, false)] {
            let other = message(RTM_NEWROUTE, &head(bits, table), |fill| {
                (0..u32::from(device)).for_each(|_| fill.attribute(RTA_OIF, &2u32.to_ne_bytes()));
            });
            assert_eq!(default_route(RTM_NEWROUTE, &other), None, "{bits} {table} {device}");
        }
        let whole = message(RTM_NEWLINK, &[0; IFINFOMSG], |fill| {
            fill.nested(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, b"tun\0"));
            fill.attribute(IFLA_IFNAME, b"eth0\0");
        });
        let link = parse_link(&whole).unwrap();
        assert_eq!((link.name.as_str(), link.kind.as_deref()), ("eth0", Some("tun")));
        for end in 0..whole.len() {
            assert!(parse_link(&whole[..end]).is_none(), "{end}");
            assert!(default_route(RTM_NEWROUTE, &whole[..end]).is_none());
        }
    }
}
