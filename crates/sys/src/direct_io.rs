//! Direct I/O: requirements of a file system, and opening files for it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use longhaul_core::host_check::DirectIoFact;
use longhaul_core::units::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

/// Queries the Direct I/O requirements of a file (STATX_DIOALIGN, Linux 6.1); the alignment is a
/// power of two.
///
/// `None` if the kernel or the file system does not report it: only a trial shows it.
pub fn ask(file: &File) -> Option<DirectIoFact> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let align = u64::from(stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
    let is_aligned = stat.stx_dio_offset_align != 0 && align.is_power_of_two();
    Some(if is_aligned { DirectIoFact::Aligned(Bytes::new(align)) } else { DirectIoFact::Impossible })
}

/// Returns the alignment, in bytes, that O_DIRECT requires of this file's offsets, lengths and
/// memory.
///
/// `None` if the kernel or the file system does not report it, or the file does not support Direct
/// I/O.
pub fn alignment(file: &File) -> Option<u64> {
    if let Some(DirectIoFact::Aligned(align)) = ask(file) { Some(align.get()) } else { None }
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
