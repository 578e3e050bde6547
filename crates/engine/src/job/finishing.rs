//! The end of a job: time, origin and final name of the verified file, what the path is remembered
//! by, and the result.

use std::time::Duration;

use longhaul_core::advice::KnownLimits;
use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Done, Event, LossCounts, Warning};
use longhaul_core::identity::Identity;
use longhaul_core::pace::Pace;
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rate};

use super::fetch::Fetch;
use super::monitor::PathFacts;
use crate::path_memory::KnownPath;
use crate::rate_limit::{RateLimit, is_of_pace};
use crate::sink::origin_tag;
use crate::transfer::SourceProgress;
use crate::transfer::error::TransferError;

/// A shorter transfer has no usable best second.
const LEVEL_FOR: Duration = Duration::from_secs(2);

impl Fetch<'_> {
    /// Gives the verified file its time, its origin and its final name; returns the result of the
    /// job.
    pub(super) fn finish(&self, facts: &PathFacts, digest: Option<Checksum>) -> Result<Done, TransferError> {
        let pipeline = self.pipeline;
        self.keep_time();
        self.keep_origin();
        let finished = pipeline.finish(self.replace)?;
        for warning in &finished.warnings {
            let reason = warning.to_string();
            self.transfer.emit(&Event::Warning(Warning::Finished { reason }));
        }
        let known = self.description.path.known.as_ref().zip(facts.rtt);
        let path_rate = known.and_then(|(known, rtt)| known.still_holds(rtt)).map(|path| path.rate);
        self.remember(facts);
        let mut limits = self.monitor.limits.lock();
        limits.settle(self.transfer.start.elapsed(), |event| self.transfer.emit(event));
        let (time, bytes, resumed) = (self.transfer.start.elapsed(), pipeline.written(), pipeline.resumed());
        Ok(Done {
            path: finished.path,
            bytes,
            resumed,
            unchanged: false,
            time,
            goodput: Rate::over(bytes - resumed, time),
            streams: facts.streams,
            losses: LossCounts { out_of_order: Some(facts.out_of_order), retransmits: None },
            digest,
            finding: limits.finding(self.known_limits(path_rate)),
        })
    }

    /// Sets the complete file's modification time to the server's, if requested; without one,
    /// stores the entity tag.
    pub(super) fn keep_time(&self) {
        let options = &self.job.options;
        let part = self.pipeline.part();
        if part.is_stream() || !options.keep_time {
            return;
        }
        let Some(modified) = self.description.file.modified.or(self.expected.modified) else {
            if let Some(Identity::ETag(tag)) = &self.description.file.identity
                && let Err(error) = origin_tag::write(part.file(), tag)
            {
                tracing::info!("{} does not keep its entity tag: {error}", part.target().display());
            }
            return;
        };
        if let Err(error) = part.set_modified(modified) {
            let reason =
                format!("{} does not get its time of modification: {error}", part.target().display());
            self.transfer.emit(&Event::Warning(Warning::Finished { reason }));
        }
    }

    /// Stores the complete file's origin with it, if a later run is to recognise the file.
    fn keep_origin(&self) {
        let part = self.pipeline.part();
        if let (Some(state), Some(url)) = (&self.description.file.state, self.job.urls.first())
            && self.job.options.existing.accept_complete
            && !part.is_stream()
            && let Err(error) = origin_tag::write_origin(part.file(), url, state)
        {
            tracing::info!("{} will not be recognised as complete: {error}", part.target().display());
        }
    }

    /// Returns the settings that may have limited the transfer.
    fn known_limits(&self, path_rate: Option<Rate>) -> KnownLimits {
        let (options, part) = (&self.job.options, self.pipeline.part());
        KnownLimits {
            path_rate,
            recv_buffer: options.transfer.client.recv_buffer,
            window_clamp: self.transfer.sources.iter().filter_map(SourceProgress::window_clamp).min(),
            limit_is_pace: is_of_pace(options.transfer.limit.as_ref(), options.transfer.pace),
            limit_is_farms: options.transfer.limit.as_ref().is_some_and(RateLimit::is_farms),
            to_pipe: part.is_stream() && part.file().metadata().is_ok_and(|output| !output.is_file()),
            ..KnownLimits::default()
        }
    }

    /// Stores the measurements of the path.
    fn remember(&self, facts: &PathFacts) {
        let pipeline = self.pipeline;
        let received = pipeline.written() - pipeline.resumed();
        // A fixed pace that the server states hides the rate of the path.
        let is_fixed = self.description.path.pace.is_some_and(|pace| pace.rate().is_some());
        let found = facts.tuned.or_else(|| self.found_by_server(facts, received)).filter(|_| !is_fixed);
        let window = facts.rwin.unwrap_or_default();
        let known = found.zip(self.description.path.endpoint.clone()).map(|(found, endpoint)| {
            let path = KnownPath::new(endpoint, found, pipeline.pool().usage().capacity(), window);
            if self.description.path.pace.is_some() { path.paced() } else { path }
        });
        // Both hosts of a redirect count.
        let corrected = self.description.path.corrected.clone();
        corrected
            .into_iter()
            .chain(known)
            .for_each(|path| self.paths.keep(path, &|event| self.transfer.emit(event)));
    }

    /// Returns the measurements of a path whose server paces its sending; `None` if the transfer
    /// ended before they were reliable.
    fn found_by_server(&self, facts: &PathFacts, received: Bytes) -> Option<Remembered> {
        let options = &self.job.options;
        // During slow start the best second is far above the mean.
        let level = received >= facts.best.bytes_in(facts.flowing / 2);
        let alone = options.transfer.pace == Pace::Auto
            && self.description.path.pace.is_some()
            && facts.streams == 1
            && options.transfer.limit.as_ref().and_then(RateLimit::rate).is_none();
        let found = Remembered { rtt: facts.rtt?, rate: facts.best, streams: 1 };
        (alone && level && facts.flowing >= LEVEL_FOR).then_some(found)
    }
}
