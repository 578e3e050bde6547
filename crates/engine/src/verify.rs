//! How a transferred file is verified.

/// The method of computing the digest of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// During the transfer. Bytes of an earlier run, and bytes that arrived out of order for an
    /// algorithm that requires order, are read from the file meanwhile.
    #[default]
    Passing,
    /// By reading the whole file back from the disk, which also detects lost writes.
    Disk,
}
