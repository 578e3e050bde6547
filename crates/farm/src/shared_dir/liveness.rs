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
    workers: HashMap<String, ObservedWorker>,
}

#[derive(Debug)]
struct ObservedWorker {
    /// The last one that was read.
    heartbeat: Option<Heartbeat>,
    /// The polls since the counter has changed, or since the file was first missed.
    silent: u32,
}

impl Liveness {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, polled: None, workers: HashMap::new() }
    }

    /// Observes all workers, at most once in an interval: several polls within one show no silence.
    /// Neither does the time in which this process was stopped, as it counts as one interval.
    pub(crate) fn poll(&mut self, interval: Duration) -> Result<(), FarmError> {
        // A timer that is a little early does not lose a poll.
        if self.polled.is_some_and(|polled| polled.elapsed() < interval / 10 * 9) {
            return Ok(());
        }
        let found = Heartbeat::all(&self.directory)?;
        // A worker whose file is missing is silent too.
        self.workers.values_mut().for_each(|observed| observed.silent = observed.silent.saturating_add(1));
        self.note(found);
        self.polled = Some(Instant::now());
        Ok(())
    }

    /// Reads the heartbeats of all workers; silence is counted by [`poll`](Self::poll) alone.
    pub(crate) fn refresh(&mut self) -> Result<(), FarmError> {
        let found = Heartbeat::all(&self.directory)?;
        self.note(found);
        Ok(())
    }

    fn note(&mut self, found: Vec<Heartbeat>) {
        for heartbeat in found {
            let before = self.workers.get(heartbeat.worker()).and_then(|before| before.heartbeat.as_ref());
            if before.is_none_or(|before| before.beat != heartbeat.beat) {
                let worker = heartbeat.worker().to_owned();
                self.workers.insert(worker, ObservedWorker { heartbeat: Some(heartbeat), silent: 0 });
            }
        }
    }

    /// Returns the last heartbeats of the workers that are not expired.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Heartbeat> {
        let alive = self.workers.values().filter(|observed| observed.silent < SILENT_POLLS);
        let heartbeats = alive.filter_map(|observed| observed.heartbeat.as_ref());
        heartbeats.filter(|heartbeat| !heartbeat.ended && !heartbeat.process().has_ended())
    }

    /// Returns whether a worker has ended, or has been silent for its lease.
    pub(crate) fn is_expired(&mut self, worker: &str) -> bool {
        // A worker stores its heartbeat before its first claim; a listing may be late.
        let ObservedWorker { heartbeat, silent } =
            self.workers.entry(worker.to_owned()).or_insert_with(|| ObservedWorker {
                heartbeat: Heartbeat::read(&self.directory, worker),
                silent: 0,
            });
        let has_ended = |heartbeat: &Heartbeat| heartbeat.ended || heartbeat.process().has_ended();
        *silent >= SILENT_POLLS || heartbeat.as_ref().is_some_and(has_ended)
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
    }

    #[test]
    fn worker_without_a_heartbeat_expires_after_polls_since_it_was_missed() {
        let dir = tempfile::tempdir().unwrap();
        let other = Heartbeat::of_this_process();
        let mut liveness = Liveness::new(dir.path().to_owned());
        let poll = |liveness: &mut Liveness| liveness.poll(Duration::ZERO).unwrap();
        (0..10).for_each(|_| poll(&mut liveness));
        assert!(!liveness.is_expired(other.worker()), "it may have joined at this moment");
        other.store(dir.path()).unwrap();
        (0..SILENT_POLLS).for_each(|_| poll(&mut liveness));
        assert!(!liveness.is_expired(other.worker()), "its file was found after one of the polls");
        std::fs::remove_file(dir.path().join(other.worker())).unwrap();
        poll(&mut liveness);
        assert!(liveness.is_expired(other.worker()), "its file has vanished");
        assert!(!liveness.is_expired("../unknown"));
        (0..SILENT_POLLS).for_each(|_| poll(&mut liveness));
        assert!(liveness.is_expired("../unknown"));
    }
}
