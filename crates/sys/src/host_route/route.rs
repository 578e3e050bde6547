//! Parses route messages, and copies routes.

use std::net::IpAddr;

use libc::{
    RTA_CACHEINFO, RTA_DST, RTA_FLOW, RTA_GATEWAY, RTA_METRICS, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY,
    RTA_TABLE, RTM_NEWROUTE, RTN_UNICAST,
};

use super::{HostRoute, PRIORITY, PROTOCOL, Rtmsg, route_to};
use crate::rtnetlink::{Attributes, HEADER, NLM_F_ACK, NLM_F_CREATE_EXCL, Request, raw_address};

/// Attributes of linux/rtnetlink.h that libc lacks for musl.
const RTA_VIA: u16 = 18;
const RTA_PREF: u16 = 20;
const RTA_PAD: u16 = 24;
/// The gateway is on the link even if its address does not match.
const RTNH_F_ONLINK: u32 = 4;
pub(super) const RTAX_MTU: u16 = 2;
pub(super) const RTAX_INITCWND: u16 = 11;

/// Bytes of `struct rtmsg`.
pub(super) const RTMSG: usize = 12;

/// The content of a route message.
pub(super) struct Route<'a> {
    pub(super) family: u8,
    /// The prefix length of the destination.
    pub(super) bits: u8,
    pub(super) table: u32,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
    attributes: Attributes<'a>,
}

impl<'a> Route<'a> {
    /// Parses a message; `None` if truncated.
    pub(super) fn parse(message: &'a [u8]) -> Option<Self> {
        let &[family, bits, _, _, table, protocol, scope, kind, ref flags @ ..] =
            message.get(HEADER..)?.first_chunk::<RTMSG>()?;
        let attributes = Attributes::after(message, HEADER + RTMSG);
        // The field in the header holds only small numbers.
        let table = attributes.number(RTA_TABLE).unwrap_or(table.into());
        let flags = u32::from_ne_bytes(*flags);
        Some(Self { family, bits, table, protocol, scope, kind, flags, attributes })
    }

    /// Returns the destination address; `None` for the default route.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        let given = self.attributes.get(RTA_DST)?;
        let v4 = || <[u8; 4]>::try_from(given).map(IpAddr::from);
        <[u8; 16]>::try_from(given).map(IpAddr::from).or_else(|_| v4()).ok()
    }

    /// Returns the route if it has this module's protocol and priority, and leads to a single host.
    pub(super) fn ours(&self) -> Option<HostRoute> {
        let host = self.destination()?;
        let is_one = usize::from(self.bits) == 8 * raw_address(host).1.len();
        let is_ours = self.protocol == PROTOCOL && self.attributes.number(RTA_PRIORITY) == Some(PRIORITY);
        (is_one && is_ours).then_some(HostRoute { host, table: self.table })
    }

    /// Returns the reason if the route must not be copied.
    pub(super) fn why_left_alone(&self) -> Option<&'static str> {
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
        let is_strange = self.attributes.clone().any(|(kind, _)| !known.contains(&kind));
        if self.kind != RTN_UNICAST {
            Some("it is no host of another network")
        } else if self.protocol == PROTOCOL {
            Some("another server has made the route to it")
        } else if is_strange || self.attributes.get(RTA_OIF).is_none() {
            Some("the route to it is of a kind that is not copied (several ways, a tunnel)")
        } else if self.metrics().get(RTAX_INITCWND).is_some() {
            Some("the route to it names a window")
        } else {
            None
        }
    }

    fn metrics(&self) -> Attributes<'a> {
        self.attributes.within(RTA_METRICS)
    }

    /// Creates the request for a copy of this route to one host, with an initial window.
    pub(super) fn to_host(&self, host: IpAddr, segments: u32, mtu: Option<u32>) -> Request {
        let head = Rtmsg { protocol: PROTOCOL, scope: self.scope, flags: self.flags & RTNH_F_ONLINK };
        let mut request = route_to(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE_EXCL, host, head);
        for kind in [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_PREFSRC, RTA_FLOW, RTA_PREF] {
            if let Some(value) = self.attributes.get(kind) {
                request.attribute(kind, value);
            }
        }
        request.attribute(RTA_TABLE, &self.table.to_ne_bytes());
        request.attribute(RTA_PRIORITY, &PRIORITY.to_ne_bytes());
        let metrics = self.metrics();
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
