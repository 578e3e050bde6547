//! APT as published: sequential chunks, each with its own number of connections.

use longhaul_core::tune::apt::Apt;
use longhaul_core::units::{Bytes, Rate};

use super::Tuner;

impl Tuner for Apt {
    fn streams(&self) -> usize {
        Self::chunk(self).streams
    }

    fn chunk(&self) -> Option<Bytes> {
        Some(Self::chunk(self).size)
    }

    fn chunk_done(&mut self, goodput: Rate) {
        Self::observe(self, goodput);
    }
}
