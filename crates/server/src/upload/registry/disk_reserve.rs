//! What uploads leave free of a file system: space and inodes for the other programs that use it.

use std::os::fd::AsFd;

use longhaul_core::units::Bytes;
use rustix::fs::{StatVfs, fstatvfs};

/// The part of a file system that stays free, and its upper bounds.
const RESERVED_DIVISOR: u64 = 20;
const MAX_RESERVED_SPACE: Bytes = Bytes::gib(1);
const MAX_RESERVED_INODES: u64 = 10_000;

/// Returns whether the file system of `file` keeps its reserve once `unwritten` bytes are written;
/// also where the kernel does not tell it.
pub(crate) fn leaves_reserve(file: impl AsFd, unwritten: Bytes) -> bool {
    fstatvfs(file).map_or(true, |fs| keeps_reserve(&fs, unwritten))
}

fn keeps_reserve(fs: &StatVfs, unwritten: Bytes) -> bool {
    let reserved = |all: u64, most: u64| (all / RESERVED_DIVISOR).min(most);
    let space = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
    let reserved_space = reserved(space(fs.f_blocks), MAX_RESERVED_SPACE.get());
    // A file system without a fixed number of inodes states none.
    space(fs.f_bavail) >= reserved_space.saturating_add(unwritten.get())
        && fs.f_favail >= reserved(fs.f_files, MAX_RESERVED_INODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_leave_a_part_of_space_and_inodes_free() {
        const GIB: u64 = 1 << 18;
        let dir = tempfile::tempdir().unwrap();
        let any = rustix::fs::statvfs(dir.path()).unwrap();
        for (f_bavail, f_blocks, unwritten, (f_favail, f_files), is_enough) in [
            (50, 1_000, 0, (0, 0), true),
            (49, 1_000, 0, (0, 0), false),
            (52, 1_000, 8_192, (0, 0), true),
            (51, 1_000, 8_192, (0, 0), false),
            (GIB, GIB << 20, 0, (0, 0), true),
            (GIB - 1, GIB << 20, 0, (0, 0), false),
            (50, 1_000, 0, (5, 100), true),
            (50, 1_000, 0, (4, 100), false),
            (50, 1_000, 0, (10_000, 1 << 40), true),
            (50, 1_000, 0, (9_999, 1 << 40), false),
        ] {
            let fs = StatVfs { f_frsize: 4_096, f_bavail, f_blocks, f_favail, f_files, ..any };
            let keeps = keeps_reserve(&fs, Bytes::new(unwritten));
            assert_eq!(keeps, is_enough, "{f_bavail} of {f_blocks}, {unwritten}; {f_favail} of {f_files}");
        }
    }
}
