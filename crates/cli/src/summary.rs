//! How a transfer went, whichever way the bytes moved.

use std::path::Path;
use std::time::Duration;

use longhaul_core::advice::Finding;
use longhaul_core::checksum::Checksum;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::job::Outcome;
use longhaul_engine::upload::PutOutcome;

use crate::say;

/// What is told of a transfer that is complete.
pub(crate) struct Summary<'a> {
    /// The file on this host.
    pub(crate) path: &'a Path,
    pub(crate) size: Bytes,
    pub(crate) resumed: Bytes,
    pub(crate) time: Duration,
    pub(crate) goodput: Rate,
    pub(crate) streams: usize,
    /// Only the sender counts these.
    pub(crate) retransmits: Option<u64>,
    /// Only the receiver counts these.
    pub(crate) out_of_order: Option<u64>,
    pub(crate) digest: Option<&'a Checksum>,
    pub(crate) finding: &'a Finding,
}

impl Summary<'_> {
    /// Says it to whoever looks at a terminal; `name` is what has come to be.
    pub(crate) fn say(&self, name: &str) {
        let Self { size, resumed, time, goodput, finding, .. } = self;
        let were_there =
            if *resumed > Bytes::ZERO { format!(" ({resumed} were there)") } else { String::new() };
        say::line(format_args!(
            "{name}: {size}{were_there} in {:.1} s, {goodput}, limited by {}",
            time.as_secs_f64(),
            finding.limit
        ));
        finding.advice.iter().for_each(|advice| say::line(format_args!("  {advice}")));
    }
}

impl<'a> From<&'a Outcome> for Summary<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        Self {
            path: &outcome.path,
            size: outcome.size,
            resumed: outcome.resumed,
            time: outcome.time,
            goodput: outcome.goodput,
            streams: outcome.streams,
            retransmits: None,
            out_of_order: Some(outcome.out_of_order),
            digest: outcome.digest.as_ref(),
            finding: &outcome.finding,
        }
    }
}

impl<'a> From<&'a PutOutcome> for Summary<'a> {
    fn from(outcome: &'a PutOutcome) -> Self {
        Self {
            path: &outcome.path,
            size: outcome.size,
            resumed: outcome.resumed,
            time: outcome.time,
            goodput: outcome.goodput,
            streams: 1,
            retransmits: Some(outcome.retransmits),
            out_of_order: None,
            digest: outcome.digest.as_ref(),
            finding: &outcome.finding,
        }
    }
}
