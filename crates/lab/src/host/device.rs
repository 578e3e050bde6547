//! The network device of an emulated host.

use std::net::IpAddr;
use std::time::Duration;

use crate::error::LabError;

use super::HostSide;
use super::netlink::{DeviceCounters, DeviceNetlink};

/// The device name, equal on both hosts.
pub(super) const DEVICE: &str = "longhaul0";
/// Packets that the kernel queues for the link's reader: more than a window, so that only the model drops.
const DEVICE_QUEUE: u32 = 100_000;

/// A host's device, for reading its counters.
#[derive(Debug)]
pub(super) struct Device {
    netlink: DeviceNetlink,
    index: u32,
}

impl Device {
    pub(super) fn counters(&self) -> Result<DeviceCounters, LabError> {
        self.netlink.counters(self.index).map_err(device_error("read the counters"))
    }

    /// Waits for the carrier; the kernel may detect it up to a second late.
    #[expect(clippy::disallowed_methods, reason = "waits for the kernel, not for the model")]
    pub(super) fn wait_until_running(&self) -> Result<(), LabError> {
        const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(1);
        for _ in 0..3000 {
            if self.netlink.is_running(self.index).map_err(device_error("read the state"))? {
                return Ok(());
            }
            std::thread::sleep(DEVICE_POLL_INTERVAL);
        }
        Err(device_error("wait for the carrier")(std::io::ErrorKind::TimedOut.into()))
    }
}

pub(super) fn device_error(what: &'static str) -> impl FnOnce(std::io::Error) -> LabError {
    LabError::host(format!("{what} on the lab's device {DEVICE}"))
}

/// Assigns an address to a host's device for each of the `pairs` of hosts, and brings it and `lo` up; returns whether IPv6 is available.
pub(super) fn configure_device(
    side: HostSide,
    pairs: u16,
    mtu: u32,
    plain: bool,
) -> Result<(Device, bool), LabError> {
    let netlink = DeviceNetlink::open().map_err(device_error("open a netlink socket"))?;
    let index = netlink.index(DEVICE).map_err(device_error("find the index"))?;
    netlink.set_limits(index, mtu, DEVICE_QUEUE).map_err(device_error("set MTU and queue length"))?;
    if !plain {
        netlink.set_quiet(index).map_err(device_error("switch off multicast"))?;
    }
    let lo = netlink.index("lo").map_err(device_error("find lo beside"))?;
    netlink.set_up(lo).map_err(device_error("bring up lo beside"))?;
    netlink.set_up(index).map_err(device_error("bring up the link"))?;
    for pair in 0..pairs {
        let set = netlink.add_address(index, IpAddr::V4(side.ipv4_of(pair)), 24);
        set.map_err(device_error("set the IPv4 address"))?;
    }
    let ipv6 = (0..pairs).try_for_each(|pair| netlink.add_address(index, IpAddr::V6(side.ipv6_of(pair)), 64));
    if let Err(error) = &ipv6 {
        tracing::debug!("the lab's hosts have no IPv6: {error}");
    }
    Ok((Device { netlink, index }, ipv6.is_ok()))
}
