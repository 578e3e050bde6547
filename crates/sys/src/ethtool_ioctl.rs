//! ethtool by the ioctl SIOCETHTOOL (`linux/ethtool.h`), for kernels before 5.6, and sandboxes that refuse generic
//! netlink.
//!
//! Only queries are sent; none of them requires privilege.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use longhaul_core::units::Rate;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::ethtool::{Features, Rings, known_speed};
use crate::link::text;

/// Speed and duplex: `struct ethtool_cmd`, 44 bytes. Newer kernels emulate it.
const GSET: u32 = 0x1;
/// `struct ethtool_ringparam`, nine numbers.
const GRINGPARAM: u32 = 0x10;
/// `struct ethtool_gstrings`: command, set, count, then names of 32 bytes.
const GSTRINGS: u32 = 0x1b;
/// `struct ethtool_sset_info`: command, reserved, a mask in 64 bits, then a count for each bit.
const GSSET_INFO: u32 = 0x37;
/// `struct ethtool_gfeatures`: command, count of blocks, then four numbers for each block of 32 features.
const GFEATURES: u32 = 0x3a;
/// The string set with the names of features.
const SS_FEATURES: u32 = 4;
/// Bytes of a name (ETH_GSTRING_LEN).
const NAME: usize = 32;
/// An upper bound of the number of features (64 in Linux 6.12), which bounds memory.
const MAX_FEATURES: u32 = 1024;

/// A socket for the ioctl.
#[derive(Debug)]
pub(crate) struct EthtoolIoctl {
    socket: OwnedFd,
}

impl EthtoolIoctl {
    /// Opens an unconnected socket.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Returns the speed of a device's link.
    pub(crate) fn speed(&self, device: u32) -> io::Result<Rate> {
        let mut answer = [0_u32; 11];
        answer[0] = GSET;
        self.ask(device, &mut answer)?;
        // The low half follows three numbers, the high half is at byte 28; both in host order.
        let halves = [answer[3], answer[7]]
            .map(|word| u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
        known_speed(Some(u32::from(halves[0]) | u32::from(halves[1]) << 16))
    }

    /// Returns the sizes of a device's rings.
    pub(crate) fn rings(&self, device: u32) -> io::Result<Rings> {
        let mut answer = [0_u32; 9];
        answer[0] = GRINGPARAM;
        self.ask(device, &mut answer)?;
        let [_, rx_max, _, _, tx_max, rx, _, _, tx] = answer;
        Ok(Rings { rx, rx_max, tx, tx_max })
    }

    /// Returns a device's features.
    pub(crate) fn features(&self, device: u32) -> io::Result<Features> {
        let mut set = [GSSET_INFO, 0, 1 << SS_FEATURES, 0, 0];
        // The mask is a single 64-bit number.
        set[2..4].copy_from_slice(&words_of(1 << SS_FEATURES));
        self.ask(device, &mut set)?;
        let count = set[4];
        if count > MAX_FEATURES {
            return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
        }
        let names = self.names(device, count)?;
        let blocks = count.div_ceil(32);
        let mut answer = vec![0; 2 + 4 * blocks as usize];
        answer[..2].copy_from_slice(&[GFEATURES, blocks]);
        self.ask(device, &mut answer)?;
        // The columns of a block: changeable, requested, active and never changing features.
        let chosen = |column: usize| {
            let is_set = |index: usize| answer[2 + 4 * (index / 32) + column] >> (index % 32) & 1 == 1;
            names
                .iter()
                .enumerate()
                .filter(|(index, _)| is_set(*index))
                .map(|(_, name)| name.clone())
                .collect()
        };
        Ok(Features { active: chosen(2), changeable: chosen(0) })
    }

    fn names(&self, device: u32, count: u32) -> io::Result<Vec<String>> {
        let mut answer = vec![0; 3 + count as usize * NAME / size_of::<u32>()];
        answer[..3].copy_from_slice(&[GSTRINGS, SS_FEATURES, count]);
        self.ask(device, &mut answer)?;
        let bytes: Vec<u8> = answer[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(bytes.chunks(NAME).map(text).collect())
    }

    /// Queries a device; the first number of `request` is the command, and the kernel overwrites `request` with the
    /// answer.
    fn ask(&self, device: u32, request: &mut [u32]) -> io::Result<()> {
        let name = netdevice::index_to_name(&self.socket, device)?;
        // SAFETY: ifreq is plain old data, for which all zeroes is a value.
        let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in interface.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        interface.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: the descriptor is open, the ifreq lives here, and `request` is as long as the structure of its command. Of names and
        // features the kernel writes as many as the set has: the number that GSSET_INFO has just answered, by which the caller sized it.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut interface) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns the memory representation of a 64-bit number.
fn words_of(value: u64) -> [u32; 2] {
    let bytes = value.to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_and_netlink_agree_on_loopback() {
        let ioctl = EthtoolIoctl::open().unwrap();
        let loopback = crate::link::towards([127, 0, 0, 1].into()).unwrap().index;
        let features = match ioctl.features(loopback) {
            Ok(features) => features,
            // A sandbox's kernel may support neither interface.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return,
            Err(error) => panic!("{error}"),
        };
        assert!(features.active.iter().any(|name| name == "loopback"), "{features:?}");
        assert!(features.changeable.iter().any(|name| name == "tx-tcp-segmentation"), "{features:?}");
        assert!(ioctl.rings(loopback).is_err() && ioctl.speed(loopback).is_err());
        assert!(ioctl.features(u32::MAX >> 1).is_err());
        let netlink = match crate::ethtool::Ethtool::by_netlink() {
            Ok(netlink) => netlink,
            // The program must also run on a kernel without it.
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
        };
        assert!(netlink.rings(loopback).is_err() && netlink.link(loopback).is_err());
        assert!(netlink.features(u32::MAX >> 1).is_err());
        let mut by_both = [features, netlink.features(loopback).unwrap()];
        by_both.iter_mut().for_each(|features| {
            features.active.sort();
            features.changeable.sort();
        });
        assert_eq!(by_both[0], by_both[1]);
    }
}
