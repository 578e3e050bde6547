//! The files of one command: concurrent transfers, each with its own result, and one exit code,
//! that of the first failure.

use std::convert::identity;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use longhaul_core::event::{JobId, JobTag};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::tree::{WalkError, Walked};

use crate::session::CommandSession;
use crate::{exit, say};

/// Entries that a walk may list ahead of the transfers: listing overlaps transfers in bounded
/// memory.
const WALKED_AHEAD: usize = 1024;

/// State shared by the files of a command.
pub(crate) struct Batch<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: CommandSession,
    pub(crate) cancel: &'a Cancel,
    /// Maximum of concurrent transfers.
    pub(crate) admission: JobAdmission,
}

/// The size of a completed file if known, or the kind of the failure, which has been printed.
pub(crate) type FileResult = Result<Option<Bytes>, FailureKind>;

/// The reason why a command ends before its files.
const TIME_IS_OVER: &str = "stopped: --max-time is over; run again for the rest";

/// Returns the kind of the failure of a stopped command; reports that the time limit was reached,
/// if that is the reason.
fn interruption(cancel: &Cancel) -> FailureKind {
    let kind = exit::of_stop(FailureKind::Interrupted, cancel);
    if kind == FailureKind::Temporary {
        say::error(TIME_IS_OVER);
    }
    kind
}

/// Makes the failure of a command that has begun nothing.
pub(crate) fn not_begun(failure: Failure, cancel: &Cancel) -> Failure {
    match exit::of_stop(failure.kind, cancel) {
        kind if kind != failure.kind => Failure::new(kind, TIME_IS_OVER),
        _ => failure,
    }
}

impl Batch<'_> {
    /// Transfers every file by `task`, which reports its result; ends the session.
    ///
    /// # Errors
    /// The first file that fails, or an interruption.
    pub(crate) fn run<J: Send>(
        self,
        files: impl Iterator<Item = J> + Send,
        size_of: impl Fn(&J) -> Option<Bytes> + Sync,
        task: impl Fn(&CommandSession, JobId, J) -> FileResult + Sync,
    ) -> Result<(), FailureKind> {
        let Self { engine, session, cancel, admission } = self;
        let (first_failure, interrupted) = (OnceLock::new(), AtomicBool::new(false));
        // Numbered in the order of the files: their tasks begin on several threads, in any order.
        let numbered = (1..).map(JobId::new).zip(files);
        let all_started = engine.run_each(
            numbered,
            |(_, file)| size_of(file),
            admission,
            cancel,
            |(job, file)| {
                // A failure of one file, even a panic, must not stop the others.
                let run = catch_unwind(AssertUnwindSafe(|| task(&session, job, file)));
                let result = run.map_or(Err(FailureKind::Internal), identity);
                result.unwrap_or_else(|kind| {
                    interrupted.fetch_or(kind == FailureKind::Interrupted, Ordering::Relaxed);
                    let _ = first_failure.set(kind);
                    None
                })
            },
        );
        session.end();
        // Files that were never started have no result.
        let stopped = interrupted.into_inner() || !all_started;
        let failure = if stopped { Some(interruption(cancel)) } else { first_failure.into_inner() };
        failure.map_or(Ok(()), Err)
    }

    /// Transfers the files of a walk that runs ahead on its own thread. An entry that the walk
    /// refuses fails like a file.
    pub(crate) fn run_walk<F: Send>(
        self,
        walk: impl Iterator<Item = Walked<F>> + Send,
        size_of: impl Fn(&F) -> Option<Bytes> + Sync,
        task: impl Fn(&CommandSession, JobId, F) -> FileResult + Sync,
    ) -> Result<(), FailureKind> {
        let cancel = self.cancel;
        thread::scope(|threads| {
            let (found, files) = sync_channel(WALKED_AHEAD);
            let walker =
                move || walk.map(|walked| found.send(walked)).take_while(Result::is_ok).for_each(drop);
            let walker = match thread::Builder::new().name("walk".into()).spawn_scoped(threads, walker) {
                Ok(walker) => walker,
                Err(error) => {
                    say::error(format_args!("cannot start a thread for the walk: {error}"));
                    return Err(FailureKind::Host);
                }
            };
            let end = self.run(
                files.into_iter(),
                |walked| walked.file().and_then(&size_of),
                |session, job, walked| match walked {
                    Walked::File(file) => task(session, job, file),
                    Walked::Skipped { what, why } => {
                        tracing::warn!("leaving out {what}: {why}");
                        Ok(None)
                    }
                    Walked::Failed(WalkError { what, failure }) => {
                        let tag = JobTag::new(job, &what);
                        session.run(&tag, |_| Err(failure), |failure: &Failure| failure.kind)
                    }
                },
            );
            match walker.join() {
                Err(_) => Err(FailureKind::Internal),
                // An interrupted walk ends without an error.
                Ok(())
                    if cancel.is_cancelled()
                        && !matches!(end, Err(FailureKind::Interrupted | FailureKind::Temporary)) =>
                {
                    Err(interruption(cancel))
                }
                Ok(()) => end,
            }
        })
    }
}
