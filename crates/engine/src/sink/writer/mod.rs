//! The third buffer: the ways in which segments are written to the file.

mod buffered;
mod direct;
mod mmap;
mod stream;
mod writer_choice;

use std::io;

pub(crate) use stream::StreamWriter;
pub use writer_choice::{WriterChoice, open};

/// Writes pieces of a file; several threads may write different pieces at once.
pub trait Writer: Send + Sync {
    /// Returns the writer's name on the command line.
    fn name(&self) -> &'static str;

    /// Writes all of `data` at `offset` of the file.
    ///
    /// # Errors
    /// The kernel's error on the file.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Returns the useful number of threads: the requests that the device can process at once.
    fn threads(&self) -> usize;
}
