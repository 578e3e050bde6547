//! Files described by a metalink.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use crate::support::{File, Get, HttpRequest, Server, content, get, partial_files, same, site};

const PIECE: usize = 1 << 20;
const SIZE: usize = 24 * PIECE;
const RATE: usize = 8 << 20;

/// Returns the SHA-256 digest used by these tests.
fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// A `<file>` element under construction.
struct Entry(String);

impl Entry {
    fn new(name: &str) -> Self {
        Self(format!("<file name=\"{name}\">"))
    }

    fn size(mut self, size: usize) -> Self {
        let _ = write!(self.0, "<size>{size}</size>");
        self
    }

    fn whole(mut self, bytes: &[u8]) -> Self {
        let _ = write!(self.0, "<hash type=\"blake3\">{}</hash>", hex(bytes));
        self
    }

    fn pieces(mut self, bytes: &[u8]) -> Self {
        let _ = write!(self.0, "<pieces length=\"{PIECE}\" type=\"blake3\">");
        for piece in bytes.chunks(PIECE) {
            let _ = write!(self.0, "<hash>{}</hash>", hex(piece));
        }
        self.0.push_str("</pieces>");
        self
    }

    fn urls(mut self, urls: &[String]) -> Self {
        for (priority, url) in (1..).zip(urls) {
            let _ = write!(self.0, "<url priority=\"{priority}\">{url}</url>");
        }
        self
    }
}

fn document(entries: &[Entry]) -> String {
    let mut text = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">".to_owned();
    for Entry(entry) in entries {
        let _ = write!(text, "{entry}</file>");
    }
    text + "</metalink>"
}

/// Creates a run with this document in `m.meta4`.
fn with(document: impl AsRef<[u8]>) -> Get {
    let run = get();
    fs::write(run.path("m.meta4"), document).unwrap();
    run.args(["m.meta4"])
}

fn slow(bytes: &[u8]) -> Server {
    let file = File::new(bytes.to_vec());
    Server::new(move |peer| peer.serve_at(RATE, &file))
}

/// Returns `bytes` with one wrong byte in the middle of each of these pieces.
fn damaged(bytes: &[u8], pieces: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    pieces.into_iter().for_each(|piece| bytes[piece * PIECE + PIECE / 2] ^= 1);
    bytes
}

fn requested(server: &Server) -> usize {
    server.requests().iter().filter_map(|request| request.range(SIZE)).map(|(start, end)| end - start).sum()
}

#[test]
fn each_file_of_a_metalink_is_fetched_under_its_name() {
    let (server, _) = site(std::time::Duration::ZERO);
    let (one, two) = (content(5000, 1), content(70_000, 2));
    let run = with(document(&[
        Entry::new("a.bin").size(5000).whole(&one).urls(&[server.url("/5000/1")]),
        Entry::new("dir/b.bin").whole(&two).urls(&[server.url("/70000/2")]),
    ]));
    run.run().ok();
    same(run.path("a.bin"), &one);
    same(run.path("b.bin"), &two);
}

#[test]
fn output_names_a_file_or_a_directory() {
    let (server, _) = site(std::time::Duration::ZERO);
    let one = content(5000, 1);
    let text = document(&[Entry::new("a").whole(&one).urls(&[server.url("/5000/1")])]);
    let run = with(&text).args(["-o", "named"]);
    run.run().ok();
    same(run.path("named"), &one);
    let run = with(&text).args(["-o", "into/"]);
    fs::create_dir(run.path("into")).unwrap();
    run.run().ok();
    same(run.path("into/a"), &one);
}

#[test]
fn two_mirrors_with_a_digest_share_the_file() {
    let bytes = content(SIZE, 3);
    let (one, two) = (slow(&bytes), slow(&bytes));
    let run =
        with(document(&[Entry::new("f").size(SIZE).whole(&bytes).urls(&[one.url("/f"), two.url("/f")])]));
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(requested(&two) > SIZE / 4, "{} {ended:?}", requested(&two));
}

#[test]
fn corrupt_pieces_of_a_mirror_are_named_and_fetched_again() {
    let bytes = content(SIZE, 4);
    let lies = damaged(&bytes, (0..24).filter(|piece| piece % 5 == 2));
    for liar_first in [true, false] {
        let (honest, liar) = (slow(&bytes), slow(&lies));
        let urls = if liar_first { [&liar, &honest] } else { [&honest, &liar] };
        let run = with(document(&[Entry::new("f")
            .size(SIZE)
            .whole(&bytes)
            .pieces(&bytes)
            .urls(&urls.map(|server| server.url("/f")))]));
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        let named = ended.stderr.lines().filter(|line| line.contains("another digest"));
        assert!(named.clone().any(|line| line.contains(&liar.url("/f"))), "{ended:?}");
        let all = requested(&honest) + requested(&liar);
        assert!(all < SIZE + SIZE / 2 + (1 << 20), "{all} bytes of {SIZE} requested");
    }
}

/// The digests of file and pieces have sequential algorithms, and the only source sends wrong bytes once.
#[test]
fn corrupt_pieces_of_the_only_source_are_fetched_again() {
    let bytes = content(6 * PIECE, 13);
    let (right, wrong) = (File::new(bytes.clone()), File::new(damaged(&bytes, [2, 4])));
    for streams in ["1", "4"] {
        let (right, wrong) = (right.clone(), wrong.clone());
        let server = Server::new(move |peer| {
            // Repeated requests begin at these pieces.
            let again = |request: &HttpRequest| {
                request.range(6 * PIECE).is_some_and(|(start, _)| [2 * PIECE, 4 * PIECE].contains(&start))
            };
            peer.serve_with(
                |request| if again(&request) { right.answer(&request) } else { wrong.answer(&request) },
            );
        });
        let entry = Entry::new("f").whole(&bytes).pieces(&bytes).urls(&[server.url("/f")]);
        let run = with(document(&[entry])).args(["--streams", streams]);
        let ended = run.run().ok();
        let ranges = format!("bytes {}..{}, {}..{} ", 2 * PIECE, 3 * PIECE, 4 * PIECE, 5 * PIECE);
        assert!(ended.stderr.contains(&ranges) && ended.stderr.contains("its metalink"), "{ended:?}");
        same(run.path("f"), &bytes);
    }
}

