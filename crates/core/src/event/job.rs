//! The job of an event, and the serialisation of both.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Event, Observer};
use crate::units::seconds;

/// The number of a job, unique in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(u64);

impl JobId {
    /// Creates a number.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number and the URL of a job, attached to each of its events. A clone copies no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTag {
    id: JobId,
    url: Arc<str>,
}

impl JobTag {
    /// Creates the tag of a job. `url` must hold no credentials, because it is printed and
    /// recorded.
    pub fn new(id: JobId, url: &str) -> Self {
        Self { id, url: url.into() }
    }

    /// Creates the tag of what belongs to no job, but to all of them.
    pub fn of_all() -> Self {
        Self::new(JobId::default(), "")
    }

    /// Returns the job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns the URL of the job's source, or in an upload of its destination, without secrets.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Passes the events of one job to an observer.
#[derive(Clone, Copy)]
pub struct JobObserver<'a> {
    job: &'a JobTag,
    observer: &'a dyn Observer,
}

impl<'a> JobObserver<'a> {
    /// Tags with `job` all events passed to `observer`.
    pub fn new(job: &'a JobTag, observer: &'a dyn Observer) -> Self {
        Self { job, observer }
    }

    /// Reports that `event` happened `at` this time since the job's start.
    pub fn on(&self, at: Duration, event: &Event) {
        self.observer.on(self.job, at, event);
    }
}

/// An event as serialised in a line of `--json` or of a record: `{"at": SECONDS, "job": N, "url":
/// "..", "event": "..", ...}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent<'a> {
    /// The time since the job's start.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// The number of the job; 0 in records of versions that ran a single job.
    #[serde(default)]
    pub job: JobId,
    /// The job's URL; `None` if an earlier line of the job has it, and of no job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// The event.
    #[serde(flatten)]
    pub event: Cow<'a, Event>,
}

impl<'a> JobEvent<'a> {
    /// Creates the line of an event with the job's URL.
    pub fn new(job: &'a JobTag, at: Duration, event: &'a Event) -> Self {
        let url = Some(&*job.url).filter(|url| !url.is_empty()).map(Cow::Borrowed);
        Self { at, job: job.id, url, event: Cow::Borrowed(event) }
    }
}
