//! Which workers are expired, by what this process has observed on its own clock.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::SILENT_POLLS;
use super::heartbeat::Heartbeat;
use crate::error::FarmError;

/// The observed workers of a plan.
#[derive(Debug)]
pub(crate) struct Liveness {
    directory: PathBuf,
    polled: Option<Instant>,
    /// The number of polls.
    polls: u32,
    workers: HashMap<String, Observed>,
}

#[derive(Debug)]
struct Observed {
    heartbeat: Heartbeat,
    /// The polls since the counter has changed.
    silent: u32,
}

impl Liveness {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, polled: None, polls: 0, workers: HashMap::new() }
    }

    /// Observes all workers, at most once in an interval: several polls within one show no silence. Neither does the time in
    /// which this process was stopped, as it counts as one interval.
    pub(crate) fn poll(&mut self, interval: Duration) -> Result<(), FarmError> {
        // A timer that is a little early does not lose a poll.
        if self.polled.is_some_and(|polled| polled.elapsed() < interval / 10 * 9) {
            return Ok(());
        }
        let found = Heartbeat::all(&self.directory)?;
        self.polls += 1;
        // A worker whose file is being replaced at this moment has no silent poll.
        for heartbeat in found {
            let worker = heartbeat.worker().to_owned();
            let before = self.workers.remove(&worker);
            let is_silent = before.as_ref().is_some_and(|before| before.heartbeat.beat == heartbeat.beat);
            let silent = before.filter(|_| is_silent).map_or(0, |before| before.silent + 1);
            self.workers.insert(worker, Observed { heartbeat, silent });
        }
        self.polled = Some(Instant::now());
        Ok(())
    }

    /// Returns whether a worker has ended, or has been silent for its lease.
    pub(crate) fn is_expired(&self, worker: &str) -> bool {
        match self.workers.get(worker) {
            Some(Observed { heartbeat, silent }) => {
                heartbeat.ended || *silent >= SILENT_POLLS || heartbeat.process().has_ended()
            }
            // A worker is known by its heartbeat before its first claim; a listing may be late.
            None => self.polls >= SILENT_POLLS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::WorkerProgress;

    #[test]
    fn worker_expires_by_its_silence_in_several_polls_and_never_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut other = Heartbeat::of_this_process();
        other.store(dir.path()).unwrap();
        let name = other.worker().to_owned();
        let mut liveness = Liveness::new(dir.path().to_owned());
        let polls = |liveness: &mut Liveness, count: u32| {
            (0..count).for_each(|_| liveness.poll(Duration::ZERO).unwrap());
            liveness.is_expired(&name)
        };
        assert!(!polls(&mut liveness, SILENT_POLLS));
        other.advance(WorkerProgress::default(), Vec::new());
        other.store(dir.path()).unwrap();
        assert!(!polls(&mut liveness, SILENT_POLLS), "it has moved since");
        assert!(polls(&mut liveness, 1));
        // Polls within one interval count once, and one after a long stop of the observer, too.
        let mut stopped = Liveness::new(dir.path().to_owned());
        (0..100).for_each(|_| stopped.poll(Duration::from_secs(3600)).unwrap());
        assert!(!stopped.is_expired(other.worker()));
        other.end();
        other.store(dir.path()).unwrap();
        stopped.poll(Duration::ZERO).unwrap();
        assert!(stopped.is_expired(other.worker()), "it has ended by itself");
        assert!(!stopped.is_expired("unknown"));
    }
}
