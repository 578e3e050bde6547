//! Page-aligned memory, as Direct I/O requires.

use std::io;

use memmap2::{Advice, MmapOptions, MmapRaw};

/// Returns unused memory of the allocator to the kernel. Without glibc it does nothing.
pub fn release_unused() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time from any thread, and changes no memory that is
    // in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Zeroed anonymous memory, aligned to its size up to 2 MiB, unmapped on drop.
#[derive(Debug)]
pub struct AlignedBuf {
    mapping: MmapRaw,
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
    /// ENOMEM.
    pub fn new(len: usize) -> io::Result<Self> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mapped = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = MmapRaw::from(MmapOptions::new().len(mapped).map_anon()?);
        if align == HUGE_PAGE {
            // A hint, which a kernel without huge pages refuses.
            let _ = mapping.advise(Advice::HugePage);
        }
        let offset = mapping.as_ptr().align_offset(align);
        Ok(Self { mapping, offset, len })
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.len
    }

    /// Returns the start address.
    pub(crate) fn start(&self) -> *mut u8 {
        self.mapping.as_mut_ptr().wrapping_add(self.offset)
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, initialised (zeroed) and owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
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
