//! What a file system asks of Direct I/O.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// What the kernel says of Direct I/O on a file (STATX_DIOALIGN, Linux 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    /// Offsets, lengths and memory must be aligned to this many bytes, a power of two.
    Aligned(u64),
    /// The file cannot be written directly.
    Impossible,
    /// The kernel or the file system says nothing: only a trial shows it.
    Unknown,
}

/// Asks what Direct I/O on a file needs.
pub fn ask(file: &File) -> DirectIo {
    let Ok(stat) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return DirectIo::Unknown;
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return DirectIo::Unknown;
    }
    match u64::from(stat.stx_dio_offset_align.max(stat.stx_dio_mem_align)) {
        align if stat.stx_dio_offset_align != 0 && align.is_power_of_two() => DirectIo::Aligned(align),
        _ => DirectIo::Impossible,
    }
}

/// The alignment, in bytes, that O_DIRECT needs for this file's offsets, lengths and memory.
///
/// `None` where the kernel or the file system does not tell, or says that the file cannot be written directly.
pub fn alignment(file: &File) -> Option<u64> {
    match ask(file) {
        DirectIo::Aligned(align) => Some(align),
        DirectIo::Impossible | DirectIo::Unknown => None,
    }
}

/// Opens the file behind `file` once more, for writing past the page cache (O_DIRECT).
///
/// # Errors
/// EINVAL where the file system has no Direct I/O.
pub fn reopen(file: &File) -> io::Result<File> {
    open_again(file, OFlags::RDWR)
}

/// Opens the file behind `file` once more, for reading past the page cache (O_DIRECT).
///
/// # Errors
/// EINVAL where the file system has no Direct I/O.
pub fn reopen_for_reading(file: &File) -> io::Result<File> {
    open_again(file, OFlags::RDONLY)
}

fn open_again(file: &File, access: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?.into())
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
