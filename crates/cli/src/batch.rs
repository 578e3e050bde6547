//! The files of one command: concurrent transfers, each with its own result, and one exit code.

use std::convert::identity;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use longhaul_core::event::{JobId, JobTag};
use longhaul_core::failure::Failure;
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::tree::{WalkError, Walked};

use crate::session::CommandSession;
use crate::summary::Unchanged;
use crate::{exit, say};

/// Entries that a walk may list ahead of the transfers: listing overlaps transfers in bounded memory.
const WALKED_AHEAD: usize = 1024;

/// State shared by the files of a command.
pub(crate) struct Batch<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: CommandSession,
    pub(crate) cancel: &'a Cancel,
    /// Maximum of concurrent transfers.
    pub(crate) admission: JobAdmission,
}

/// The size of a completed file if known, or the exit code.
pub(crate) type FileResult = Result<Option<Bytes>, exit::Code>;

/// Returns the exit code of a stopped command; reports that the time limit was reached, if that is the reason.
fn interruption(cancel: &Cancel) -> exit::Code {
    let code = exit::of_stop(exit::INTERRUPTED, cancel);
    if code == exit::TEMPORARY {
        say::error("stopped: --max-time is over; run again for the rest");
    }
    code
}

/// Reports why a command has begun nothing; returns its exit code.
pub(crate) fn not_begun(error: impl Display, code: exit::Code, cancel: &Cancel) -> exit::Code {
    if exit::of_stop(code, cancel) != code {
        return interruption(cancel);
    }
    exit::said(error, code)
}

/// Returns whether a code is that of a stopped command.
fn is_stop(code: ExitCode) -> bool {
    [exit::INTERRUPTED, exit::TEMPORARY].into_iter().any(|stop| code == stop.into())
}

impl Batch<'_> {
    /// Transfers every file by `task`, which reports its result; ends the session.
    ///
    /// Returns the exit code of the first file that fails, or of an interruption.
    pub(crate) fn run<J: Send>(
        self,
        files: impl Iterator<Item = J> + Send,
        size_of: impl Fn(&J) -> Option<Bytes> + Sync,
        task: impl Fn(&CommandSession, JobId, J) -> FileResult + Sync,
    ) -> ExitCode {
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
                let result = run.map_or(Err(exit::SOFTWARE), identity);
                result.unwrap_or_else(|code| {
                    interrupted.fetch_or(code == exit::INTERRUPTED, Ordering::Relaxed);
                    let _ = first_failure.set(code);
                    None
                })
            },
        );
        session.end();
        // Files that were never started have no result.
        let stopped = interrupted.into_inner() || !all_started;
        let code = if stopped { Some(interruption(cancel)) } else { first_failure.into_inner() };
        code.map_or(ExitCode::SUCCESS, ExitCode::from)
    }

    /// Transfers the files of a walk that runs ahead on its own thread. An entry that the walk refuses fails like a file.
    pub(crate) fn run_walk<F: Send>(
        self,
        walk: impl Iterator<Item = Walked<F>> + Send,
        size_of: impl Fn(&F) -> Option<Bytes> + Sync,
        task: impl Fn(&CommandSession, JobId, F) -> FileResult + Sync,
    ) -> ExitCode {
        let cancel = self.cancel;
        thread::scope(|threads| {
            let (found, files) = sync_channel(WALKED_AHEAD);
            let walker =
                move || walk.map(|walked| found.send(walked)).take_while(Result::is_ok).for_each(drop);
            let walker = match thread::Builder::new().name("walk".into()).spawn_scoped(threads, walker) {
                Ok(walker) => walker,
                Err(error) => {
                    let message = format_args!("cannot start a thread for the walk: {error}");
                    return exit::said(message, exit::OS).into();
                }
            };
            let code = self.run(
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
                        let kind = |failure: &Failure| failure.kind;
                        session.run::<Unchanged, Failure>(&tag, |_| Err(failure), kind).map(|()| None)
                    }
                },
            );
            match walker.join() {
                Err(_) => exit::SOFTWARE.into(),
                // An interrupted walk ends without an error.
                Ok(()) if cancel.is_cancelled() && !is_stop(code) => interruption(cancel).into(),
                Ok(()) => code,
            }
        })
    }
}
