//! Chooses the length of the chunks of a MODE E transfer.
//!
//! Between two chunks the server waits until every connection has sent its part, and only there can
//! the number of connections change. Chunks therefore last long, but not at first, while the rate
//! and the best number of connections are unknown.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};

/// The duration of the first chunk at a known rate: that of slow start on a long path.
const MIN_CHUNK_TIME: Duration = Duration::from_secs(2);
/// The maximum duration of a chunk: if the file changes, all bytes since the last check are taken
/// back.
const MAX_CHUNK_TIME: Duration = Duration::from_secs(16);
/// The first chunk's length while no rate is known: two seconds at 256 Mbit/s.
const FIRST_CHUNK: Bytes = Bytes::mib(64);
/// The minimum length of a chunk: its commands take a round trip of the control connection.
const MIN_PACED_CHUNK: Bytes = Bytes::mib(4);

/// Chooses the length of each chunk.
#[derive(Debug, Clone)]
pub(super) struct ChunkPace {
    lasts: Duration,
}

impl Default for ChunkPace {
    fn default() -> Self {
        Self { lasts: MIN_CHUNK_TIME }
    }
}

impl ChunkPace {
    /// Returns the length of the next chunk at the last measured or stored rate.
    pub(super) fn next(&mut self, rate: Rate) -> Bytes {
        if rate == Rate::default() {
            return FIRST_CHUNK;
        }
        let lasts = self.lasts;
        self.lasts = (lasts * 2).min(MAX_CHUNK_TIME);
        rate.bytes_in(lasts).max(MIN_PACED_CHUNK)
    }

    /// Restarts with short chunks after a change of the number of connections.
    pub(super) fn restart(&mut self) {
        self.lasts = MIN_CHUNK_TIME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_from_two_seconds_to_sixteen() {
        let (mut pace, rate) = (ChunkPace::default(), Rate::bytes_per_sec(100 << 20));
        assert_eq!(pace.next(Rate::default()), FIRST_CHUNK);
        let chunks: Vec<_> = (0..5).map(|_| pace.next(rate).get() / (100 << 20)).collect();
        assert_eq!(chunks, [2, 4, 8, 16, 16]);
        pace.restart();
        assert_eq!(pace.next(rate), Bytes::mib(200));
        assert_eq!(pace.next(Rate::bits_per_sec(1)), MIN_PACED_CHUNK);
    }
}
