//! What is measured together.

use longhaul_core::units::Bytes;

use crate::paths::BenchPath;
use crate::peers::Client;

/// Clients that take turns on one path.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) path: BenchPath,
    pub(crate) clients: Vec<Client>,
    /// How large the file is, where nothing else is asked for.
    pub(crate) size: Bytes,
    /// Whether a size that is asked for can only make it smaller.
    pub(crate) is_at_most: bool,
    /// Whether the sender's page cache has the file.
    pub(crate) warm: bool,
}

impl Job {
    /// Makes a job with a file of any size, which the sender's page cache has.
    pub(crate) fn new(path: BenchPath, clients: &[Client], size: Bytes) -> Self {
        Self { path, clients: clients.to_vec(), size, is_at_most: false, warm: true }
    }

    /// Takes the size that is asked for.
    pub(crate) fn resize(&mut self, asked: Bytes) {
        self.size = if self.is_at_most { self.size.min(asked) } else { asked };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_stays_small() {
        let mut job = Job::new(BenchPath::LongStock, &[Client::Curl], Bytes::gib(1));
        job.resize(Bytes::gib(8));
        assert_eq!(job.size, Bytes::gib(8));
        job = Job { is_at_most: true, size: Bytes::gib(1), ..job };
        job.resize(Bytes::gib(8));
        assert_eq!(job.size, Bytes::gib(1));
        job.resize(Bytes::mib(1));
        assert_eq!(job.size, Bytes::mib(1));
    }
}
