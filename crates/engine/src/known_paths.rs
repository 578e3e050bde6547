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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::time::Duration;

    use longhaul_core::tune::streams::Remembered;
    use longhaul_core::units::{Bytes, Rate, Rtt};

    use url::Url;

    use super::*;
    use crate::path_memory::Endpoint;

    #[test]
    fn unreadable_memory_warns_once_and_only_a_damaged_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths.json");
        let url: Url = "http://h/".parse().unwrap();
        let endpoint = Endpoint::of(&url).unwrap();
        let (rtt, rate) = (Rtt::new(Duration::from_millis(100)), Rate::bits_per_sec(1_000_000_000));
        let found = Remembered { rtt, rate, streams: 1 };
        let path = KnownPath::new(Endpoint::of(&url).unwrap(), found, Bytes::mib(64), Bytes::mib(20));
        for (text, is_kept) in [("{", true), (r#"{"version":7}"#, false)] {
            fs::write(&file, text).unwrap();
            let warnings = Cell::new(0);
            let emit = |_: &Event| warnings.set(warnings.get() + 1);
            let memory = KnownPaths::read(Some(&file), &emit);
            assert_eq!(memory.paths().to(&endpoint), None);
            memory.keep(path.clone(), &emit);
            assert_eq!(warnings.get(), 1, "{text}");
            let after = KnownPaths::read(Some(&file), &emit);
            assert_eq!(after.paths().to(&endpoint), is_kept.then_some(&path), "{text}");
        }
    }
}
