//! The network device of an emulated host, configured over rtnetlink.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{
    IFA_ADDRESS, IFA_LOCAL, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU,
    IFLA_NET_NS_FD, IFLA_STATS64, IFLA_TXQLEN, RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK,
};
use longhaul_sys::rtnetlink::{
    Attributes, HEADER, NLM_F_ACK, NLM_F_CREATE_EXCL, Netlink, Request, raw_address,
};

use crate::error::LabError;

use super::HostSide;

/// The device name, equal on both hosts.
pub(super) const DEVICE: &str = "longhaul0";
/// Packets that the kernel queues for the link's reader: more than a window, so that only the model
/// drops.
const DEVICE_QUEUE: u32 = 100_000;

const VETH_INFO_PEER: u16 = 1;
/// Skips duplicate address detection: the address is usable at once.
const IFA_F_NODAD: u8 = 2;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
const IFF_MULTICAST: u32 = 0x1000;

/// A device in the network namespace of the thread that opened it; usable from any thread.
#[derive(Debug)]
pub(super) struct Device {
    netlink: Netlink,
    index: u32,
    name: &'static str,
}

/// A device's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DeviceCounters {
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) send_drops: u64,
}

impl Device {
    /// Creates a veth pair, with one end in this namespace and one in the namespace `peer`.
    pub(super) fn add_veth(peer: BorrowedFd<'_>) -> Result<(), LabError> {
        let name = [DEVICE.as_bytes(), &[0]].concat();
        let mut request = Request::new(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE_EXCL);
        request.push(&ifinfomsg(0, 0, 0));
        request.attribute(IFLA_IFNAME, &name);
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |other| {
                    other.push(&ifinfomsg(0, 0, 0));
                    other.attribute(IFLA_IFNAME, &name);
                    other.attribute(IFLA_NET_NS_FD, &peer.as_raw_fd().to_ne_bytes());
                });
            });
        });
        let made = Netlink::open().and_then(|netlink| netlink.ask(request));
        made.map(drop).map_err(LabError::host(format!("make the veth pair {DEVICE}")))
    }

    /// Opens the device of this name.
    fn open(name: &'static str) -> Result<Self, LabError> {
        let open = || -> io::Result<Self> {
            let netlink = Netlink::open()?;
            let index = rustix::net::netdevice::name_to_index(&netlink, name)?;
            Ok(Self { netlink, index, name })
        };
        open().map_err(LabError::host(format!("find the lab's device {name}")))
    }

    /// Assigns an address to the host's device for each of the `pairs` of hosts, and brings it and
    /// `lo` up; also returns whether IPv6 is available.
    pub(super) fn configure(
        side: HostSide,
        pairs: u16,
        mtu: u32,
        plain: bool,
    ) -> Result<(Self, bool), LabError> {
        let device = Self::open(DEVICE)?;
        let mut limits = device.request(RTM_NEWLINK, 0, 0);
        limits.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        limits.attribute(IFLA_TXQLEN, &DEVICE_QUEUE.to_ne_bytes());
        device.ask("set MTU and queue length", limits)?;
        if !plain {
            // A point-to-point device must send nothing by itself.
            device.ask("switch off multicast", device.request(RTM_NEWLINK, 0, IFF_MULTICAST))?;
        }
        for up in [&Self::open("lo")?, &device] {
            up.ask("bring up", up.request(RTM_NEWLINK, IFF_UP, IFF_UP))?;
        }
        (0..pairs).try_for_each(|pair| device.add_address(side.ipv4_of(pair).into(), 24))?;
        let ipv6 = (0..pairs).try_for_each(|pair| device.add_address(side.ipv6_of(pair).into(), 64));
        if let Err(error) = &ipv6 {
            tracing::debug!("the lab's hosts have no IPv6: {error}");
        }
        Ok((device, ipv6.is_ok()))
    }

    /// Assigns an address, usable at once.
    fn add_address(&self, address: IpAddr, prefix_bits: u8) -> Result<(), LabError> {
        let (family, bytes) = raw_address(address);
        let mut request = Request::new(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE_EXCL);
        request.push(&[family, prefix_bits, IFA_F_NODAD, 0]);
        request.push(&self.index.to_ne_bytes());
        request.attribute(IFA_LOCAL, &bytes);
        request.attribute(IFA_ADDRESS, &bytes);
        self.ask("set an address", request).map(drop)
    }

    /// Waits for the carrier; the kernel may detect it up to a second late.
    #[expect(clippy::disallowed_methods, reason = "waits for the kernel, not for the model")]
    pub(super) fn wait_until_running(&self) -> Result<(), LabError> {
        const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(1);
        for _ in 0..3000 {
            let reply = self.ask("read the state", self.request(RTM_GETLINK, 0, 0))?;
            let flags = reply.get(HEADER + 8..HEADER + 12).and_then(|flags| flags.try_into().ok());
            if flags.is_some_and(|flags| u32::from_ne_bytes(flags) & IFF_RUNNING != 0) {
                return Ok(());
            }
            std::thread::sleep(DEVICE_POLL_INTERVAL);
        }
        Err(self.failed("wait for the carrier", io::ErrorKind::TimedOut.into()))
    }

    pub(super) fn counters(&self) -> Result<DeviceCounters, LabError> {
        const WHAT: &str = "read the counters";
        let reply = self.ask(WHAT, self.request(RTM_GETLINK, 0, 0))?;
        let stats = Attributes::after(&reply, HEADER + 16).get(IFLA_STATS64);
        let stats = stats.ok_or_else(|| self.failed(WHAT, io::ErrorKind::InvalidData.into()))?;
        let field = |index: usize| {
            let bytes = stats.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(DeviceCounters { sent_packets: field(1), sent_bytes: field(3), send_drops: field(7) })
    }

    /// Begins a message about the device, which sets the flags of `change`.
    fn request(&self, kind: u16, set: u32, change: u32) -> Request {
        let mut request = Request::new(kind, if kind == RTM_NEWLINK { NLM_F_ACK } else { 0 });
        request.push(&ifinfomsg(self.index, set, change));
        request
    }

    fn ask(&self, what: &'static str, request: Request) -> Result<Vec<u8>, LabError> {
        self.netlink.ask(request).map_err(|error| self.failed(what, error))
    }

    fn failed(&self, what: &'static str, cause: io::Error) -> LabError {
        LabError::host(format!("{what} on the lab's device {}", self.name))(cause)
    }
}

/// `struct ifinfomsg`.
fn ifinfomsg(device: u32, set: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&device.to_ne_bytes());
    bytes[8..12].copy_from_slice(&set.to_ne_bytes());
    bytes[12..].copy_from_slice(&change.to_ne_bytes());
    bytes
}
