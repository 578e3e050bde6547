//! pwrite through the page cache, kept short: write-back starts at once, clean pages are dropped.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;

use super::Writer;

/// Writes with pwrite, and bounds the dirty pages so that the kernel never stalls the writer for long.
#[derive(Debug)]
pub(super) struct Buffered {
    file: File,
    /// Pieces whose write-back has started, oldest first.
    under_way: Mutex<VecDeque<ByteRange>>,
}

/// Write-back under way before the oldest is waited for: enough to keep a fast device busy.
const UNDER_WAY: usize = 8;

impl Buffered {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, under_way: Mutex::default() })
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
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            under_way.push_back(written);
            if under_way.len() > UNDER_WAY { under_way.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), |range| write_back::finish_and_drop(&self.file, range))
    }

    fn threads(&self) -> usize {
        // Writes to one inode are serialised by the kernel; the second thread waits for write-back meanwhile.
        2
    }
}
