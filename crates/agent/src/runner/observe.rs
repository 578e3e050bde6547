//! Observes a run: updates its progress for clients, its record, and the identity of its file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::event::{Done, Event, JobTag, Observer};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_file::part_of;
use longhaul_scope::record::Recorder;
use longhaul_scope::record::schema::Side;

use super::execute::RunFailure;
use crate::database::PartIdentity;
use crate::live::{Live, RECORD_INTERVAL};
use crate::paths::make_private;
use crate::queue::Queue;
use crate::transfer::{Transfer, TransferKind};

/// The observer of one run.
pub(super) struct RunObserver<'a> {
    queue: &'a Queue,
    live: &'a Live,
    kind: TransferKind,
    tag: JobTag,
    recorder: Option<Recorder>,
    /// The time of the record's last sample, in milliseconds since the run's start: a watched run
    /// is sampled more often than recorded.
    recorded: AtomicU64,
    received: AtomicU64,
}

impl<'a> RunObserver<'a> {
    /// Starts observing; without a record if it cannot be written.
    pub(super) fn begin(queue: &'a Queue, live: &'a Live, transfer: &Transfer) -> Self {
        let url = transfer.ends.urls.first().map(String::as_str).unwrap_or_default();
        let side = if transfer.kind == TransferKind::Put { Side::Put } else { Side::Get };
        let path = queue.record(live.id);
        let create = || {
            make_private(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
            Recorder::create(&path, side, url, None, RECORD_INTERVAL).map_err(|error| error.to_string())
        };
        // Of one file: a record of many concurrent ones shows none.
        let is_of_file = matches!(transfer.kind, TransferKind::Get | TransferKind::Put);
        let recorder = is_of_file.then(create).and_then(|recorder| {
            recorder.inspect_err(|error| tracing::warn!("transfer {} has no record: {error}", live.id)).ok()
        });
        let tag = JobTag::new(longhaul_core::event::JobId::new(live.id.cast_unsigned()), url);
        Self {
            queue,
            live,
            kind: transfer.kind,
            tag,
            recorder,
            recorded: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Returns the tag of the run's events.
    pub(super) fn tag(&self) -> &JobTag {
        &self.tag
    }

    /// Ends the record.
    pub(super) fn end(self, at: Duration, result: &Result<Done, RunFailure>) {
        let Some(recorder) = &self.recorder else { return };
        let end = match result {
            Ok(done) => Event::Done(Box::new(done.clone())),
            Err(failure) => Event::Error {
                message: failure.message.clone(),
                exit_code: (self.queue.exit_code)(failure.kind),
            },
        };
        recorder.on(&self.tag, at, &end);
        if let Err(error) = recorder.finish() {
            tracing::warn!("the record of transfer {} is cut off: {error}", self.live.id);
        }
    }

    /// Stores the identity of the file that the run writes, before the file can get its final name.
    /// In a farm, the run ends if that is not stored: other agents could not know the file.
    fn opened(&self, target: &Path, size: Option<Bytes>) {
        if self.kind != TransferKind::Get {
            return;
        }
        let (id, size) = (self.live.id, size.map(Bytes::get));
        let why = match PartIdentity::of(&part_of(target), target) {
            Ok(part) => {
                let run = (id, self.live.epoch);
                let why = match self.queue.database(|database| database.set_part(run, &part, size)) {
                    Ok(true) => None,
                    Ok(false) => Some("it was given to another run".to_owned()),
                    Err(error) => Some(error.to_string()),
                };
                if why.is_some() && self.queue.farm.is_some() {
                    self.live.cancel.cancel();
                }
                why
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            tracing::warn!(
                "the file of transfer {id} is unknown to a later agent, which fetches it again: {why}"
            );
        }
        // The transfer may have been removed meanwhile.
        let _ = self.queue.changed(self.live.id);
    }

    fn record(&self, job: &JobTag, at: Duration, event: &Event) {
        let Some(recorder) = &self.recorder else { return };
        if matches!(event, Event::Sample(_)) {
            let now = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            let last = self.recorded.load(Ordering::Relaxed);
            // A tenth early, because timers are inexact.
            if last > 0
                && now < last + u64::try_from(RECORD_INTERVAL.as_millis() * 9 / 10).unwrap_or(u64::MAX)
            {
                return;
            }
            self.recorded.store(now.max(1), Ordering::Relaxed);
        }
        recorder.on(job, at, event);
    }
}

impl Observer for RunObserver<'_> {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        self.record(job, at, event);
        self.live.note(event);
        match event {
            Event::Opened { path, size, .. } => self.opened(path, *size),
            Event::Progress(progress) => {
                let now = progress.bytes.received.get();
                let before = self.received.fetch_max(now, Ordering::Relaxed);
                self.queue.runs.moved.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
                send_progress(self.queue, self.live);
            }
            Event::Sample(sample) => {
                if let Some(samples) = self.live.note_sample(at, sample) {
                    let id = self.live.id;
                    let message = || serde_json::json!({ "id": id, "samples": samples }).to_string();
                    self.queue.events.send_of("samples", Some(id), message);
                }
            }
            Event::Warning(warning) => tracing::warn!("transfer {}: {warning}", self.live.id),
            _ => {}
        }
    }
}

/// Sends the progress of a run to clients, at most twice a second.
pub(super) fn send_progress(queue: &Queue, live: &Live) {
    if queue.events.has_receivers() && live.is_progress_due() {
        queue.events.send("progress", || crate::json(&live.message()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::farm::Farm;
    use crate::runner::tests::{begun, queue};

    #[test]
    fn run_of_a_farm_ends_where_another_agent_would_not_know_its_file() {
        for (is_in_farm, epoch, is_ended) in [(true, 0, false), (true, 1, true), (false, 1, false)] {
            let (dir, mut queue) = queue();
            let (id, part) = begun(&queue, dir.path(), "f");
            if is_in_farm {
                let farm = Farm::new("postgres://db/farm".to_owned(), "here".to_owned(), Duration::MAX);
                std::sync::Arc::get_mut(&mut queue).unwrap().farm = Some(farm);
            }
            let transfer = queue.transfer(id).unwrap();
            let live = Live::new(&transfer, epoch, queue.runs.limit.clone());
            let observer = RunObserver::begin(&queue, &live, &transfer);
            assert!(part.exists());
            observer.opened(&dir.path().join("f"), None);
            assert_eq!(live.cancel.is_cancelled(), is_ended, "in a farm {is_in_farm}, lease {epoch}");
        }
    }
}
