//! Controls write-back of dirty pages, and their removal from the page cache.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use longhaul_core::ranges::ByteRange;
use rustix::fs::{Advice, fadvise};

/// Starts writing a range's dirty pages to the device, without waiting.
///
/// # Errors
/// A write-back error of the file, or EIO.
pub fn start(file: &File, range: ByteRange) -> io::Result<()> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until a range's pages are written to the device, then drops them from the page cache.
///
/// # Errors
/// A write-back error of the file, or EIO.
pub fn finish_and_drop(file: &File, range: ByteRange) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, range, all)?;
    // Only a hint: a file system may ignore it.
    let _ = fadvise(file, range.start(), NonZeroU64::new(range.len().get()), Advice::DontNeed);
    Ok(())
}

fn sync_range(file: &File, range: ByteRange, flags: libc::c_uint) -> io::Result<()> {
    // For the kernel, a length of zero means the whole file.
    if range.is_empty() {
        return Ok(());
    }
    let (start, len) = (libc::off64_t::try_from(range.start()), libc::off64_t::try_from(range.len().get()));
    let (Ok(offset), Ok(len)) = (start, len) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: takes no pointers; the descriptor is open.
    let rc = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    match rc {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Some file systems do not support the call; the writes are safe without it.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::ESPIPE | libc::EOPNOTSUPP)) => {
                Ok(())
            }
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_is_unchanged_by_write_back() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        start(&file, ByteRange::new(0, 10_000)).unwrap();
        finish_and_drop(&file, ByteRange::new(0, 10_000)).unwrap();
        let mut back = [0; 10_000];
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, [7; 10_000]);
        assert!(start(&file, ByteRange::new(u64::MAX - 1, u64::MAX)).is_err());
    }
}
