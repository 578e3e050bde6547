//! Retires a worker whose host fails at units that other hosts may complete.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The failed units, possibly by the host's fault, after which a worker that has received no file
/// retires. More would use up the attempts of units that other hosts can fetch.
const MAX_REFUSED_UNITS: u32 = 3;

/// What the files of a worker have shown of its host.
#[derive(Debug, Default)]
pub(crate) struct HostFitness {
    /// Whether a file was received, or was there.
    has_file: AtomicBool,
    /// The units that failed, possibly by the host's fault, before the worker received a file.
    refused_units: AtomicU32,
    is_retired: AtomicBool,
}

impl HostFitness {
    /// Notes that a file was received, or was there.
    pub(crate) fn note_file(&self) {
        self.has_file.store(true, Ordering::Relaxed);
    }

    /// Notes that a unit has failed by what may be this host's fault; retires after some without a
    /// file.
    pub(crate) fn note_refused_unit(&self) {
        if !self.has_file.load(Ordering::Relaxed)
            && self.refused_units.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REFUSED_UNITS
        {
            self.retire();
        }
    }

    /// Makes the worker claim no further unit.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Returns whether the worker claims no further unit.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }
}
