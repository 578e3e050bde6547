//! Both tuners over the paper's path, packet by packet.

use std::time::Duration;

use longhaul_core::tune::MOST_STREAMS;
use longhaul_core::tune::apt::{Apt, Parameters};
use longhaul_core::tune::fairness::jain_index;
use longhaul_core::tune::streams::{Start, StreamTuner};
use longhaul_core::units::{Bytes, Rtt};

use super::{FILE, TCP, fetch, mbits, path};
use crate::model::session::{Fixed, Record, Session, run};
use crate::model::tcp::Network;

const ENDLESS: Bytes = Bytes::gib(1 << 20);

fn auto(one_way_ms: u64, file: Bytes) -> StreamTuner {
    let rtt = Rtt::new(Duration::from_millis(2 * one_way_ms));
    StreamTuner::new(&Start { rtt, left: file, most: MOST_STREAMS, remembered: None })
}

#[test]
fn longhauls_comes_near_the_best_fixed_number() {
    for (one_way_ms, best) in [(10, 4), (50, 20)] {
        let file = FILE * 4;
        let path = path(one_way_ms);
        let fixed = mbits(fetch(&path, Fixed(best), file).rate(file));
        let tuned = fetch(&path, auto(one_way_ms, file), file);
        let rate = mbits(tuned.rate(file));
        println!("{one_way_ms} ms: {rate} of {fixed}");
        assert!(rate > 0.88 * fixed, "{one_way_ms} ms: {rate} of {fixed} Mbit/s, {:?}", tuned.seconds);
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
    println!("{tried:?}");
    assert!(until.len() <= 8 && settled.len() >= 3, "{tried:?}");
    // Four fill the path; that more do not make it faster is what it has to see through the noise of a chunk.
    assert!((4..=16).contains(&found) && mbits(record.rate(file)) > 85.0, "{tried:?}");
    // But for the last, which is what is left.
    for chunk in &settled[..settled.len() - 1] {
        let took = chunk.to - chunk.from;
        assert!(took > delta.mul_f64(0.95) && took < delta.mul_f64(1.2), "{chunk:?}");
    }
}

fn four_sessions(apart: Duration) -> Vec<Record> {
    let session = |begins| Session {
        begins: apart * begins,
        file: ENDLESS,
        tuner: Box::new(auto(10, ENDLESS)),
        reconnects: false,
    };
    run(&mut Network::new(&path(10), TCP), (0..4).map(session).collect(), apart * 5)
}

#[test]
fn longhauls_sessions_become_equal_behind_droptail() {
    let apart = Duration::from_secs(100);
    let shares: Vec<f64> =
        four_sessions(apart).iter().map(|own| mbits(Some(own.goodput(apart * 4, apart * 5)))).collect();
    println!("{shares:?} {}", jain_index(&shares));
    assert!(jain_index(&shares) >= 0.95 && shares.iter().sum::<f64>() > 92.0, "{shares:?}");
}
