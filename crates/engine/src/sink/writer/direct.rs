//! O_DIRECT: from the segment to the device, past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;

use super::Writer;

/// Writes the aligned middle of every piece directly, and its ragged ends through the page cache.
#[derive(Debug)]
pub(super) struct Direct {
    direct: File,
    cached: File,
    align: Bytes,
}

impl Direct {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let align = direct_io::alignment(file).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this file system has no Direct I/O; use --writer buffered",
            )
        })?;
        // Cached and direct writes must share neither a page nor a block of the file system.
        let page = rustix::param::page_size() as u64;
        let align = align.max(page).max(file.metadata()?.blksize()).next_power_of_two();
        Ok(Self { direct: direct_io::reopen(file)?, cached: file.try_clone()?, align: Bytes::new(align) })
    }
}

impl Writer for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let [head, middle, tail] =
            ByteRange::with_len(offset, Bytes::new(data.len() as u64)).split_aligned(self.align);
        for (piece, file) in [(head, &self.cached), (middle, &self.direct), (tail, &self.cached)] {
            if !piece.is_empty() {
                file.write_all_at(
                    &data[(piece.start() - offset) as usize..(piece.end() - offset) as usize],
                    piece.start(),
                )?;
            }
        }
        Ok(())
    }

    fn threads(&self) -> usize {
        // 4 requests of 4 MiB keep an NVMe device and a RAID of a few busy; more only queue.
        4
    }
}
