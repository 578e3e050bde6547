//! The paths measured by earlier transfers: read at the start of a transfer, updated at its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::path_memory::{self, KnownPath, MemoryError, Paths};
use longhaul_core::event::{Event, Warning};

/// The paths available to a transfer.
pub(crate) struct KnownPaths {
    /// `None` if paths are not to be stored or cannot be.
    file: Option<PathBuf>,
    paths: Arc<Paths>,
}

impl KnownPaths {
    /// Reads the stored paths; on failure emits a warning and returns none.
    pub(crate) fn read(file: Option<&Path>, emit: &dyn Fn(&Event)) -> Self {
        let Some(file) = file else { return Self { file: None, paths: Arc::default() } };
        match Paths::read(file) {
            Ok(paths) => Self { file: Some(file.to_owned()), paths: Arc::new(paths) },
            Err(error) => {
                warn(&error, emit);
                // A damaged file is replaced. On any other error, a write would only repeat the
                // warning.
                let file = matches!(error, MemoryError::Damaged { .. }).then(|| file.to_owned());
                Self { file, paths: Arc::default() }
            }
        }
    }

    /// Returns the paths as read at the start.
    pub(crate) fn paths(&self) -> Arc<Paths> {
        Arc::clone(&self.paths)
    }

    /// Stores `path` for the next transfer; emits a warning on failure.
    pub(crate) fn keep(&self, path: KnownPath, emit: &dyn Fn(&Event)) {
        if let Some(Err(error)) = self.file.as_deref().map(|file| path_memory::keep(file, path)) {
            warn(&error, emit);
        }
    }
}

fn warn(error: &MemoryError, emit: &dyn Fn(&Event)) {
    emit(&Event::Warning(Warning::NoMemory { reason: error.to_string() }));
}
