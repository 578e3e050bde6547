//! Socket options that neither `socket2` nor `rustix` offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use longhaul_core::units::Bytes;

use libc::{c_int, c_void, socklen_t};
use rustix::net::sockopt;

/// Sets a socket option whose value is a C integer or another plain value.
pub(crate) fn set<T: Copy>(socket: impl AsFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: `value` lives across the call and `len` is its size; the kernel only reads it.
    let rc = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast::<c_void>(), len)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option into `value`; returns the number of bytes that the kernel has written.
pub(crate) fn get(socket: impl AsFd, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<usize> {
    let (socket, mut len) = (socket.as_fd().as_raw_fd(), value.len() as socklen_t);
    // SAFETY: `value` and `len` live across the call, and `len` is the number of bytes that the
    // kernel may write.
    let rc =
        unsafe { libc::getsockopt(socket, level, name, value.as_mut_ptr().cast::<c_void>(), &raw mut len) };
    if rc == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

/// Sets SO_RCVBUFFORCE: like SO_RCVBUF, but without the limit `rmem_max`.
///
/// Call before connecting, because the SYN fixes the window scale.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN in the owning user namespace.
pub fn force_recv_buffer(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size_force(socket, at_most_an_int(size))?)
}

/// Sets the receive buffer, beyond `rmem_max` if permitted; the kernel doubles the value.
///
/// # Errors
/// The kernel's error on the socket.
pub fn set_recv_buffer(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    force_recv_buffer(&socket, size)
        .or_else(|_| Ok(sockopt::set_socket_recv_buffer_size(socket, at_most_an_int(size))?))
}

/// Clamps a size to the C int that the kernel accepts.
fn at_most_an_int(size: Bytes) -> usize {
    size.as_usize().min(c_int::MAX as usize)
}

/// Returns whether [`force_recv_buffer`] is permitted, by trying it on a temporary socket.
pub fn may_force_recv_buffer() -> bool {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .is_ok_and(|socket| force_recv_buffer(&socket, Bytes::kib(64)).is_ok())
}

/// Sets TCP_WINDOW_CLAMP: the largest window that the receiver announces from now on.
///
/// Before connecting it would also fix the window scale. Autotuning moves the clamp whenever it
/// enlarges the buffer, so it must be set repeatedly.
///
/// # Errors
/// EINVAL for a window of zero.
pub fn set_window_clamp(socket: impl AsFd, window: Bytes) -> io::Result<()> {
    let window = c_int::try_from(window.get()).unwrap_or(c_int::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
}

/// Returns the share of the receive buffer that the kernel uses for the window, derived from recent
/// packet sizes.
///
/// Derived from the clamp, which the kernel sets to the whole buffer's window whenever the share
/// changes; `None` if the clamp equals `ours`, so that the share is unchanged.
///
/// # Errors
/// The kernel's error on the socket.
pub fn window_share(socket: impl AsFd, ours: Bytes) -> io::Result<Option<f64>> {
    let mut clamp = [0; size_of::<c_int>()];
    get(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &mut clamp)?;
    let clamp = c_int::from_ne_bytes(clamp);
    if u64::try_from(clamp).is_ok_and(|clamp| clamp == ours.get()) {
        return Ok(None);
    }
    let buffer = sockopt::socket_recv_buffer_size(&socket)?;
    Ok(Some(f64::from(clamp) / buffer as f64))
}

/// Returns the bytes received and not yet read (SIOCINQ = rcv_nxt - copied_seq).
///
/// # Errors
/// The kernel's error on the socket.
pub fn unread(socket: impl AsFd) -> io::Result<Bytes> {
    rustix::io::ioctl_fionread(socket).map(Bytes::new).map_err(io::Error::from)
}
