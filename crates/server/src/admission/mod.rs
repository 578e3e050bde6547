//! Which connections may be open, and which shares of the server each client may take.
//!
//! `connection_admission` decides on connections; `connection_slots` applies that to tasks.

mod connection_admission;
pub(crate) mod connection_slots;
pub(crate) mod open_files;
pub(crate) mod shares;

use std::net::IpAddr;

/// A client: an IPv4 address, or the /64 of an IPv6 address, all of which one host can use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientKey(u128);

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address) => Self(address.to_bits() >> 64 << 64),
        }
    }
}
