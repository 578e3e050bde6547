//! An opened job during its transfer: rounds until the file is verified and has its final name.

use std::sync::Arc;
use std::thread;

use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Done, Event};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::schedule::{Blocks, RangeScheduler};

use super::monitor::{FetchMonitor, PathFacts};
use super::request::{Expected, Job};
use super::verify::{Verification, Verifier};
use super::{BLOCK_ALIGNMENT, joining_mirrors};
use crate::cancel::Cancel;
use crate::known_paths::KnownPaths;
use crate::sink::output_error::OutputError;
use crate::sink::pages::PageCounter;
use crate::sink::pipeline::Pipeline;
use crate::source::{Description, Source};
use crate::streams::{CountControl, Starter, StreamSet};
use crate::transfer::error::TransferError;
use crate::transfer::{Receiving, Round, RoundEnd, SourceLiveness, TransferProgress};

/// An opened job during its transfer.
pub(super) struct Fetch<'a> {
    pub(super) job: &'a Job,
    pub(super) transfer: &'a TransferProgress<'a>,
    pub(super) pipeline: &'a Pipeline,
    pub(super) monitor: &'a FetchMonitor<'a>,
    pub(super) sources: Vec<&'a dyn Source>,
    /// The index of the source that described the file.
    pub(super) primary: usize,
    pub(super) description: Description,
    pub(super) expected: Expected,
    pub(super) paths: &'a KnownPaths,
    /// Whether an existing file of the final name may be replaced.
    pub(super) replace: bool,
}

/// What a round fetches, and by which streams.
pub(super) struct RoundPlan {
    /// The control of the number of the primary source's streams. `None` after the first round:
    /// each source then has one stream.
    pub(super) control: Option<CountControl>,
    /// What is to be fetched; in the first round except the range that is requested already.
    pub(super) scheduler: RangeScheduler,
    /// Counts the cached pages of the output file, if no sampler does.
    pub(super) pages: Option<PageCounter>,
}

impl<'a> Fetch<'a> {
    /// Runs the streams, verifies the file, and gives it its final name.
    ///
    /// `stop` is raised by `cancel`, the user's flag, and by any permanent failure.
    pub(super) fn run(&self, plan: RoundPlan, stop: &Cancel, cancel: &Cancel) -> Result<Done, TransferError> {
        let pipeline = self.pipeline;
        let fetched = self.fetch_and_verify(plan, stop, cancel);
        let (facts, digest) = fetched.inspect_err(|_| {
            if pipeline.part().is_slice() {
                pipeline.keep_slice();
                // Others may have completed the file before the last write, which changed its time.
                self.keep_time();
            } else if !pipeline.is_resumable() {
                // The partial file is kept only if the next run can use it.
                pipeline.part().abandon();
            }
        })?;
        self.finish(&facts, digest)
    }

    /// Fetches the file; fetches wrong bytes again from other sources.
    fn fetch_and_verify(
        &self,
        plan: RoundPlan,
        stop: &Cancel,
        cancel: &Cancel,
    ) -> Result<(PathFacts, Option<Checksum>), TransferError> {
        let mut verifier = Verifier::new(self, cancel);
        let joinable =
            plan.control.as_ref().is_some_and(CountControl::is_controlled) || self.sources.len() > 1;
        let (mut facts, _) = self.run_round(plan, &verifier, stop, cancel)?;
        loop {
            let (wrong, error) = match verifier.verify()? {
                Verification::Correct(digest) => return Ok((facts, digest)),
                Verification::FetchAgain(wrong, error) => (wrong, error),
            };
            let blocks = Blocks::new(wrong.iter().collect(), 1, joinable, BLOCK_ALIGNMENT);
            let plan = RoundPlan { control: None, scheduler: RangeScheduler::new(blocks), pages: None };
            let (again, is_complete) = self.run_round(plan, &verifier, stop, cancel)?;
            // The first round's facts describe the transfer.
            facts.out_of_order = again.out_of_order;
            // No remaining source can deliver the ranges.
            if !is_complete {
                return Err(error);
            }
        }
    }

