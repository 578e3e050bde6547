//! Writes by O_DIRECT, from the segment to the device, bypassing the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use longhaul_core::host_check::DirectIoFact;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;
use longhaul_sys::memory::AlignedBuf;

use super::Writer;

/// Writes the aligned middle of every piece directly, and its unaligned ends through the page
/// cache.
#[derive(Debug)]
pub(super) struct Direct {
    direct: File,
    cached: File,
    align: Bytes,
}

/// The assumed alignment, which nearly every device accepts, and more than most need.
const LIKELY: u64 = 4096;

impl Direct {
    /// Opens the file for a writer that the user requested. If the kernel does not report support
    /// for Direct I/O (before Linux 6.1, and on many file systems), a trial decides.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        match direct_io::ask(file) {
            Some(DirectIoFact::Aligned(align)) => Self::aligned(file, align.get()),
            Some(DirectIoFact::Impossible) => Err(unsupported("this file has no Direct I/O")),
            None => {
                let direct = Self::aligned(file, LIKELY)?;
                direct.try_out().map_err(|error| {
                    unsupported(&format!(
                        "a trial of Direct I/O in blocks of {} failed: {error}",
                        direct.align
                    ))
                })?;
                Ok(direct)
            }
        }
    }

    /// Opens the file if the kernel reports support for Direct I/O.
    pub(super) fn where_known(file: &File) -> io::Result<Self> {
        let align =
            direct_io::alignment(file).ok_or_else(|| unsupported("the kernel reports no Direct I/O"))?;
        Self::aligned(file, align)
    }

    fn aligned(file: &File, align: u64) -> io::Result<Self> {
        // Cached and direct writes must not share a page or a block of the file system.
        let page = rustix::param::page_size() as u64;
        let align = align.max(page).max(file.metadata()?.blksize()).next_power_of_two();
        let direct = direct_io::reopen(file)
            .map_err(|error| unsupported(&format!("the file system refuses O_DIRECT: {error}")))?;
        Ok(Self { direct, cached: file.try_clone()?, align: Bytes::new(align) })
    }

    /// Reads a block directly, or writes one to an empty file and truncates the file again.
    fn try_out(&self) -> io::Result<()> {
        let mut block = AlignedBuf::new(self.align.as_usize())?;
        match self.cached.metadata()?.len() {
            0 => {
                let tried = self.direct.write_all_at(&block, 0);
                self.cached.set_len(0).and(tried)
            }
            // All of the file is an unaligned end, written through the page cache.
            length if length < self.align.get() => Ok(()),
            _ => self.direct.read_exact_at(&mut block, 0),
        }
    }
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{why}; use --writer buffered"))
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
