//! A shared file mapping, for writing a file through memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr;

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::{Condvar, Mutex};

/// A shared, writable mapping of the start of a file.
///
/// Provides copies into the mapping but no references, so that threads may share it: a copy has
/// exclusive use of its range, and waits for an overlapping one. As with every mapping, truncation
/// by another program, a disk error or a full disk ends the process with SIGBUS: reserve the space
/// first.
#[derive(Debug)]
pub struct FileMap {
    /// No reference to the bytes ever exists. They are only written, and by one thread at a time:
    /// `writing` keeps ranges that overlap apart, and its mutex orders one write of a byte before
    /// the next.
    mapping: MmapRaw,
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
        let mut held = self.held.lock();
        self.released.wait_while(&mut held, overlaps);
        held.push(range.clone());
        HeldRange { lock: self, range }
    }
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held.lock();
        // Equal ranges are held at once only if empty, and are then interchangeable.
        if let Some(index) = held.iter().position(|range| *range == self.range) {
            held.swap_remove(index);
        }
        drop(held);
        self.lock.released.notify_all();
    }
}

/// The bytes copied at once. For copies much larger than the caches, the C library interleaves
/// several pages, and the resulting page faults took the kernel seven times as long (segments of 16
/// MiB).
const PIECE: usize = 1 << 20;

impl FileMap {
    /// Maps the first `len` bytes of `file`, and advises the kernel that they are written
    /// sequentially.
    ///
    /// # Errors
    /// ENODEV, EACCES or ENOMEM from mmap(2).
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        let mapping = MmapOptions::new().len(len).map_raw(file)?;
        // Only a hint.
        let _ = mapping.advise(Advice::Sequential);
        Ok(Self { mapping, writing: RangeLock::default() })
    }

    /// Copies `data` to `offset` of the file.
    ///
    /// # Errors
    /// `InvalidInput` if the range exceeds the mapping.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range =
            usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(data.len())?));
        let range =
            range.filter(|range| range.end <= self.mapping.len()).ok_or(io::ErrorKind::InvalidInput)?;
        let to = self.mapping.as_mut_ptr().wrapping_add(range.start);
        let _held = self.writing.hold(range);
        for (index, piece) in data.chunks(PIECE).enumerate() {
            // SAFETY: the range lies within the mapping, and no other thread writes it while it is
            // held; `data` cannot overlap memory that no reference points to.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), to.add(index * PIECE), piece.len()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_written_within_the_mapping_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let map = FileMap::new(file.as_file(), 10_000).unwrap();
        map.write_at(9_997, b"end").unwrap();
        map.write_at(0, b"start").unwrap();
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
