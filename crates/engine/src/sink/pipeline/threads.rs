//! The threads of a pipeline: they write, hash and commit.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};

use crossbeam_channel::Receiver;
use longhaul_core::failure::Failure;

use super::{Pipeline, QueuedSegment};
use crate::sink::output_error::OutputError;
use crate::sink::segment_pool::Segment;
use crate::sink::writer::Writer;
use crate::threads::{named, not_started};

/// The threads of a pipeline.
#[derive(Debug)]
#[must_use = "the last pieces are on the disk only after `end`"]
pub struct Running<'scope> {
    pipeline: &'scope Pipeline,
    writers: Vec<ScopedJoinHandle<'scope, ()>>,
    committer: Option<ScopedJoinHandle<'scope, ()>>,
    hasher: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Pipeline {
    /// Starts the writers, and the thread that commits; `fail` is called with each failure,
    /// including panics.
    ///
    /// After a failure segments are still taken and freed, so that no receiver blocks.
    pub fn start<'scope, 'env: 'scope>(
        &'scope self,
        threads: &'scope Scope<'scope, 'env>,
        writer: &Arc<dyn Writer>,
        segments: &Receiver<QueuedSegment>,
        fail: &'scope (dyn Fn(OutputError) + Sync),
    ) -> Running<'scope> {
        self.checkpoint.begin();
        let committer = self.journal.as_ref().and_then(|_| {
            // Opened before the first write, so that this descriptor reports every write-back
            // error.
            let file = self.part.reopen();
            let commit = move || self.commit(file, fail);
            let started = named("checkpoint").spawn_scoped(threads, commit);
            started.map_err(|error| self.fail(not_started("the journal", &error).into(), fail)).ok()
        });
        let start = |_| {
            let (writer, segments) = (Arc::clone(writer), segments.clone());
            let write = move || self.cpu.count(|| self.write_all(&segments, writer.as_ref(), fail));
            let started = named("writer").spawn_scoped(threads, write);
            started.map_err(|error| self.fail(not_started("the writer", &error).into(), fail)).ok()
        };
        let writers: Vec<_> = (0..writer.threads()).filter_map(start).collect();
        let hasher = self.start_hasher(threads, writers.len());
        Running { pipeline: self, writers, committer, hasher }
    }

    /// Starts the thread that hashes behind the writers; without that thread, the file is read at
    /// the end.
    fn start_hasher<'scope>(
        &'scope self,
        threads: &'scope Scope<'scope, '_>,
        writers: usize,
    ) -> Option<ScopedJoinHandle<'scope, ()>> {
        let follower = &self.follower;
        // A stream is hashed by its writer, because it cannot be read again.
        if self.part.is_stream() || !follower.has_work_behind_writers(&self.checkpoint.ranges()) {
            return None;
        }
        let round = follower.begin();
        let hash = move || {
            let _round = round;
            // A separate file description, to which alone the advice to the kernel applies.
            let file = self.part.reopen();
            // If no segment waits for a writer, the device is idle.
            let is_idle = || self.backlog.count() <= writers;
            let follow = |file| follower.run(&file, || self.checkpoint.ranges(), is_idle);
            if let Err(error) = file.and_then(|file| self.cpu.count(|| follow(file))) {
                tracing::warn!("{} is hashed at its end: {error}", self.part.path().display());
            }
        };
        let started = named("hasher").spawn_scoped(threads, hash);
        started.inspect_err(|error| tracing::warn!("the file is hashed at its end: {error}")).ok()
    }

    /// Commits written ranges until [`Running::end`].
    fn commit(&self, file: io::Result<File>, fail: &dyn Fn(OutputError)) {
        let run = || file.and_then(|file| self.checkpoint.run(&file, |committed| self.store(committed)));
        let error = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => return,
            Ok(Err(source)) => self.journal_failed("commit to", source),
            Err(_) => Failure::panicked("the thread that commits to the journal").into(),
        };
        self.fail(error, fail);
    }

    /// Writes segments until every [`Inlet`] is dropped.
    fn write_all(&self, segments: &Receiver<QueuedSegment>, writer: &dyn Writer, fail: &dyn Fn(OutputError)) {
        for QueuedSegment { segment, epoch } in segments {
            if self.backlog.has_failed() || !self.write(&segment, writer, fail) {
                drop(segment);
            } else {
                let range = segment.range();
                if self.part.is_stream() {
                    self.follower.hash_next(segment.data());
                    drop(segment);
                } else {
                    self.follower.offer(segment, || self.pool.usage());
                }
                self.checkpoint.wrote(range);
            }
            self.backlog.remove(epoch);
        }
    }

    /// Writes a segment; returns whether the write succeeded.
    fn write(&self, segment: &Segment, writer: &dyn Writer, fail: &dyn Fn(OutputError)) -> bool {
        let range = segment.range();
        // Checked before each write, which would extend a truncated file again.
        let checked = self.check_length(self.least_length()).and_then(|()| self.check_room(range));
        if let Err(error) = checked {
            self.checkpoint.write_failed();
            self.fail(error, fail);
            return false;
        }
        let write = || {
            self.pool.writing(|| writer.write(range.start(), segment.data()))?;
            if let Some(tree) = &self.follower.tree {
                tree.add(range.start(), segment.data());
            }
            Ok(())
        };
        let error = match catch_unwind(AssertUnwindSafe(write)) {
            Ok(Ok(())) => return true,
            Ok(Err(source)) => {
                OutputError::Write { operation: "write", path: self.part.path().to_owned(), source }
            }
            Err(_) => Failure::panicked("a writer").into(),
        };
        self.checkpoint.write_failed();
        self.fail(error, fail);
        false
    }

    fn fail(&self, error: OutputError, fail: &dyn Fn(OutputError)) {
        self.backlog.fail();
        fail(error);
    }
}

impl Running<'_> {
    /// Waits until all segments are written and committed; every [`Inlet`](super::Inlet) must be
    /// dropped.
    pub fn end(self) {
        let Self { pipeline, writers, committer, hasher } = self;
        let join = |thread: ScopedJoinHandle<'_, ()>| {
            if thread.join().is_err() {
                pipeline.backlog.fail();
            }
        };
        writers.into_iter().for_each(join);
        pipeline.checkpoint.end();
        pipeline.follower.end();
        committer.into_iter().chain(hasher).for_each(join);
    }
}
