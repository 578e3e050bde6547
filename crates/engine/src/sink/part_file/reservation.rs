//! The space of a partial file on its disk.

use std::io;
use std::os::unix::fs::MetadataExt;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstatvfs, seek};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::PartFile;
use crate::sink::output_error::OutputError;

impl PartFile {
    /// Truncates the file, if no space is reserved.
    ///
    /// # Errors
    /// [`OutputError::Create`].
    pub fn empty(&self) -> Result<(), OutputError> {
        if self.is_stream() {
            return Ok(());
        }
        let emptied = self.file.set_len(0);
        emptied.map_err(|source| OutputError::Create { path: self.part_path.clone(), source })
    }

    /// Reserves the file's space on disk, so that a full disk is reported before the first byte; of
    /// a shared file, that of the range alone.
    ///
    /// # Errors
    /// [`OutputError::Reserve`] if the space is insufficient; the file and its journal are then
    /// unchanged.
    pub fn reserve(&self, size: Bytes) -> Result<(), OutputError> {
        if self.is_stream() {
            return Ok(());
        }
        let (range, flags) = match &self.slice {
            Some(slice) => (slice.range(), FallocateFlags::KEEP_SIZE),
            None => (ByteRange::with_len(0, size), FallocateFlags::empty()),
        };
        let failed = |source: io::Error| OutputError::Reserve {
            path: self.part_path.clone(),
            size: range.len(),
            source,
        };
        let before = self.file.metadata().map_err(failed)?;
        let is_whole = self.slice.is_none();
        // Blocks of the partial file are counted in units of 512 bytes. Which of a shared one are
        // the range's is not known; one without data has none, unless a worker was killed before
        // its first byte.
        let held = match is_whole {
            true => before.blocks() * 512,
            false if self.has_data(range) => range.len().get(),
            false => 0,
        };
        // First, because fallocate fills the disk before it fails, and other programs' writes fail
        // meanwhile.
        let free = self.free_of(geteuid().is_root()).map_err(failed)?.get();
        if free.saturating_add(held) < range.len().get() {
            return Err(failed(Errno::NOSPC.into()));
        }
        if !range.is_empty() {
            match fallocate(&self.file, flags, range.start(), range.len().get()) {
                // Some file systems cannot reserve.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => {
                    if is_whole {
                        // Releases the space reserved before the disk was full.
                        let _ = self.file.set_len(before.len());
                    }
                    return Err(failed(error.into()));
                }
            }
        }
        if is_whole { self.file.set_len(size.get()).map_err(failed) } else { Ok(()) }
    }

    /// Returns whether something was written within `range`; true where the file system cannot say.
    fn has_data(&self, range: ByteRange) -> bool {
        match seek(&self.file, SeekFrom::Data(range.start())) {
            Ok(at) => at < range.end(),
            Err(error) => error != Errno::NXIO,
        }
    }

    /// Returns the space that all users may still fill on the file's file system; no limit if it
    /// states no size.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn free_space(&self) -> io::Result<Bytes> {
        self.free_of(false)
    }

    /// Returns the free space, with what is reserved for the superuser or without.
    fn free_of(&self, is_root: bool) -> io::Result<Bytes> {
        let fs = fstatvfs(&self.file)?;
        let blocks = match fs.f_blocks {
            0 => u64::MAX,
            _ if is_root => fs.f_bfree,
            _ => fs.f_bavail,
        };
        Ok(Bytes::new(blocks.saturating_mul(fs.f_frsize)))
    }
}
