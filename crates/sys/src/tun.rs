//! TUN devices: network interfaces whose packets a program reads and writes.

use std::ffi::c_short;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The device file for creating TUN interfaces.
pub const TUN_DEVICE: &str = "/dev/net/tun";

/// The size of `struct virtio_net_hdr` before each packet read or written.
pub const VNET_HEADER_LEN: usize = 10;

/// The work that the kernel may leave to the reader of the TUN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Checksums, and segmentation of UDP if supported (Linux 6.2): TCP packets fit the MTU.
    Checksum,
    /// Also segmentation of TCP: super-packets of up to 64 KiB.
    Segmentation,
}

/// A TUN device in the network namespace of the thread that created it; removed on drop.
///
/// Reads and writes carry a [`VNET_HEADER_LEN`]-byte header before an IP packet; they never block.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Creates the device `name`, down and without an address.
    ///
    /// # Errors
    /// The kernel's error if the device file is missing or inaccessible, without CAP_NET_ADMIN in
    /// the thread's network namespace, and if the name exists or is too long.
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
        // SAFETY: the descriptor is open and TUNSETIFF reads and writes one ifreq, which lives
        // here.
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
        // Linux before 6.2 refuses the unknown flags of UDP.
        set_offload(&fd, flags | udp).or_else(|_| set_offload(&fd, flags))?;
        Ok(Self { fd })
    }

    /// Reads one packet with its header; returns the total length.
    ///
    /// # Errors
    /// `WouldBlock` without a packet; EFAULT or a truncated packet if `buffer` is too small.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, buffer)?)
    }

    /// Writes one header and packet; the kernel processes the packet as received before this
    /// returns.
    ///
    /// # Errors
    /// EINVAL if the header does not match the packet, EIO if the device is down.
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
