//! A shared mapping of the file, written with memcpy: UsadaFox's third buffer.

use std::fs::File;
use std::io;

use longhaul_core::units::Bytes;
use longhaul_sys::file_map::FileMap;

use super::Writer;

/// Copies segments into a mapping; the kernel decides when to write them back, as in the paper.
///
/// Starting write-back after each segment (sync_file_range) doubled the CPU time in a measurement: pages in use are
/// write-protected and faulted in again.
#[derive(Debug)]
pub(super) struct Mmap {
    /// An empty file cannot be mapped, and needs no mapping.
    map: Option<FileMap>,
}

impl Mmap {
    pub(super) fn new(file: &File, size: Option<Bytes>) -> io::Result<Self> {
        let size = size.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "a mapping needs a file of known size; use --writer auto",
            )
        })?;
        let map = (size > Bytes::ZERO).then(|| FileMap::new(file, size.as_usize())).transpose()?;
        Ok(Self { map })
    }
}

impl Writer for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.map.as_ref().map_or(Ok(()), |map| map.write_at(offset, data))
    }

    fn threads(&self) -> usize {
        2
    }
}
