//! A shared file mapping, for writing a file through memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::mm::Advice;

use crate::memory::Mapping;

/// A shared, writable mapping of the start of a file.
///
/// Provides copies into the mapping but no references, so that threads may share it: a copy has exclusive use of its
/// range, and waits for an overlapping one. As with every mapping, truncation by another program, a disk error or a
/// full disk ends the process with SIGBUS: reserve the space first.
#[derive(Debug)]
pub struct FileMap {
    /// No reference to the bytes ever exists. They are only written, and by one thread at a time: `writing` keeps ranges
    /// that overlap apart, and its mutex orders one write of a byte before the next.
    mapping: Mapping,
    writing: RangeLock,
}

/// The ranges being written; an overlapping write waits.
#[derive(Debug, Default)]
struct RangeLock {
    held: Mutex<Vec<Range<usize>>>,
    released: Condvar,
}

/// A range that no other thread writes, until dropped.
struct HeldRange<'a> {
    lock: &'a RangeLock,
    range: Range<usize>,
}

impl RangeLock {
    fn hold(&self, range: Range<usize>) -> HeldRange<'_> {
        let overlaps = |held: &mut Vec<Range<usize>>| {
            held.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let held = self.released.wait_while(self.lock(), overlaps);
        held.unwrap_or_else(PoisonError::into_inner).push(range.clone());
        HeldRange { lock: self, range }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        // The code under this lock does not panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.lock();
        // Equal ranges are held at once only if empty, and are then interchangeable.
        if let Some(index) = held.iter().position(|range| *range == self.range) {
            held.swap_remove(index);
        }
        drop(held);
        self.lock.released.notify_all();
    }
}

/// The bytes copied at once. For copies much larger than the caches, the C library interleaves several pages, and the
/// resulting page faults took the kernel seven times as long (segments of 16 MiB).
const PIECE: usize = 1 << 20;

impl FileMap {
    /// Maps the first `len` bytes of `file`, and advises the kernel that they are written sequentially.
    ///
    /// # Errors
    /// EINVAL for zero bytes; ENODEV, EACCES or ENOMEM from mmap(2).
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        let mapping = Mapping::of_file(file, len)?;
        mapping.advise(Advice::Sequential);
        Ok(Self { mapping, writing: RangeLock::default() })
    }

    /// Copies `data` to `offset` of the file.
    ///
    /// # Errors
    /// `InvalidInput` if the range exceeds the mapping.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (to, _held) = self.checked(offset, data.len())?;
        for (index, piece) in data.chunks(PIECE).enumerate() {
            // SAFETY: the range lies within the mapping, and no other thread writes it while it is held; `data` cannot
            // overlap memory that no reference points to.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to.add(index * PIECE), piece.len()) };
        }
        Ok(())
    }

    /// Receives up to `len` bytes from `socket` directly to `offset` of the file; returns their number.
    ///
    /// # Errors
    /// `InvalidInput` if the range exceeds the mapping, else an error of recv(2).
    pub fn recv_at(&self, socket: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
        let (to, _held) = self.checked(offset, len)?;
        // SAFETY: the range lies within the mapping, and no other thread writes it while it is held.
        let got = unsafe { libc::recv(socket.as_fd().as_raw_fd(), to.cast(), len, 0) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Holds a range against other threads, and returns its address; fails if the range exceeds the mapping.
    fn checked(&self, offset: u64, len: usize) -> io::Result<(*mut u8, HeldRange<'_>)> {
        let start = usize::try_from(offset)
            .ok()
            .filter(|start| start.checked_add(len).is_some_and(|end| end <= self.mapping.len));
        let start = start.ok_or(io::ErrorKind::InvalidInput)?;
        let held = self.writing.hold(start..start + len);
        Ok((self.mapping.at(start).as_ptr(), held))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn content_is_written_and_received_within_the_mapping_only() {
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
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let map = FileMap::new(&file, 100).unwrap();
        for (offset, len) in [(100, 1), (0, 101), (u64::MAX, 1), (99, 2)] {
            assert!(map.write_at(offset, &vec![0; len]).is_err());
        }
    }

    #[test]
    fn overlapping_write_waits() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let map = FileMap::new(&file, 100).unwrap();
        let held = map.writing.hold(10..20);
        map.write_at(20, &[1; 80]).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| map.write_at(0, &[2; 11]));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(held);
            waits.join().unwrap().unwrap();
        });
    }
}
