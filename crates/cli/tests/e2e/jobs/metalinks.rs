//! Files described by a metalink.

use std::fmt::Write;
use std::fs;

use crate::get::mirrors::{NOWHERE, SHARED, asked, sharing};
use crate::support::{Ended, File, Get, Server, content, get, partial_files, same, site};

const PIECE: usize = 1 << 20;

fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// A `<file>` element under construction.
pub(crate) struct Entry(pub(crate) String);

impl Entry {
    pub(crate) fn new(name: &str) -> Self {
        Self(format!("<file name=\"{name}\">"))
    }

    pub(crate) fn size(mut self, size: usize) -> Self {
        let _ = write!(self.0, "<size>{size}</size>");
        self
    }

    pub(crate) fn whole(mut self, bytes: &[u8]) -> Self {
        let _ = write!(self.0, "<hash type=\"blake3\">{}</hash>", hex(bytes));
        self
    }

    pub(crate) fn pieces(mut self, bytes: &[u8]) -> Self {
        let _ = write!(self.0, "<pieces length=\"{PIECE}\" type=\"blake3\">");
        for piece in bytes.chunks(PIECE) {
            let _ = write!(self.0, "<hash>{}</hash>", hex(piece));
        }
        self.0.push_str("</pieces>");
        self
    }

    pub(crate) fn urls(mut self, urls: &[String]) -> Self {
        for (priority, url) in (1..).zip(urls) {
            let _ = write!(self.0, "<url priority=\"{priority}\">{url}</url>");
        }
        self
    }
}

pub(crate) fn document(entries: &[Entry]) -> String {
    let mut text = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">".to_owned();
    for Entry(entry) in entries {
        let _ = write!(text, "{entry}</file>");
    }
    text + "</metalink>"
}

/// Creates a run with this document in `m.meta4`.
fn with(document: impl AsRef<[u8]>) -> Get {
    let run = get().file("m.meta4", document);
    run.args(["m.meta4"])
}

/// Returns `bytes` with one wrong byte in the middle of each of these pieces.
fn damaged(bytes: &[u8], pieces: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    pieces.into_iter().for_each(|piece| bytes[piece * PIECE + PIECE / 2] ^= 1);
    bytes
}

#[test]
fn each_file_of_a_metalink_is_fetched_under_its_name() {
    let (server, _) = site(std::time::Duration::ZERO);
    let (one, two) = (content(5000, 1), content(70_000, 2));
    // Of these the first is named, and the other is none that can be fetched.
    let rsync = "rsync://x.test/f".to_owned();
    let run = with(document(&[
        Entry::new("a.bin").size(5000).whole(&one).urls(&[server.url("/5000/1")]),
        Entry::new("dir/b.bin").urls(&[NOWHERE.to_owned(), rsync, server.url("/70000/2")]),
    ]));
    let ended = run.run().ok();
    assert!(ended.stderr.contains(&format!("going on without {NOWHERE}")), "{ended:?}");
    same(run.path("a.bin"), &one);
    same(run.path("b.bin"), &two);
    for (output, path) in [("named", "named"), ("into/", "into/a")] {
        let text = document(&[Entry::new("a").whole(&one).urls(&[server.url("/5000/1")])]);
        let run = with(&text).args(["-o", output]);
        fs::create_dir(run.path("into")).unwrap();
        run.run().ok();
        same(run.path(path), &one);
    }
}

/// Fetches a file from two sources, of which the one at `liar` has wrong pieces; returns the end,
/// the liar's URL, and the number of bytes requested.
fn fetch_of_two(liar: usize, wrong: &[usize], with_pieces: bool) -> (Ended, String, usize) {
    let bytes = content(SHARED, 4);
    let mut files = [File::new(bytes.clone()), File::new(damaged(&bytes, wrong.iter().copied()))];
    if liar == 0 {
        files.reverse();
    }
    let servers = sharing(|_| files[0].clone(), &files[1]);
    let urls = servers.each_ref().map(|server| server.url("/f"));
    let entry = Entry::new("f").size(SHARED).whole(&bytes).urls(&urls);
    let run = with(document(&[if with_pieces { entry.pieces(&bytes) } else { entry }]));
    let ended = run.fetches(&bytes);

    assert!(asked(&servers[1]) > PIECE, "the second source shares the file: {ended:?}");
    let all = servers.iter().map(asked).sum();
    (ended, urls[liar].clone(), all)
}

