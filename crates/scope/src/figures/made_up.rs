//! Records for tests.

use crate::record::Record;
use crate::record::schema::{Header, Host, MAGIC, Sample, Side, VERSION};

/// Returns a record of `seconds`, with a sample every 10 ms.
pub(super) fn record(seconds: f64, sample: impl Fn(f64) -> Sample) -> Record {
    every(0.01, seconds, sample)
}

/// Returns a record of `seconds`, with a sample every `interval`.
pub(super) fn every(interval: f64, seconds: f64, sample: impl Fn(f64) -> Sample) -> Record {
    let header = Header {
        record: MAGIC.to_owned(),
        version: VERSION,
        side: Side::Get,
        what: "http://server/file".to_owned(),
        program: "longhaul 0.1.0".to_owned(),
        started: 1_795_219_200.0,
        interval,
        host: Host { name: "near".to_owned(), kernel: "6.1.0".to_owned(), cores: 2 },
    };
    let a_second = 1.0 / interval;
    let times = (0..=(seconds * a_second).round() as usize).map(|index| index as f64 / a_second);
    let samples = times.map(|at| (at, sample(at))).collect();
    Record { header, samples, events: Vec::new(), end: None, damage: None }
}
