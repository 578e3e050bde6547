//! Writes by pwrite through the page cache with few dirty pages: write-back starts at once, clean pages are dropped.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;
use parking_lot::Mutex;

use super::Writer;

/// Writes with pwrite, and bounds dirty pages so that the kernel never throttles the writer for long.
#[derive(Debug)]
pub(super) struct Buffered {
    file: File,
    /// Pieces whose write-back has started, oldest first.
    in_write_back: Mutex<VecDeque<ByteRange>>,
}

/// The number of pieces in write-back before the oldest is awaited: enough to keep a fast device busy.
const MAX_WRITE_BACK: usize = 8;

impl Buffered {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, in_write_back: Mutex::default() })
    }
}

impl Writer for Buffered {
    fn name(&self) -> &'static str {
        "buffered"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let written = ByteRange::with_len(offset, Bytes::new(data.len() as u64));
        write_back::start(&self.file, written)?;
        let oldest = {
            let mut in_write_back = self.in_write_back.lock();
            in_write_back.push_back(written);
            if in_write_back.len() > MAX_WRITE_BACK { in_write_back.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), |range| write_back::finish_and_drop(&self.file, range))
    }

    fn threads(&self) -> usize {
        // The kernel serialises writes to one inode; the second thread waits for write-back meanwhile.
        2
    }
}
