//! Telemetry: who hears what happens, and the thread that takes samples for it.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use longhaul_core::event::Observer;
use longhaul_engine::telemetry;

use crate::census::Census;

/// Who hears what happens on a server, and how often everything is measured.
#[derive(Clone)]
pub struct Telemetry {
    /// Hears of every connection and reply.
    pub observer: Arc<dyn Observer>,
    /// Takes samples this often for it, on a thread of its own; while nothing is being sent, none is told.
    pub sample: Option<Duration>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// A running thread that takes samples; it ends with this.
pub(crate) struct Sampler {
    alive: Sender<()>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Starts where samples are asked for.
    pub(crate) fn start(census: &Arc<Census>) -> Option<Self> {
        let interval = census.interval()?;
        let (alive, ended) = crossbeam_channel::bounded(0);
        let census = Arc::clone(census);
        let mut silent = false;
        let run = move || {
            // An idle server would else fill its record's disk with the same line.
            let take = || {
                let reading = census.read();
                let was_silent = std::mem::replace(&mut silent, reading.streams.is_empty());
                (!silent || !was_silent).then(|| reading.sample())
            };
            telemetry::sample(interval, &ended, take, |event| census.tell(event));
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
        // A panic there has told itself.
        let _ = self.thread.join();
    }
}
