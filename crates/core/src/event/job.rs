//! Which job an event is of, and how the two are written together.

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
    /// Makes the number `n`.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What each event of a job is marked with. A clone copies no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobTag {
    id: JobId,
    url: Arc<str>,
}

impl JobTag {
    /// Makes the tag of a job; `url` must hold no login and no key, for it is printed and recorded.
    pub fn new(id: JobId, url: &str) -> Self {
        Self { id, url: url.into() }
    }

    /// Returns the job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns where the job's file is, or is sent to, without secrets.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// An observer of one job: what a job emits its events to.
#[derive(Clone, Copy)]
pub struct JobObserver<'a> {
    job: &'a JobTag,
    observer: &'a dyn Observer,
}

impl<'a> JobObserver<'a> {
    /// Marks with `job` what `observer` is called with.
    pub fn new(job: &'a JobTag, observer: &'a dyn Observer) -> Self {
        Self { job, observer }
    }

    /// Reports that `event` happened `at` this time since the job's start.
    pub fn on(&self, at: Duration, event: &Event) {
        self.observer.on(self.job, at, event);
    }
}

/// An event as it is serialised: a line of `--json`, a line of a record.
///
/// Written as one object: `{"at": SECONDS, "job": N, "url": "..", "event": "..", ...}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent<'a> {
    /// When, since the job's start.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// The job; 0 where it was written before there were several.
    #[serde(default)]
    pub job: JobId,
    /// The job's URL; `None` where an earlier line of the job has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Cow<'a, str>>,
    /// What happened.
    #[serde(flatten)]
    pub event: Cow<'a, Event>,
}

impl<'a> JobEvent<'a> {
    /// Makes the line of an event, URL included.
    pub fn new(job: &'a JobTag, at: Duration, event: &'a Event) -> Self {
        Self { at, job: job.id, url: Some(Cow::Borrowed(&job.url)), event: Cow::Borrowed(event) }
    }
}
