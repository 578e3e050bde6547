//! Telemetry: the observer of a server, and the thread that takes samples for it.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use longhaul_core::event::{JobTag, Observer};
use longhaul_core::telemetry::{Counters, Sample, Sparingly};
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::telemetry;
use longhaul_sys::host;

use crate::stats::connection_stats::ConnectionStats;

/// The observer of a server, and how often everything is measured for it.
#[derive(Clone)]
pub struct Telemetry {
    /// What the server's events are marked with.
    pub job: JobTag,
    /// Is called for every connection and reply.
    pub observer: Arc<dyn Observer>,
    /// Takes samples this often for it, on a thread of its own; while nothing is being sent, none
    /// is told. Less often among more than a few connections, where reading them would take more
    /// than 1 % of a core.
    pub sample: Option<SampleInterval>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// Reading the connections may take one part in so many of the time.
const SHARE: u32 = 100;
/// So few of them are read as often as is asked for: averages over a millisecond need that.
const FEW: usize = 4;

/// A running thread that takes samples; it ends with this.
pub(crate) struct Sampler {
    alive: Sender<()>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Starts where samples are asked for.
    pub(crate) fn start(stats: &Arc<ConnectionStats>) -> Option<Self> {
        let interval = stats.interval()?;
        let (alive, ended) = crossbeam_channel::bounded(0);
        let stats = Arc::clone(stats);
        let run = move || {
            let mut reader = Reader { stats: &stats, sparingly: Sparingly::one_in(SHARE), told: None };
            telemetry::sample(&interval, &ended, |last| reader.take(last), |event| stats.emit(event));
        };
        match std::thread::Builder::new().name("sampler".to_owned()).spawn(run) {
            Ok(thread) => Some(Self { alive, thread }),
            Err(error) => {
                tracing::warn!("no samples are taken: cannot start a thread: {error}");
                None
            }
        }
    }

    /// Waits until the last sample is taken and told.
    pub(crate) fn end(self) {
        drop(self.alive);
        // The panic hook has already reported a panic there.
        let _ = self.thread.join();
    }
}

/// Reads the connections as often as that is cheap and has anything new to tell.
struct Reader<'a> {
    stats: &'a ConnectionStats,
    sparingly: Sparingly,
    /// What was told last: whether anything was being sent, and what had been counted.
    told: Option<(bool, Counters)>,
}

impl Reader<'_> {
    /// Takes a sample; none where it would say the same as the one before, for an idle server would
    /// else fill its disk.
    fn take(&mut self, last: bool) -> Option<Sample> {
        let now = self.stats.age();
        if !last && !self.sparingly.is_due(now) {
            return None;
        }
        let before = host::thread_cpu_time();
        let reading = self.stats.read();
        if reading.streams.len() > FEW {
            self.sparingly.took(now, host::thread_cpu_time().saturating_sub(before));
        }
        let state = (!reading.streams.is_empty(), reading.totals);
        let new = last || state.0 || self.told != Some(state);
        new.then(|| {
            self.told = Some(state);
            let (page_cache, host_pages) = self.stats.uploads().pages(now);
            let took = Some(self.stats.age().saturating_sub(reading.began));
            Sample { took, page_cache, host_pages, ..reading.sample() }
        })
    }
}
