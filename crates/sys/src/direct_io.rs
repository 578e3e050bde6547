//! Direct I/O: requirements of a file system, and opening files for it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// The kernel's report on Direct I/O for a file (STATX_DIOALIGN, Linux 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    /// Offsets, lengths and memory must be aligned to this many bytes, a power of two.
    Aligned(u64),
    /// The file cannot be written directly.
    Impossible,
    /// Not reported by the kernel or file system: only a trial shows it.
    Unknown,
}

/// Queries the Direct I/O requirements of a file.
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

/// Returns the alignment, in bytes, that O_DIRECT requires of this file's offsets, lengths and memory.
///
/// `None` if the kernel or the file system does not report it, or the file does not support Direct I/O.
pub fn alignment(file: &File) -> Option<u64> {
    match ask(file) {
        DirectIo::Aligned(align) => Some(align),
        DirectIo::Impossible | DirectIo::Unknown => None,
    }
}

/// Opens the file behind `file` again, for writing with O_DIRECT.
///
/// # Errors
/// EINVAL if the file system does not support Direct I/O.
pub fn reopen(file: &File) -> io::Result<File> {
    open_again(file, OFlags::RDWR)
}

/// Opens the file behind `file` again, for reading with O_DIRECT.
///
/// # Errors
/// EINVAL if the file system does not support Direct I/O.
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
    fn reported_alignment_can_be_written_and_a_pipe_has_none() {
        let file = tempfile::tempfile_in(".").unwrap();
        if let Some(align) = alignment(&file) {
            let direct = reopen(&file).unwrap();
            let buf = crate::memory::AlignedBuf::new(align as usize).unwrap();
            direct.write_all_at(&buf, align).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 * align);
            let mut back = crate::memory::AlignedBuf::new(align as usize).unwrap();
            reopen_for_reading(&file).unwrap().read_exact_at(&mut back, align).unwrap();
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        assert_eq!(alignment(&file), None);
    }
}
