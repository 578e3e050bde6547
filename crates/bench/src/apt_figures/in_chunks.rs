//! A fixed number of connections, whose file comes in chunks: what APT measures of that number.

use longhaul_core::units::Bytes;
use longhaul_lab::model::session::Tuner;

/// Asks for the next chunk when all of the one before has come, as APT does, and changes nothing.
#[derive(Debug)]
pub(crate) struct InChunks {
    pub(crate) streams: usize,
    pub(crate) size: Bytes,
}

impl Tuner for InChunks {
    fn streams(&self) -> usize {
        self.streams
    }

    fn chunk(&self) -> Option<Bytes> {
        Some(self.size)
    }
}
