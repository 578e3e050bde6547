//! The space of a partial file on its disk.

use std::io;
use std::os::unix::fs::MetadataExt;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
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

    /// Reserves the file's space on disk, so that a full disk is reported before the first byte; of a shared file, that of
    /// the range alone.
    ///
    /// # Errors
    /// [`OutputError::Reserve`] if the space is insufficient; the file and its journal are then unchanged.
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
        // The partial file already occupies some blocks, counted in units of 512 bytes. First, because fallocate fills the
        // disk before it fails, and other programs' writes fail meanwhile.
        let fillable = self.free_space().map_err(failed)?.get().saturating_add(before.blocks() * 512);
        if fillable < range.len().get() {
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        let is_whole = self.slice.is_none();
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

    /// Returns the space that this user may still fill on the file's file system; no limit if it states no size.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn free_space(&self) -> io::Result<Bytes> {
        let fs = fstatvfs(&self.file)?;
        let blocks = match fs.f_blocks {
            0 => u64::MAX,
            _ if geteuid().is_root() => fs.f_bfree,
            _ => fs.f_bavail,
        };
        Ok(Bytes::new(blocks.saturating_mul(fs.f_frsize)))
    }
}
