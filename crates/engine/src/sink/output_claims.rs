//! The output files of one command, each of which only one of its URLs may write.

use std::collections::HashSet;
use std::ffi::OsString;

use parking_lot::Mutex;

/// The place of a file, equal for all paths that resolve to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutputPlace {
    /// The device and inode of the directory.
    pub(super) directory: (u64, u64),
    /// The name in it; `None` until the server gives it.
    pub(super) name: Option<OsString>,
}

impl OutputPlace {
    /// Returns whether the name is known.
    pub fn is_named(&self) -> bool {
        self.name.is_some()
    }
}

/// The places that the files of a command have taken. They are never given back: a later file would
/// replace an earlier one, or be taken for it.
#[derive(Debug, Default)]
pub struct OutputClaims(Mutex<HashSet<OutputPlace>>);

impl OutputClaims {
    /// Takes a place; returns whether it was free.
    pub(super) fn take(&self, place: OutputPlace) -> bool {
        self.0.lock().insert(place)
    }
}
