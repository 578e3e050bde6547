//! What is remembered of paths: read once, as a transfer begins, and renewed at its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::path_memory::{self, KnownPath, MemoryError, Paths};
use longhaul_core::event::{Event, Warning};

/// The paths that a transfer knows of.
pub(crate) struct KnownPaths {
    /// `None` where nothing is to be kept, or can be.
    file: Option<PathBuf>,
    paths: Arc<Paths>,
}

impl KnownPaths {
    /// Reads what is remembered; where that cannot be, the user is told, and nothing is known.
    pub(crate) fn read(file: Option<&Path>, emit: &dyn Fn(&Event)) -> Self {
        let Some(file) = file else { return Self { file: None, paths: Arc::default() } };
        match Paths::read(file) {
            Ok(paths) => Self { file: Some(file.to_owned()), paths: Arc::new(paths) },
            Err(error) => {
                tell(&error, emit);
                // A damaged file is replaced; what else is wrong would only be told once more.
                let file = matches!(error, MemoryError::Damaged { .. }).then(|| file.to_owned());
                Self { file, paths: Arc::default() }
            }
        }
    }

    /// Returns what earlier transfers have found.
    pub(crate) fn paths(&self) -> Arc<Paths> {
        Arc::clone(&self.paths)
    }

    /// Keeps `path` for the next transfer; where that cannot be, the user is told.
    pub(crate) fn keep(&self, path: KnownPath, emit: &dyn Fn(&Event)) {
        if let Some(Err(error)) = self.file.as_deref().map(|file| path_memory::keep(file, path)) {
            tell(&error, emit);
        }
    }
}

fn tell(error: &MemoryError, emit: &dyn Fn(&Event)) {
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
    fn what_cannot_be_read_is_told_once_and_replaced_only_where_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths.json");
        let url: Url = "http://h/".parse().unwrap();
        let endpoint = Endpoint::of(&url).unwrap();
        let (rtt, rate) = (Rtt::new(Duration::from_millis(100)), Rate::bits_per_sec(1_000_000_000));
        let found = Remembered { rtt, rate, streams: 1 };
        let path = KnownPath::new(Endpoint::of(&url).unwrap(), found, Bytes::mib(64), Bytes::mib(20));
        for (text, is_kept) in [("{", true), (r#"{"version":7}"#, false)] {
            fs::write(&file, text).unwrap();
            let told = Cell::new(0);
            let emit = |_: &Event| told.set(told.get() + 1);
            let memory = KnownPaths::read(Some(&file), &emit);
            assert_eq!(memory.paths().to(&endpoint), None);
            memory.keep(path.clone(), &emit);
            assert_eq!(told.get(), 1, "{text}");
            let after = KnownPaths::read(Some(&file), &emit);
            assert_eq!(after.paths().to(&endpoint), is_kept.then_some(&path), "{text}");
        }
    }
}
