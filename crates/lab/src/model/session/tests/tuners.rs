//! APT on the paper's path, per packet.

use longhaul_core::tune::apt::{Apt, Parameters};
use longhaul_core::units::Bytes;

use super::{FILE, fetch, mbits};
use crate::model::session::FixedCount;
use crate::model::tcp::tests::path;
use crate::{PathSpec, QueueLimit};

#[test]
fn apt_converges_and_its_chunks_last_delta() {
    let Parameters { delta, .. } = Parameters::default();
    let file = FILE * 4;
    let record = fetch(&path(10), Apt::new(Parameters::default()), file);
    let tried: Vec<usize> = record.chunks.iter().map(|chunk| chunk.streams).collect();
    assert_eq!(tried[..2], [4, 8], "{record:?}");
    let found = *tried.last().unwrap();
    let (until, settled) = record.chunks.split_at(tried.iter().rposition(|&n| n != found).unwrap() + 1);
    assert!(until.len() <= 8 && settled.len() >= 3, "{tried:?}");
    // Four connections fill the path; APT must detect through a chunk's noise that more are not
    // faster.
    assert!((4..=16).contains(&found) && mbits(record.rate(file)) > 85.0, "{tried:?}");
    // Except the last chunk, which is the rest of the file.
    for chunk in &settled[..settled.len() - 1] {
        let took = chunk.to - chunk.from;
        assert!(took > delta.mul_f64(0.95) && took < delta.mul_f64(1.2), "{chunk:?}");
    }
}

/// APT stays below the rate of its connections: two windows of 44 packets fit into the queue, three
/// do not.
#[test]
fn a_chunk_begins_with_a_burst_of_all_windows() {
    let rate = |streams: u64, queue| {
        let path = PathSpec { queue: Some(QueueLimit::Packets(queue)), ..path(50) };
        // Chunks of three seconds.
        let chunks = FixedCount { streams: streams as usize, chunk: Some(Bytes::new(1_920_000) * streams) };
        mbits(fetch(&path, chunks, FILE).rate(FILE)) / streams as f64
    };
    let (alone, two, three) = (rate(1, 100), rate(2, 100), rate(3, 100));
    assert!(alone > 4.9 && two > 4.9 && three < 4.3, "{alone}, {two}, {three} Mbit/s each");
    assert!(rate(3, 132) > 4.9, "a queue that holds three");
}
