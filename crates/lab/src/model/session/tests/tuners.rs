//! Both tuners on the paper's path, per packet.

use std::time::Duration;

use longhaul_core::tune::MOST_STREAMS;
use longhaul_core::tune::apt::{Apt, Parameters};
use longhaul_core::tune::fairness::jain_index;
use longhaul_core::tune::streams::{StreamTuner, StreamTunerStart};
use longhaul_core::units::{Bytes, Rtt};

use super::{FILE, fetch, mbits, session, sessions};
use crate::model::session::{Fixed, Tuner};
use crate::model::tcp::tests::path;
use crate::{PathSpec, QueueLimit};

const ENDLESS: Bytes = Bytes::gib(1 << 20);

fn auto(one_way_ms: u64, file: Bytes) -> StreamTuner {
    let rtt = Rtt::new(Duration::from_millis(2 * one_way_ms));
    StreamTuner::new(&StreamTunerStart { rtt, left: file, most: MOST_STREAMS, remembered: None, bound: None })
}

#[test]
fn auto_tuner_approaches_the_best_fixed_number() {
    for (one_way_ms, best) in [(10, 4), (50, 20)] {
        let file = FILE * 4;
        let path = path(one_way_ms);
        let fixed = mbits(fetch(&path, Fixed(best), file).rate(file));
        let tuned = fetch(&path, auto(one_way_ms, file), file);
        let rate = mbits(tuned.rate(file));
        assert!(rate > 0.95 * fixed, "{one_way_ms} ms: {rate} of {fixed} Mbit/s, {:?}", tuned.seconds);
    }
}

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
    // Four connections fill the path; APT must detect through a chunk's noise that more are not faster.
    assert!((4..=16).contains(&found) && mbits(record.rate(file)) > 85.0, "{tried:?}");
    // Except the last chunk, which is the rest of the file.
    for chunk in &settled[..settled.len() - 1] {
        let took = chunk.to - chunk.from;
        assert!(took > delta.mul_f64(0.95) && took < delta.mul_f64(1.2), "{chunk:?}");
    }
}

/// Requests chunks of one size over a fixed number of connections.
#[derive(Debug)]
struct FixedInChunks(usize, Bytes);

impl Tuner for FixedInChunks {
    fn streams(&self) -> usize {
        self.0
    }

    fn chunk(&self) -> Option<Bytes> {
        Some(self.1)
    }
}

/// APT stays below the rate of its connections: two windows of 44 packets fit into the queue, three do not.
#[test]
fn a_chunk_begins_with_a_burst_of_all_windows() {
    let rate = |streams: u64, queue| {
        let path = PathSpec { queue: Some(QueueLimit::Packets(queue)), ..path(50) };
        // Chunks of three seconds.
        let chunks = FixedInChunks(streams as usize, Bytes::new(1_920_000) * streams);
        mbits(fetch(&path, chunks, FILE).rate(FILE)) / streams as f64
    };
    let (alone, two, three) = (rate(1, 100), rate(2, 100), rate(3, 100));
    assert!(alone > 4.9 && two > 4.9 && three < 4.3, "{alone}, {two}, {three} Mbit/s each");
    assert!(rate(3, 132) > 4.9, "a queue that holds three");
}

/// Returns Jain's index of four sessions that start 100 s apart, over the last 100 s of 500 s, and their total Mbit/s.
fn four_sessions(seed: u64) -> (f64, f64) {
    let apart = Duration::from_secs(100);
    let session = |number| session(apart * number, ENDLESS, auto(10, ENDLESS));
    let records = sessions(&PathSpec { seed, ..path(10) }, (0..4).map(session).collect(), 500);
    let shares: Vec<f64> = records.iter().map(|own| mbits(Some(own.goodput(apart * 4, apart * 5)))).collect();
    (jain_index(&shares), shares.iter().sum())
}

#[test]
fn auto_tuned_sessions_become_equal_behind_droptail() {
    let runs = [1, 2, 3].map(four_sessions);
    let mean = runs.iter().map(|(jain, _)| jain / 3.0).sum::<f64>();
    assert!(mean >= 0.95 && runs.iter().all(|(_, together)| *together > 95.0), "{mean}: {runs:?}");
}
