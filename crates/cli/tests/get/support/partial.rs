//! A transfer that broke off, and what it has left on disk.

use std::fs;

use super::{File, Get, Server, get, partial_files};

/// What a broken transfer of `f` has left, byte for byte.
#[derive(PartialEq)]
pub(crate) struct Left {
    part: Vec<u8>,
    journal: Vec<u8>,
}

impl Left {
    /// Reads what is there.
    pub(crate) fn of(run: &Get) -> Self {
        let read = |name| fs::read(run.path(name)).unwrap();
        Self { part: read("f.longhaul-part"), journal: read("f.longhaul-journal") }
    }

    /// Fails unless the same bytes are there still, and nothing under the final name.
    #[track_caller]
    pub(crate) fn is_kept(&self, run: &Get) {
        assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
        let now = Self::of(run);
        assert!(now.part == self.part, "the partial file has changed");
        assert!(now.journal == self.journal, "{}", String::from_utf8_lossy(&now.journal));
        assert!(!run.path("f").exists());
    }

    /// Puts it into the directory of another run.
    pub(crate) fn put_into(&self, run: &Get) {
        fs::write(run.path("f.longhaul-part"), &self.part).unwrap();
        fs::write(run.path("f.longhaul-journal"), &self.journal).unwrap();
    }
}

/// Fetches the first third of `file` as `f`, and leaves it with its journal; the server has not been mended.
pub(crate) fn partial(file: &File) -> (Get, Server) {
    partial_with(&[], file)
}

/// Fetches the first third of `file` with further arguments.
pub(crate) fn partial_with(args: &[&str], file: &File) -> (Get, Server) {
    let served = file.clone();
    let server = Server::new(move |peer| {
        let Some(ask) = peer.ask() else { return };
        let (head, body) = served.answer(&ask);
        peer.send(head);
        peer.send(&body[..body.len() / 3]);
        peer.close();
    });
    let run = get().args(args).args(["--retries", "0", "-o", "f", &server.url("/f")]);
    run.run().fails(75, &["closed the connection early"]);
    assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    (run, server)
}
