//! The files of an interrupted transfer.

use std::fs;

use super::{File, Get, Server, get, partial_files};

/// The exact files of an interrupted transfer of `f`.
#[derive(PartialEq)]
pub(crate) struct PartialFiles {
    part: Vec<u8>,
    journal: Vec<u8>,
}

impl PartialFiles {
    /// Reads the files of a run.
    pub(crate) fn of(run: &Get) -> Self {
        let read = |name| fs::read(run.path(name)).unwrap();
        Self { part: read("f.longhaul-part"), journal: read("f.longhaul-journal") }
    }

    /// Fails unless the files are unchanged, and the final name does not exist.
    #[track_caller]
    pub(crate) fn is_kept(&self, run: &Get) {
        assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
        let now = Self::of(run);
        assert!(now.part == self.part, "the partial file has changed");
        assert!(now.journal == self.journal, "{}", String::from_utf8_lossy(&now.journal));
        assert!(!run.path("f").exists());
    }

    /// Copies the files to another run's directory.
    pub(crate) fn put_into(&self, run: &Get) {
        fs::write(run.path("f.longhaul-part"), &self.part).unwrap();
        fs::write(run.path("f.longhaul-journal"), &self.journal).unwrap();
    }
}

/// Fetches the first third of `file` to `f`, and keeps it with its journal; the server still truncates.
pub(crate) fn partial(file: &File) -> (Get, Server) {
    partial_with(&[], file)
}

/// Like [`partial`], with additional arguments.
pub(crate) fn partial_with(args: &[&str], file: &File) -> (Get, Server) {
    let served = file.clone();
    let server = Server::new(move |peer| {
        let Some(request) = peer.read_request() else { return };
        let (head, body) = served.answer(&request);
        peer.send(head);
        peer.send(&body[..body.len() / 3]);
        peer.close();
    });
    let run = get().args(args).args(["--retries", "0", "-o", "f", &server.url("/f")]);
    run.run().fails(75, &["closed the connection early"]);
    assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    (run, server)
}
