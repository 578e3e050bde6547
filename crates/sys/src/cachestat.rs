//! A file's pages in the page cache: cachestat(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{c_int, c_long, c_uint};
use longhaul_core::telemetry::PageCache;
use longhaul_core::units::Bytes;

/// The system call number, equal on every architecture (Linux 6.5).
const SYS_CACHESTAT: c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Counts a file's pages in the page cache. The time grows with their number.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the kernel is older than 6.5, or the file is on hugetlbfs.
/// EPERM if the file is neither writable nor owned by the caller (Linux 6.16 and later).
pub fn page_cache(file: &File) -> io::Result<PageCache> {
    // A length of 0 extends to the end of the file.
    page_cache_of(file, Range { offset: 0, len: 0 })
}

/// Returns whether all pages of a range are in the page cache, so that reading them does not wait
/// for a device; `false` if unknown.
pub fn is_cached(file: &File, start: Bytes, length: Bytes) -> bool {
    if length == Bytes::ZERO {
        return true;
    }
    let page = rustix::param::page_size() as u64;
    let first = start.get() / page;
    let last = (start.get().saturating_add(length.get()) - 1) / page;
    let range = Range { offset: start.get(), len: length.get() };
    page_cache_of(file, range).is_ok_and(|found| found.cached.get() / page > last - first)
}

fn page_cache_of(file: &File, range: Range) -> io::Result<PageCache> {
    let mut pages = Pages::default();
    let no_flags: c_uint = 0;
    // SAFETY: both structs have the kernel's layout and live across the call; it reads one and
    // writes the other.
    let rc = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd() as c_int, &raw const range, &raw mut pages, no_flags)
    };
    if rc != 0 {
        let error = io::Error::last_os_error();
        let unknown = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP));
        return Err(if unknown { io::ErrorKind::Unsupported.into() } else { error });
    }
    let page = rustix::param::page_size() as u64;
    let bytes = |pages: u64| Bytes::new(pages.saturating_mul(page));
    Ok(PageCache {
        cached: bytes(pages.cached),
        dirty: bytes(pages.dirty),
        writeback: bytes(pages.writeback),
        evicted: bytes(pages.evicted),
        recently_evicted: bytes(pages.recently_evicted),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn counts_dirty_and_clean_pages() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        let empty = match page_cache(&file) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "Linux 6.5 is needed");
                return println!("skipped: this kernel has no cachestat(2)");
            }
            counted => counted.unwrap(),
        };
        assert_eq!(empty.cached, Bytes::ZERO);
        file.write_all(&[1; 1 << 20]).unwrap();
        let changed = page_cache(&file).unwrap();
        assert_eq!(changed.cached, Bytes::mib(1));
        file.sync_all().unwrap();
        let synced = page_cache(&file).unwrap();
        assert_eq!((synced.dirty, synced.writeback), (Bytes::ZERO, Bytes::ZERO));
    }
}
