//! What is remembered of servers that fail at ranges.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Origin;

use crate::source::http::http_source::first_answer::RangeFailure;

/// How long a server that failed at ranges gets no request for one.
const RANGELESS: Duration = Duration::from_secs(3600);
/// The most entries.
const MAX_SERVERS: usize = 1024;

/// The faults of servers, shared by clients.
#[derive(Default)]
pub(super) struct ServerFaults {
    /// The origins that failed at ranges, and when.
    rangeless: Mutex<HashMap<Origin, (RangeFailure, Instant)>>,
}

impl ServerFaults {
    pub(super) fn failed_at_range(&self, origin: Origin, failure: RangeFailure, now: Instant) {
        let mut rangeless = self.rangeless.lock();
        rangeless.retain(|_, (_, since)| now.duration_since(*since) < RANGELESS);
        if rangeless.len() < MAX_SERVERS {
            rangeless.insert(origin, (failure, now));
        }
    }

    /// Returns how an origin failed at ranges within the last hour.
    pub(super) fn range_failure(&self, origin: &Origin, now: Instant) -> Option<RangeFailure> {
        let (failure, since) = *self.rangeless.lock().get(origin)?;
        (now.duration_since(since) < RANGELESS).then_some(failure)
    }
}
