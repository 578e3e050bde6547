//! Synthetic records for tests.

use std::borrow::Cow;
use std::time::Duration;

use longhaul_core::event::{Event, JobEvent, JobId};
use longhaul_core::telemetry::{HostPages, PageCache};
use longhaul_core::units::{Bytes, Rtt};

use crate::chart::Chart;
use crate::record::Record;
use crate::record::schema::{Header, Host, MAGIC, Sample, Side, VERSION};

/// Returns a record of `seconds` with a sample every 10 ms.
pub(crate) fn record(seconds: f64, sample: impl Fn(f64) -> Sample) -> Record {
    every(0.01, seconds, sample)
}

/// Returns a record of `seconds` with a sample every `interval`.
pub(crate) fn every(interval: f64, seconds: f64, sample: impl Fn(f64) -> Sample) -> Record {
    let header = Header {
        record: MAGIC.to_owned(),
        version: VERSION,
        side: Side::Get,
        what: "http://server/file".to_owned(),
        pace: None,
        program: "longhaul 0.1.0".to_owned(),
        started: 1_795_219_200.0,
        interval,
        host: Host { name: "near".to_owned(), kernel: "6.1.0".to_owned(), cores: 2 },
    };
    let a_second = 1.0 / interval;
    let times = (0..=(seconds * a_second).round() as usize).map(|index| index as f64 / a_second);
    let samples = times.map(|at| (at, sample(at))).collect();
    Record { header, samples, events: Vec::new(), run: None, end: None, damage: None }
}

/// Returns the line of an event at a time in seconds.
pub(crate) fn event(second: u64, event: Event) -> JobEvent<'static> {
    let at = Duration::from_secs(second);
    JobEvent { at, job: JobId::default(), url: None, event: Cow::Owned(event) }
}

pub(crate) fn moved(bytes: f64) -> Sample {
    Sample { moved: Bytes::new(bytes as u64), ..Sample::default() }
}

/// Returns the names of a chart's series.
pub(crate) fn names(chart: &Chart) -> Vec<&str> {
    chart.series.iter().map(|series| series.name.as_str()).collect()
}

pub(crate) fn rtt(seconds: f64) -> Option<Rtt> {
    Some(Rtt::new(Duration::from_secs_f64(seconds)))
}

/// Returns a page cache of nine bytes: five dirty, three under writeback.
pub(crate) fn pages() -> PageCache {
    let [cached, dirty, writeback, evicted] = [9, 5, 3, 1].map(Bytes::new);
    PageCache { cached, dirty, writeback, evicted, recently_evicted: Bytes::ZERO }
}

/// Returns the host's pages with `dirty` bytes dirty.
pub(crate) fn host_pages(dirty: u64) -> HostPages {
    HostPages { dirty: Bytes::new(dirty), writeback: Bytes::ZERO }
}
