//! Who chooses the number of streams while a transfer runs.
//!
//! The choosers are pure (`core::tune`); here they are shown what was measured, and what they want is done.

mod apt;
mod auto;
mod meter;

use std::thread::{Scope, ScopedJoinHandle};

use longhaul_core::tune::apt::Apt;
use longhaul_core::tune::streams::{Remembered, StreamTuner};
use longhaul_core::units::{Bytes, Rtt};

use super::crew::Refusal;
use super::run::Foreman;
use super::shared::Shared;
use crate::threads::named;

/// The chooser of a transfer.
pub(super) enum Tuning {
    /// None: so many.
    Fixed(usize),
    /// Longhaul's own, on a path of this RTT.
    Auto {
        tuner: Box<StreamTuner>,
        rtt: Rtt,
        /// The only stream paces the server for now: until it gives that up, nobody else may come.
        wait: bool,
    },
    /// GridFTP-APT; no more than its first chunk may be claimed yet.
    Apt(Box<Apt>),
}

impl Tuning {
    /// Returns how many streams it begins with.
    pub(super) fn streams(&self) -> usize {
        match self {
            Self::Fixed(streams) => *streams,
            Self::Auto { wait: true, .. } => 1,
            Self::Auto { tuner, .. } => tuner.streams(),
            Self::Apt(tuner) => tuner.chunk().streams,
        }
    }

    /// Starts its thread, which returns what it has found the path to be.
    pub(super) fn start<'scope, 'env, 'a: 'scope>(
        self,
        threads: &'scope Scope<'scope, 'env>,
        foreman: Foreman<'scope, 'env, 'a>,
    ) -> Option<ScopedJoinHandle<'scope, Option<Remembered>>> {
        if matches!(self, Self::Fixed(_)) {
            return None;
        }
        let unbounded = Unbounded(foreman.shared());
        let run = move || {
            let _unbounded = unbounded;
            match self {
                Self::Fixed(_) => None,
                Self::Auto { tuner, rtt, .. } => auto::run(*tuner, rtt, &foreman),
                Self::Apt(tuner) => {
                    apt::run(*tuner, &foreman);
                    None
                }
            }
        };
        let started = named("tuner").spawn_scoped(threads, run);
        started
            .map_err(|error| tracing::warn!("the number of streams stays: cannot start a thread: {error}"))
            .ok()
    }
}

/// Does what a chooser wants; after a refusal blocks and segments are still planned for those that were refused.
fn obey(wanted: usize, refusal: Option<Refusal>, foreman: &Foreman<'_, '_, '_>) {
    if refusal.is_some() || wanted != foreman.shared().crew.staying() {
        foreman.want(wanted);
    }
}

/// Lets everything be claimed once nobody is there to say more, however that came about: streams that wait for that would wait
/// for ever.
struct Unbounded<'a>(&'a Shared<'a>);

impl Drop for Unbounded<'_> {
    fn drop(&mut self) {
        self.0.work.allow(Bytes::new(u64::MAX));
    }
}
