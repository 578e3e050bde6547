//! TUN devices: a network interface whose packets a program reads and writes.

use std::ffi::c_short;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The device file that TUN interfaces are made from.
pub const TUN_DEVICE: &str = "/dev/net/tun";

/// The bytes of `struct virtio_net_hdr` in front of each packet read or written.
pub const VNET_HEADER_LEN: usize = 10;

/// What the kernel may leave for the TUN's reader to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Checksums, and segmentation of UDP where the kernel has it (Linux 6.2): TCP's packets fit the MTU.
    Checksum,
    /// Segmentation of TCP too: super-packets of up to 64 KiB.
    Segmentation,
}

/// A TUN device in the network namespace of the thread that made it; removed when dropped.
///
/// Reads and writes carry a [`VNET_HEADER_LEN`]-byte header, then an IP packet; they never block.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Makes the device `name`, down and without an address.
    ///
    /// # Errors
    /// Fails where the device file is missing or closed to the caller, without CAP_NET_ADMIN over
    /// the thread's network namespace, and where the name is taken or too long.
    pub fn create(name: &str, offload: Offload) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(TUN_DEVICE)?;
        let fd = OwnedFd::from(file);

        // SAFETY: ifreq is plain old data, for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the device's name is too long"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as c_short;
        // SAFETY: the descriptor is open and TUNSETIFF reads and writes one ifreq, which lives here.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }

        let flags = match offload {
            Offload::Checksum => libc::TUN_F_CSUM,
            Offload::Segmentation => {
                libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN
            }
        };
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        // Before Linux 6.2 the flags of UDP are unknown, and refused.
        set_offload(&fd, flags | udp).or_else(|_| set_offload(&fd, flags))?;
        Ok(Self { fd })
    }

    /// Reads one packet with its header; returns the length of both.
    ///
    /// # Errors
    /// `WouldBlock` where no packet waits; EFAULT or a short packet where `buffer` is too small.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, buffer)?)
    }

    /// Writes one header and packet; the kernel handles it as received before this returns.
    ///
    /// # Errors
    /// EINVAL where the header does not fit the packet, EIO where the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, packet)?;
        Ok(())
    }
}

fn set_offload(fd: &OwnedFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open and TUNSETOFFLOAD takes its flags by value.
    let refused =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) } < 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
