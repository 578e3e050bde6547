//! A file's page cache as memory, to write a file through.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A shared, writable mapping of the start of a file.
///
/// It hands out no references, only copies into it, so threads may share it. As with every mapping, a
/// file cut short by somebody else, or a disk that fails or fills up, ends the process with SIGBUS:
/// reserve the space first.
#[derive(Debug)]
pub struct FileMap {
    start: NonNull<u8>,
    len: usize,
}

/// Copied at once. The C library copies much more than the caches hold by another way, several pages in turns, and faulting
/// those in one by one took the kernel seven times as long (segments of 16 MiB).
const PIECE: usize = 1 << 20;

// SAFETY: the mapping is owned by this value and not tied to a thread.
unsafe impl Send for FileMap {}
// SAFETY: bytes are only copied in through raw pointers; no reference to them ever exists.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the first `len` bytes of `file`, and tells the kernel that they are written in sequence.
    ///
    /// # Errors
    /// EINVAL for no bytes; ENODEV, EACCES or ENOMEM as of mmap(2).
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice aliases no Rust reference.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        // SAFETY: the range is the mapping just made; the advice does not change its content. It is only a hint.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::Sequential) };
        NonNull::new(start.cast())
            .map(|start| Self { start, len })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Copies `data` to `offset` of the file.
    ///
    /// # Errors
    /// `InvalidInput` where that is past the mapping's end.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let to = self.checked(offset, data.len())?;
        for (index, piece) in data.chunks(PIECE).enumerate() {
            // SAFETY: `checked` holds the range within the mapping; `data` cannot overlap memory that no reference points to.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to.add(index * PIECE), piece.len()) };
        }
        Ok(())
    }

    /// Receives up to `len` bytes from `socket` straight to `offset` of the file; returns how many came.
    ///
    /// # Errors
    /// `InvalidInput` past the mapping's end, else as of recv(2).
    pub fn recv_at(&self, socket: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let to = self.checked(offset, len)?;
        // SAFETY: `checked` holds the range within the mapping, which the kernel may write.
        let got = unsafe { libc::recv(socket.as_fd().as_raw_fd(), to.cast(), len, 0) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    fn checked(&self, offset: u64, len: usize) -> io::Result<*mut u8> {
        let start = usize::try_from(offset)
            .ok()
            .filter(|start| start.checked_add(len).is_some_and(|end| end <= self.len));
        let start = start.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: `start <= self.len`, so the pointer stays within the mapping.
        Ok(unsafe { self.start.as_ptr().add(start) })
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no pointer into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn writes_and_receives_into_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let map = FileMap::new(file.as_file(), 10_000).unwrap();
        map.write_at(9_997, b"end").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sender.write_all(b"start").unwrap();
        assert_eq!(map.recv_at(listener.accept().unwrap().0, 0, 100).unwrap(), 5);
        drop(map);
        let content = std::fs::read(file.path()).unwrap();
        assert_eq!((&content[..5], &content[9_997..]), (&b"start"[..], &b"end"[..]));
    }

    #[test]
    fn never_reaches_past_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let map = FileMap::new(&file, 100).unwrap();
        for (offset, len) in [(100, 1), (0, 101), (u64::MAX, 1), (99, 2)] {
            assert!(map.write_at(offset, &vec![0; len]).is_err());
        }
    }
}
