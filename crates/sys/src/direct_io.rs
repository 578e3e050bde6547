//! What a file system asks of Direct I/O.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};

/// The alignment, in bytes, that O_DIRECT needs for this file's offsets, lengths and memory.
///
/// From STATX_DIOALIGN (Linux 6.1); `None` where the kernel or the file system does not tell, or
/// says that the file cannot be written directly.
pub fn alignment(file: &File) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor itself; `stat` is writable and of the type that statx fills.
    let rc = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            stat.as_mut_ptr(),
        )
    };
    // SAFETY: zeroed at first, and any content is a valid `statx`.
    let stat = unsafe { stat.assume_init() };
    let told = rc == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align != 0;
    let align = u64::from(stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    (told && align.is_power_of_two()).then_some(align)
}

/// Opens the file behind `file` once more, for writing past the page cache (O_DIRECT).
///
/// # Errors
/// EINVAL where the file system has no Direct I/O.
pub fn reopen(file: &File) -> io::Result<File> {
    open_again(file, libc::O_RDWR)
}

/// Opens the file behind `file` once more, for reading past the page cache (O_DIRECT).
///
/// # Errors
/// EINVAL where the file system has no Direct I/O.
pub fn reopen_for_reading(file: &File) -> io::Result<File> {
    open_again(file, libc::O_RDONLY)
}

fn open_again(file: &File, access: libc::c_int) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    // SAFETY: `path` ends in NUL and lives across the call.
    let fd = unsafe { libc::open(path.as_ptr().cast(), access | libc::O_DIRECT | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_told_can_be_written() {
        let file = tempfile::tempfile_in(".").unwrap();
        if let Some(align) = alignment(&file) {
            let direct = reopen(&file).unwrap();
            let buf = crate::memory::AlignedBuf::new(align as usize).unwrap();
            direct.write_all_at(&buf, align).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 * align);
            let mut back = crate::memory::AlignedBuf::new(align as usize).unwrap();
            reopen_for_reading(&file).unwrap().read_exact_at(&mut back, align).unwrap();
        }
    }

    #[test]
    fn a_pipe_has_none() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(alignment(&file), None);
    }
}