#[test]
fn corrupt_pieces_of_a_mirror_are_named_and_fetched_again() {
    for liar in [0, 1] {
        // The second source begins at the 16th MiB.
        let (ended, url, requested) = fetch_of_two(liar, &[2, 7, 12, 16, 17, 22], true);
        let mut named = ended.stderr.lines().filter(|line| line.contains("another digest"));
        assert!(named.any(|line| line.contains(&url)), "{ended:?}");
        assert!(requested < SHARED + SHARED / 2 + PIECE, "{requested} bytes of {SHARED} requested");
    }
}

#[test]
fn corrupt_mirror_is_detected_by_the_file_digest() {
    let all: Vec<_> = (0..SHARED / PIECE).collect();
    for liar in [0, 1] {
        let (ended, url, _) = fetch_of_two(liar, &all, false);
        assert!(ended.stderr.contains(&format!("going on without {url}")), "{ended:?}");
    }
}

#[test]
fn unused_mirror_replaces_a_corrupt_first_source() {
    let bytes = content(3 * PIECE, 6);
    for with_pieces in [true, false] {
        for mirror_is_wrong in [false, true] {
            let wrong = damaged(&bytes, if mirror_is_wrong { 0..3 } else { 0..0 });
            let servers = [damaged(&bytes, [1]), wrong].map(|file| Server::of(File::new(file)));
            let entry =
                Entry::new("f").whole(&bytes).urls(&servers.each_ref().map(|server| server.url("/f")));
            let run = with(document(&[if with_pieces { entry.pieces(&bytes) } else { entry }]));
            if mirror_is_wrong {
                run.fails_unnamed(65, &[if with_pieces { "digest" } else { "checksum" }]);
            } else {
                run.fetches(&bytes);
            }
        }
    }
}

#[test]
fn mirror_of_another_size_is_not_used_for_wrong_pieces_either() {
    let bytes = content(3 * PIECE, 8);
    let liar = Server::of(File::new(damaged(&bytes, [1])));
    let longer = Server::of(File::new(content(4 * PIECE, 8)));
    let entry = Entry::new("f").whole(&bytes).pieces(&bytes).urls(&[liar.url("/f"), longer.url("/f")]);
    let run = with(document(&[entry]));
    run.fails_unnamed(65, &["1 pieces"]);
    // Only the wrong piece is fetched again.
    liar.mend(File::new(bytes.clone()));
    run.fetches(&bytes);
}

#[test]
fn wrong_size_and_pieces_that_do_not_cover_the_file_are_errors() {
    let server = Server::of(File::new(content(3 * PIECE, 11)));
    let run = with(document(&[Entry::new("f").size(6000).urls(&[server.url("/f")])]));
    run.run().fails(65, &["3145728 bytes", "6000"]);
    assert!(!run.path("f").exists() && partial_files(run.dir()).is_empty());
    for covered in [content(2 * PIECE, 11), content(5 * PIECE, 11)] {
        let run = with(document(&[Entry::new("f").pieces(&covered).urls(&[server.url("/f")])]));
        run.fails_unnamed(65, &["digest"]);
    }
}

#[test]
fn unusable_documents_are_refused_with_a_reason() {
    let url = "http://127.0.0.1:1/f";
    let entry = |name, url: &str| document(&[Entry::new(name).urls(&[url.to_owned()])]).into_bytes();
    let good = entry("f", url);
    let cases: [(Vec<u8>, &str); 6] = [
        (good[..good.len() - 12].into(), "cut off"),
        (entry("../x", url), "'../x'"),
        (document(&[Entry::new("f")]).into(), "no URL that can be fetched"),
        (document(&[]).into(), "names no file"),
        (vec![b' '; 100 << 20], "larger than"),
        (Vec::new(), "not a Metalink"),
    ];
    for (text, reason) in cases {
        let run = with(text);
        run.run().fails(64, &["m.meta4", reason]);
        assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 1, "{reason}");
    }
    get().args(["missing.meta4"]).run().fails(66, &["missing.meta4"]);
}
