//! What the jobs of a process share: HTTP clients with their idle connections, and the memory budget.
//!
//! ```no_run
//! use longhaul_core::event::{JobId, JobObserver, JobTag};
//! use longhaul_engine::cancel::Cancel;
//! use longhaul_engine::engine::Engine;
//! # fn example(job: longhaul_engine::job::Job) -> Result<(), longhaul_engine::job::TransferError> {
//! let engine = Engine::new();
//! let tag = JobTag { id: JobId(1), url: job.urls[0].to_string() };
//! let outcome = engine.run(&job, JobObserver::new(&tag, &()), &Cancel::new())?;
//! println!("{} at {}", outcome.path.display(), outcome.goodput);
//! # Ok(())
//! # }
//! ```

use longhaul_core::event::JobObserver;
use longhaul_core::units::Bytes;

use crate::cancel::Cancel;
use crate::job::{self, Job, Outcome, TransferError};
use crate::sink::ring::{AppBuffer, Growth, Ring};
use crate::source::http::Clients;

/// Runs jobs; several may run at once.
#[derive(Default)]
pub struct Engine {
    shared: Shared,
}

/// What the jobs of an engine share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) clients: Clients,
    budget: Growth,
}

impl Engine {
    /// Makes an engine without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fetches a file; returns once it is complete, verified and under its final name.
    ///
    /// # Errors
    /// [`TransferError`]. What was fetched is kept for the next run wherever the server lets that be safe; nothing ever
    /// stands half-written under the final name.
    pub fn run(
        &self,
        job: &Job,
        observer: JobObserver<'_>,
        cancel: &Cancel,
    ) -> Result<Outcome, TransferError> {
        job::run(&self.shared, job, observer, cancel)
    }
}

impl Shared {
    /// Makes the application buffer of a job from the process's budget.
    pub(crate) fn pool(&self, buffer: AppBuffer, segment: Option<Bytes>, streams: usize) -> Ring {
        Ring::sharing(self.budget.clone(), buffer, segment, streams)
    }
}
