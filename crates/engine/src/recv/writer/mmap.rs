//! A shared mapping of the file, written with memcpy: UsadaFox's third buffer.

use std::fs::File;
use std::io;

use longhaul_core::units::Bytes;
use longhaul_sys::file_map::FileMap;
use longhaul_sys::write_back;

use super::Writer;

/// Copies segments into a mapping and starts their write-back.
#[derive(Debug)]
pub(super) struct Mmap {
    map: Option<FileMap>,
    file: File,
}

impl Mmap {
    pub(super) fn new(file: &File, size: Option<Bytes>) -> io::Result<Self> {
        let size = size.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "a mapping needs a file of known size; use --writer auto",
            )
        })?;
        // An empty file cannot be mapped, and needs no mapping.
        let map = (size > Bytes::ZERO).then(|| FileMap::new(file, size.as_usize())).transpose()?;
        Ok(Self { map, file: file.try_clone()? })
    }
}

impl Writer for Mmap {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.map.as_ref().map_or(Ok(()), |map| map.write_at(offset, data))?;
        write_back::start(&self.file, offset, data.len() as u64)
    }

    fn threads(&self) -> usize {
        2
    }
}
