//! Page-aligned memory in a separate mapping, as Direct I/O requires.

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

/// Zeroed anonymous memory, aligned to its size up to 2 MiB, unmapped on drop.
#[derive(Debug)]
pub struct AlignedBuf {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

/// Huge pages make Direct I/O and page faults cheaper, and require this alignment.
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

// SAFETY: the memory is owned by this value alone; nothing about it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Maps `len` bytes; pages are allocated when first touched.
    ///
    /// # Errors
    /// ENOMEM, or EINVAL for zero bytes.
    pub fn new(len: usize) -> io::Result<Self> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mapped = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice aliases nothing.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // SAFETY: `align_offset` stays below `align`, and `align + len` bytes are mapped.
        let start = unsafe { mapping.byte_add(mapping.cast::<u8>().align_offset(align)) };
        if align == HUGE_PAGE {
            // SAFETY: the range lies within the mapping; the advice does not change its content. It is only a hint.
            let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        }
        let (Some(mapping), Some(start)) = (NonNull::new(mapping.cast()), NonNull::new(start.cast())) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        Ok(Self { mapping, mapped, start, len })
    }

    /// Returns the start address.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, initialised (zeroed) and owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and nothing borrows from it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
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
