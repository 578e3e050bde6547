//! A job: clients to compare on one path, with one file or several of one size.

use longhaul_core::units::Bytes;

use crate::clients::BenchClient;
use crate::paths::BenchPath;

/// Clients to compare on one path.
#[derive(Debug)]
pub(crate) struct BenchJob {
    pub(crate) path: BenchPath,
    pub(crate) clients: Vec<BenchClient>,
    /// The size of the file, unless another one is requested.
    pub(crate) size: Bytes,
    /// Whether a requested size can only reduce the file.
    pub(crate) is_at_most: bool,
    /// Number of files of this size.
    pub(crate) files: usize,
    /// Whether the file is in the sender's page cache.
    pub(crate) warm: bool,
}

impl BenchJob {
    /// Creates a job with a file of any size, in the sender's page cache.
    pub(crate) fn new(path: BenchPath, clients: &[BenchClient], size: Bytes) -> Self {
        Self { path, clients: clients.to_vec(), size, is_at_most: false, files: 1, warm: true }
    }

    /// Returns the size of all files.
    pub(crate) fn total(&self) -> Bytes {
        self.size * self.files as u64
    }

    /// Applies a requested size.
    pub(crate) fn resize(&mut self, asked: Bytes) {
        self.size = if self.is_at_most { self.size.min(asked) } else { asked };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_size_does_not_enlarge_a_limited_file() {
        for (is_at_most, requested, expected) in [
            (false, Bytes::gib(8), Bytes::gib(8)),
            (true, Bytes::gib(8), Bytes::gib(1)),
            (true, Bytes::mib(1), Bytes::mib(1)),
        ] {
            let clients = [BenchClient::Curl];
            let mut job =
                BenchJob { is_at_most, ..BenchJob::new(BenchPath::LongStock, &clients, Bytes::gib(1)) };
            job.resize(requested);
            assert_eq!(job.size, expected);
        }
    }
}
