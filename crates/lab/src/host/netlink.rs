//! The rtnetlink requests that configure a device, in the network namespace where the socket was opened.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{
    IFA_ADDRESS, IFA_LOCAL, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU,
    IFLA_NET_NS_FD, IFLA_STATS64, IFLA_TXQLEN, RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK,
};
use longhaul_sys::rtnetlink::{Attributes, HEADER, NLM_F_ACK, NLM_F_CREATE_EXCL, Request, raw_address};

const VETH_INFO_PEER: u16 = 1;
/// Skips duplicate address detection: the address is usable at once.
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
const IFF_MULTICAST: u32 = 0x1000;

/// A device's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceCounters {
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) send_drops: u64,
}

/// A netlink socket, bound to the network namespace of the thread that opened it; usable from any thread.
#[derive(Debug)]
pub(crate) struct DeviceNetlink(longhaul_sys::rtnetlink::Netlink);

impl DeviceNetlink {
    pub(crate) fn open() -> io::Result<Self> {
        longhaul_sys::rtnetlink::Netlink::open().map(Self)
    }

    /// Creates a veth pair: `name` in this namespace and in the namespace `peer`.
    pub(crate) fn add_veth(&self, name: &str, peer: BorrowedFd<'_>) -> io::Result<()> {
        let mut request = link(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE_EXCL, 0, 0, 0);
        request.attribute(IFLA_IFNAME, &c_string(name));
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |other| {
                    other.push(&ifinfomsg(0, 0, 0));
                    other.attribute(IFLA_IFNAME, &c_string(name));
                    other.attribute(IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.0.ask(request).map(drop)
    }

    /// Returns the index of the device `name`.
    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.0, name)?)
    }

    /// Sets a device's MTU and its transmit queue length in packets.
    pub(crate) fn set_limits(&self, device: u32, mtu: u32, queue: u32) -> io::Result<()> {
        let mut request = link(RTM_NEWLINK, NLM_F_ACK, device, 0, 0);
        request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        request.attribute(IFLA_TXQLEN, &queue.to_ne_bytes());
        self.0.ask(request).map(drop)
    }

    /// Disables multicast, so that a point-to-point device sends nothing by itself.
    pub(crate) fn set_quiet(&self, device: u32) -> io::Result<()> {
        self.0.ask(link(RTM_NEWLINK, NLM_F_ACK, device, 0, IFF_MULTICAST)).map(drop)
    }

    /// Brings a device up.
    pub(crate) fn set_up(&self, device: u32) -> io::Result<()> {
        self.0.ask(link(RTM_NEWLINK, NLM_F_ACK, device, IFF_UP, IFF_UP)).map(drop)
    }

    /// Returns whether a device is operational: its peer is up, and the kernel has noticed.
    pub(crate) fn is_running(&self, device: u32) -> io::Result<bool> {
        let reply = self.0.ask(link(RTM_GETLINK, 0, device, 0, 0))?;
        let flags = reply.get(HEADER + 8..HEADER + 12).and_then(|flags| flags.try_into().ok());
        Ok(flags.is_some_and(|flags| u32::from_ne_bytes(flags) & IFF_RUNNING != 0))
    }

    /// Assigns an address to a device, usable at once.
    pub(crate) fn add_address(&self, device: u32, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let (family, bytes) = raw_address(address);
        let mut request = Request::new(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE_EXCL);
        request.push(&[family, prefix_bits, IFA_F_NODAD, 0]);
        request.push(&device.to_ne_bytes());
        request.attribute(IFA_LOCAL, &bytes);
        request.attribute(IFA_ADDRESS, &bytes);
        self.0.ask(request).map(drop)
    }

    /// Reads a device's counters.
    pub(crate) fn counters(&self, device: u32) -> io::Result<DeviceCounters> {
        let reply = self.0.ask(link(RTM_GETLINK, 0, device, 0, 0))?;
        let stats = Attributes::after(&reply, HEADER + 16).get(IFLA_STATS64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "no counters in the kernel's answer")
        })?;
        let field = |index: usize| {
            let bytes = stats.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(DeviceCounters { sent_packets: field(1), sent_bytes: field(3), send_drops: field(7) })
    }
}

/// Begins a message about a device.
fn link(kind: u16, flags: u16, device: u32, set: u32, change: u32) -> Request {
    let mut request = Request::new(kind, flags);
    request.push(&ifinfomsg(device, set, change));
    request
}

/// `struct ifinfomsg`.
fn ifinfomsg(device: u32, set: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&device.to_ne_bytes());
    bytes[8..12].copy_from_slice(&set.to_ne_bytes());
    bytes[12..].copy_from_slice(&change.to_ne_bytes());
    bytes
}

fn c_string(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
