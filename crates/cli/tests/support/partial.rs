//! The files of an interrupted transfer.

use std::fs;
use std::path::Path;

use super::{File, Get, Server, get};

/// The exact files of an interrupted transfer of `f`.
#[derive(PartialEq)]
pub(crate) struct PartialFiles {
    part: Vec<u8>,
    journal: Vec<u8>,
}

impl PartialFiles {
    pub(crate) fn of(run: &Get) -> Self {
        let read = |name| fs::read(run.path(name)).unwrap();
        Self { part: read("f.longhaul-part"), journal: read("f.longhaul-journal") }
    }

    /// Fails unless the files are unchanged, and the final name does not exist.
    #[track_caller]
    pub(crate) fn is_kept(&self, run: &Get) {
        run.is_resumable();
        let now = Self::of(run);
        assert!(now.part == self.part, "the partial file has changed");
        assert!(now.journal == self.journal, "{}", String::from_utf8_lossy(&now.journal));
    }

    pub(crate) fn run(&self) -> Get {
        get().file("f.longhaul-part", &self.part).file("f.longhaul-journal", &self.journal)
    }
}

/// Returns whether the journal in the directory of `run` lists committed bytes.
pub(crate) fn has_committed(run: &Get) -> bool {
    has_committed_in(run.dir())
}

/// Returns whether the journal of an unfinished `f` in `directory` lists committed bytes.
pub(crate) fn has_committed_in(directory: &Path) -> bool {
    let journal = fs::read(directory.join("f.longhaul-journal")).ok();
    let journal = journal.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    journal.is_some_and(|journal| journal["committed"].as_array().is_some_and(|ranges| !ranges.is_empty()))
}

/// Fetches the first third of `file` to `f`, and keeps it with its journal; the server still
/// truncates.
pub(crate) fn partial(file: &File) -> (Get, Server) {
    partial_with(&[], file)
}

/// Like [`partial`], with additional arguments.
pub(crate) fn partial_with(args: &[&str], file: &File) -> (Get, Server) {
    let server = Server::closing(file, file.bytes.len() / 3, usize::MAX);
    let run = get().args(args).args(["--retries", "0", "-o", "f", &server.url("/f")]);
    run.fails_resumably(75, &["closed the connection early"]);
    (run, server)
}