    /// Runs one round, and the threads that write what it fetches; returns whether all of it was
    /// fetched.
    fn run_round(
        &self,
        plan: RoundPlan,
        verifier: &Verifier<'_>,
        stop: &Cancel,
        cancel: &Cancel,
    ) -> Result<(PathFacts, bool), TransferError> {
        let RoundPlan { control, scheduler, pages } = plan;
        let is_first = control.is_some();
        let schedule = self.transfer.schedule(scheduler, !is_first);
        let end = RoundEnd::new(stop.clone());
        let fail = |error: OutputError| end.fail(error.into());
        let (inlet, segments) = self.pipeline.inlet();
        let facts = thread::scope(|threads| {
            let mut running = None;
            let write = || match self.pipeline.prepare() {
                Ok(writer) => {
                    if is_first {
                        self.report_opened(writer.name());
                    }
                    running = Some(self.pipeline.start(threads, &writer, &segments, &fail));
                }
                Err(error) => end.fail(error.into()),
            };
            let facts = {
                let (schedule, options) = (Arc::clone(&schedule), &self.job.options.transfer);
                let round = Round::<Receiving>::new(self.transfer, &end, schedule, options, inlet);
                self.run_streams(&round, control, verifier, pages, write)
            };
            // The writers end with the round, which has their inlet.
            if let Some(running) = running {
                running.end();
            }
            facts
        });
        let is_complete = schedule.is_done();
        self.check_end(&end, is_complete, cancel)?;
        Ok((facts, is_complete))
    }

    /// Runs the streams of a round until nothing is left to fetch, or the round fails; calls
    /// `write` to start the writers.
    ///
    /// The streams start before the file is reserved. Reserving a large file takes time, and a
    /// socket that is not read meanwhile closes its window in the middle of slow start.
    fn run_streams<'r>(
        &'r self,
        round: &'r Round<'r>,
        control: Option<CountControl>,
        verifier: &Verifier<'_>,
        pages: Option<PageCounter>,
        write: impl FnOnce(),
    ) -> PathFacts {
        let is_first = control.is_some();
        let controlled = control.as_ref().is_none_or(CountControl::is_controlled);
        let sets: Vec<StreamSet<'r>> = (self.sources.iter().enumerate())
            .map(|(index, source)| StreamSet::new(round, *source, index, controlled || index != self.primary))
            .collect();
        let (alive, ended) = crossbeam_channel::bounded(0);
        thread::scope(|threads| {
            let starter = Starter { threads, alive };
            let is_other = |set: &&StreamSet<'_>| !(is_first && set.index == self.primary);
            let trusted = sets.iter().filter(|set| verifier.is_trusted(set.index)).filter(is_other);
            let (usable, unproved): (Vec<_>, Vec<_>) = trusted.partition(|set| set.progress().is_usable());
            // Counted before the primary's streams start: a primary that fails at once leaves its
            // work to the mirrors.
            unproved.iter().for_each(|_| round.running.set_joining(true));
            // Started before the mirrors: a mirror takes the absence of streams for the end of the
            // round.
            let tuner = control.and_then(|control| {
                sets[self.primary].progress().set_liveness(SourceLiveness::Usable);
                control.start(&sets[self.primary], starter.clone())
            });
            // In a later round, only sources that proved usable fetch.
            usable.into_iter().for_each(|set| set.set_count(1, &starter));
            unproved.into_iter().for_each(|set| joining_mirrors::start_joining(self, set, starter.clone()));
            drop(starter);
            write();
            let facts = self.monitor.watch(self.transfer, pages, &ended);
            PathFacts { tuned: tuner.and_then(|tuner| tuner.join().ok().flatten()), ..facts }
        })
    }

    fn report_opened(&self, writer: &'static str) {
        let pipeline = self.pipeline;
        let (path, size, resumed) =
            (pipeline.part().target().to_owned(), pipeline.size(), pipeline.resumed());
        let resumable = self.description.ranges.resumable;
        self.transfer.emit(&Event::Opened { path, size, resumed, resumable, writer: writer.into() });
    }

    /// Returns the reason if the streams ended before the file was complete.
    fn check_end(&self, end: &RoundEnd, is_complete: bool, cancel: &Cancel) -> Result<(), TransferError> {
        match end.take_error(is_complete) {
            // A user's interrupt also fails the write to a stream.
            Some(error)
                if !cancel.is_cancelled()
                    || !(is_interruption(&error) || self.pipeline.part().is_stream()) =>
            {
                Err(error)
            }
            None if !cancel.is_cancelled() => Ok(()),
            _ => Err(self.interrupted()),
        }
    }

    pub(super) fn interrupted(&self) -> TransferError {
        let pipeline = self.pipeline;
        // Without an identity, a change of the file could not be detected later.
        let message = if pipeline.is_resumable() {
            format!("interrupted; {} kept: run the same command to resume", pipeline.written())
        } else {
            "interrupted; nothing kept: this file cannot be resumed".to_owned()
        };
        Failure::new(FailureKind::Interrupted, message).into()
    }
}

fn is_interruption(error: &TransferError) -> bool {
    error.kind() == FailureKind::Interrupted
}
