//! Sessions in virtual time: downloads, and the observations of their tuners.

mod tuners;

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate};

use super::{DownloadSession, FixedCount, SessionRecord, Tuner, run};
use crate::PathSpec;
use crate::model::tcp::Network;
use crate::model::tcp::tests::{RENO, path};

const FILE: Bytes = Bytes::new(100_000_000);

fn session(begins: Duration, file: Bytes, tuner: impl Tuner + 'static) -> DownloadSession {
    DownloadSession { begins, file, tuner: Box::new(tuner), reconnects: false }
}

fn sessions(path: &PathSpec, sessions: Vec<DownloadSession>, until_s: u64) -> Vec<SessionRecord> {
    run(&mut Network::new(path, RENO), sessions, Duration::from_secs(until_s))
}

fn fetch(path: &PathSpec, tuner: impl Tuner + 'static, file: Bytes) -> SessionRecord {
    sessions(path, vec![session(Duration::ZERO, file, tuner)], 10_000).remove(0)
}

fn mbits(rate: Option<Rate>) -> f64 {
    rate.unwrap().as_bits_per_sec() as f64 / 1e6
}

/// Adds a connection per chunk, and records its observations.
#[derive(Debug)]
struct Climbing {
    streams: usize,
    chunk: Option<Bytes>,
    shown: Sender<(Interval, Duration)>,
}

impl Tuner for Climbing {
    fn streams(&self) -> usize {
        self.streams
    }

    fn chunk(&self) -> Option<Bytes> {
        self.chunk
    }

    fn chunk_done(&mut self, _goodput: Rate) {
        self.streams += 1;
    }

    fn observe(&mut self, seen: &Interval, now: Duration) -> usize {
        let _ = self.shown.send((*seen, now));
        self.streams
    }
}

#[test]
fn a_tuner_sees_its_chunks_and_intervals() {
    let (shown, seen) = channel();
    let tuner = Climbing { streams: 1, chunk: Some(Bytes::new(1_000_000)), shown };
    let record = fetch(&path(50), tuner, Bytes::new(10_000_000));
    assert_eq!(record.chunks.len(), 10);
    for (index, chunk) in record.chunks.iter().enumerate() {
        assert_eq!(chunk.streams, index + 1);
        // 685 packets of 1460 bytes.
        let bytes = chunk.goodput.as_bits_per_sec() as f64 / 8.0 * (chunk.to - chunk.from).as_secs_f64();
        assert!((bytes - 1_000_100.0).abs() < 100.0, "{chunk:?}");
    }
    assert_eq!(record.ends, Some(record.chunks[9].to));

    let seen: Vec<_> = seen.iter().collect();
    for pair in seen.windows(2) {
        assert!(pair[1].1 - pair[0].1 == Duration::from_millis(100) && pair[1].0.left <= pair[0].0.left);
    }
    let (first, _) = seen[0];
    assert!((100..101).contains(&first.rtt.get().as_millis()), "{first:?}");
    assert!(first.left < Bytes::new(10_000_000), "the first interval has data: {first:?}");
    let bits: f64 = seen.iter().map(|(seen, _)| seen.goodput.as_bits_per_sec() as f64 * 0.1).sum();
    assert!((70e6..80.1e6).contains(&bits), "{bits} of 80 Mbit were shown");
    assert!(seen.iter().all(|(seen, _)| (0..=10).contains(&seen.streams)));
}

#[test]
fn full_queue_raises_rtt_and_out_of_order_count() {
    let (shown, seen) = channel();
    fetch(&path(10), Climbing { streams: 20, chunk: None, shown }, FILE);
    let late: Vec<_> = seen.iter().skip(10).map(|(seen, _)| seen).collect();
    let queued =
        late.iter().filter_map(|seen| seen.data_rtt).filter(|rtt| rtt.get() > Duration::from_millis(25));
    assert!(queued.count() > late.len() / 2);
    assert!(late.iter().map(|seen| seen.out_of_order).sum::<u64>() > 100);
}

#[test]
fn sessions_that_begin_apart_share_and_end() {
    let both = [0, 4]
        .map(|begins| session(Duration::from_secs(begins), FILE, FixedCount { streams: 4, chunk: None }));
    let records = sessions(&path(10), both.into(), 1000);
    let alone = fetch(&path(10), FixedCount { streams: 4, chunk: None }, FILE);
    let (first, second) = (records[0].ends.unwrap(), records[1].ends.unwrap());
    assert!(first > alone.ends.unwrap() && second > first, "{records:?}");
    assert!(second < Duration::from_secs(20), "the path was never idle: {second:?}");
    let together =
        records.iter().map(|own| mbits(Some(own.goodput(Duration::from_secs(5), first)))).sum::<f64>();
    assert!((80.0..98.0).contains(&together), "{together} Mbit/s");
}

#[test]
fn new_connections_for_each_chunk_cost_a_handshake_and_slow_start() {
    let took = [false, true].map(|reconnects| {
        let tuner = Climbing { streams: 1, chunk: Some(Bytes::new(1_000_000)), shown: channel().0 };
        let session = session(Duration::ZERO, Bytes::new(4_000_000), tuner);
        sessions(&path(50), vec![DownloadSession { reconnects, ..session }], 1000)[0].ends.unwrap()
    });
    // Three reconnects: one RTT each, and four RTTs of slow start until the first connection's
    // window is full.
    let more = (took[1] - took[0]).as_millis();
    assert!((600..1600).contains(&more), "{took:?}");
}

#[test]
fn unfinished_session_has_no_rate() {
    let large = session(Duration::ZERO, Bytes::gib(1), FixedCount { streams: 1, chunk: None });
    let record = sessions(&path(50), vec![large], 5).remove(0);
    assert_eq!((record.ends, record.rate(Bytes::gib(1))), (None, None));
    assert!(record.seconds.len() >= 4);
    // A session that never starts must not delay the others.
    let late = session(Duration::from_secs(50), FILE, FixedCount { streams: 1, chunk: None });
    assert_eq!(sessions(&path(50), vec![late], 5)[0].ends, None);
}
