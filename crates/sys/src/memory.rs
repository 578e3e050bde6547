//! Mappings, and page-aligned memory in one of its own, as Direct I/O requires.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Returns unused memory of the allocator to the kernel. Without glibc it does nothing.
pub fn release_unused() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time from any thread, and changes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A readable and writable mapping, unmapped on drop. Its owner keeps the accesses to its bytes apart.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: the mapping is owned by this value and not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a mapping hands out addresses only; no reference to its bytes comes from it.
unsafe impl Sync for Mapping {}

impl Mapping {
    const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// Maps `len` bytes of zeroed memory; pages are allocated when first touched.
    pub(crate) fn anonymous(len: usize, flags: MapFlags) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | flags;
        // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
        Self::at_address(
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, Self::ACCESS, flags) }?,
            len,
        )
    }

    /// Maps the first `len` bytes of a file, shared with it.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice aliases no Rust reference.
        Self::at_address(
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, Self::ACCESS, flags, file, 0) }?,
            len,
        )
    }

    fn at_address(start: *mut c_void, len: usize) -> io::Result<Self> {
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Gives the kernel a hint that does not change the content; a kernel that does not know it refuses.
    pub(crate) fn advise(&self, advice: Advice) {
        // SAFETY: the range is this mapping, and no advice given in this crate discards pages.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, advice) };
    }

    /// Returns the address of the byte at `offset`, which may be the end.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len);
        // SAFETY: checked to stay within the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no pointer into the mapping outlives its owner.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

/// Zeroed anonymous memory, aligned to its size up to 2 MiB, unmapped on drop.
#[derive(Debug)]
pub struct AlignedBuf {
    mapping: Mapping,
    /// Where the aligned memory starts in the mapping.
    offset: usize,
    len: usize,
}

/// Huge pages make Direct I/O and page faults cheaper, and require this alignment.
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

impl AlignedBuf {
    /// Maps `len` bytes; pages are allocated when first touched.
    ///
    /// # Errors
    /// ENOMEM, or EINVAL for zero bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mapped = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::anonymous(mapped, MapFlags::empty())?;
        if align == HUGE_PAGE {
            mapping.advise(Advice::LinuxHugepage);
        }
        let offset = mapping.start.align_offset(align);
        Ok(Self { mapping, offset, len })
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.len
    }

    /// Returns the start address.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.mapping.at(self.offset)
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, initialised (zeroed) and owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_writable_and_of_the_requested_length() {
        for len in [1, 4096, 65536, 4 << 20] {
            let mut buf = AlignedBuf::new(len).unwrap();
            assert_eq!((buf.len(), buf.as_ptr().align_offset(4096)), (len, 0));
            buf[len - 1] = 7;
            assert_eq!(buf[len - 1], 7);
        }
        assert!(AlignedBuf::new(usize::MAX).is_err());
    }
}