#[test]
fn corrupt_mirror_is_detected_by_the_file_digest() {
    let bytes = content(SIZE, 5);
    let lies = damaged(&bytes, 0..24);
    for liar_first in [true, false] {
        let (honest, liar) = (slow(&bytes), slow(&lies));
        let urls = if liar_first { [&liar, &honest] } else { [&honest, &liar] };
        let urls = urls.map(|server| server.url("/f"));
        let run = with(document(&[Entry::new("f").size(SIZE).whole(&bytes).urls(&urls)]));
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        assert!(ended.stderr.contains(&format!("going on without {}", liar.url("/f"))), "{ended:?}");
    }
}

#[test]
fn unused_mirror_replaces_a_corrupt_first_source() {
    let bytes = content(3 * PIECE, 6);
    for with_pieces in [true, false] {
        let (honest, liar) =
            (Server::of(File::new(bytes.clone())), Server::of(File::new(damaged(&bytes, [1]))));
        let entry = Entry::new("f").whole(&bytes).urls(&[liar.url("/f"), honest.url("/f")]);
        let run = with(document(&[if with_pieces { entry.pieces(&bytes) } else { entry }]));
        run.run().ok();
        same(run.path("f"), &bytes);
    }
}

#[test]
fn transfer_fails_if_every_source_is_corrupt() {
    let bytes = content(3 * PIECE, 7);
    for with_pieces in [true, false] {
        let lies = [damaged(&bytes, [1]), damaged(&bytes, [0, 1, 2])];
        let servers = lies.map(|lie| Server::of(File::new(lie)));
        let urls = [servers[0].url("/f"), servers[1].url("/f")];
        let entry = Entry::new("f").whole(&bytes).urls(&urls);
        let run = with(document(&[if with_pieces { entry.pieces(&bytes) } else { entry }]));
        run.run().fails(65, &["digest"].map(|word| if with_pieces { word } else { "checksum" }));
        assert!(!run.path("f").exists());
    }
}

#[test]
fn mirror_of_another_size_is_not_used_for_wrong_pieces_either() {
    let bytes = content(3 * PIECE, 8);
    let liar = Server::of(File::new(damaged(&bytes, [1])));
    let longer = Server::of(File::new(content(4 * PIECE, 8)));
    let entry = Entry::new("f").whole(&bytes).pieces(&bytes).urls(&[liar.url("/f"), longer.url("/f")]);
    let run = with(document(&[entry]));
    run.run().fails(65, &["1 pieces"]);
    assert!(!run.path("f").exists());
    // Only the wrong piece is fetched again.
    liar.mend(File::new(bytes.clone()));
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn wrong_size_is_refused_before_anything_is_kept() {
    let bytes = content(5000, 9);
    let server = Server::of(File::new(bytes));
    let run = with(document(&[Entry::new("f").size(6000).urls(&[server.url("/f")])]));
    run.run().fails(65, &["5000 bytes", "6000"]);
    assert!(!run.path("f").exists() && partial_files(run.dir()).is_empty());
}

#[test]
fn document_without_hashes_or_size_gives_the_file() {
    let bytes = content(5000, 10);
    let server = Server::of(File::new(bytes.clone()));
    let run = with(document(&[Entry::new("f").urls(&[server.url("/x")])]));
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn pieces_that_do_not_cover_the_file_are_no_proof() {
    let bytes = content(3 * PIECE, 11);
    let server = Server::of(File::new(bytes.clone()));
    for covered in [content(2 * PIECE, 11), content(5 * PIECE, 11)] {
        let run = with(document(&[Entry::new("f").pieces(&covered).urls(&[server.url("/f")])]));
        run.run().fails(65, &["digest"]);
        assert!(!run.path("f").exists());
    }
}

#[test]
fn unusable_documents_are_refused_with_a_reason() {
    let url = "http://127.0.0.1:1/f".to_owned();
    let good = document(&[Entry::new("f").urls(std::slice::from_ref(&url))]);
    let rsync = "rsync://127.0.0.1/f".to_owned();
    let cases: [(Vec<u8>, &str); 8] = [
        (good[..good.len() - 12].into(), "cut off"),
        (document(&[Entry::new("../x").urls(std::slice::from_ref(&url))]).into(), "'../x'"),
        (document(&[Entry::new("/etc/x").urls(std::slice::from_ref(&url))]).into(), "'/etc/x'"),
        (document(&[Entry::new("f")]).into(), "no URL that can be fetched"),
        (document(&[Entry::new("f").urls(&[rsync])]).into(), "no URL that can be fetched"),
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

#[test]
fn first_url_that_is_down_is_named_and_the_next_is_used() {
    let bytes = Arc::new(content(5000, 12));
    let server = Server::of(File::new(bytes.to_vec()));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let down = format!("http://{closed}/f");
    let urls = [down.clone(), "rsync://x.test/f".to_owned(), server.url("/f")];
    let run = with(document(&[Entry::new("f").size(5000).whole(&bytes).urls(&urls)]));
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(ended.stderr.contains(&format!("going on without {down}")), "{ended:?}");
}
