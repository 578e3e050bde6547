//! Wrong digests: the damaged part is found, named and fetched again, and never kept as valid.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::jobs::metalinks::{Entry, document};
use crate::support::{File, Get, Serve, Server, content, get, response};

const PIECE: usize = 1 << 20;
const SIZE: usize = (6 << 20) + 12345;

fn blake3(bytes: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(bytes).to_hex())
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", crate::support::sha256(bytes))
}

/// Flips a bit of the partial file `f` in each of these pieces.
fn damage(run: &Get, pieces: &[usize]) {
    let part = fs::File::options().read(true).write(true).open(run.path("f.longhaul-part")).unwrap();
    for piece in pieces {
        let (at, mut byte) = ((piece * PIECE + 777) as u64, [0]);
        part.read_exact_at(&mut byte, at).unwrap();
        part.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

/// The arguments of a fetch that compares a checksum.
fn fetch<'a>(sum: &'a str, url: &'a str) -> [&'a str; 6] {
    ["--json", "-o", "f", "--checksum", sum, url]
}

/// Creates a complete partial file with damaged pieces, by a run with a wrong checksum.
fn complete_and_damaged(url: &str, pieces: &[usize]) -> Get {
    let wrong = format!("blake3:{}", "0".repeat(64));
    let run = get().args(fetch(&wrong, url));
    run.run().fails(65, &[&wrong]);
    damage(&run, pieces);
    run
}

#[test]
fn only_damaged_pieces_are_fetched_again_from_serve() {
    let site = Serve::start();
    let bytes = content(SIZE, 31);
    site.file("f", &bytes);
    let (url, blake3, sha256) = (site.url("/f"), blake3(&bytes), sha256(&bytes));
    for (pieces, sum, args) in [
        (&[1, 2, 6][..], &blake3, &[][..]),
        (&[3], &sha256, &["--streams", "4"]),
        (&[3], &sha256, &["--verify", "disk"]),
        (&[3], &sha256, &["--writer", "buffered"]),
    ] {
        let run = complete_and_damaged(&url, pieces);
        let ended = run.again(fetch(sum, &url)).args(args).fetches(&bytes);
        let (named, ranges) = (
            ended.warnings(),
            match pieces.len() {
                1 => format!("bytes {}..{}", 3 * PIECE, 4 * PIECE),
                _ => format!("bytes {PIECE}..{}, {}..{SIZE} have other digests", 3 * PIECE, 6 * PIECE),
            },
        );
        assert!(named.contains(&ranges) && named.contains(&url), "{named}");
        assert_eq!(ended.done()["resumed"], SIZE);
    }
    // An error confirms the server's bytes if the checksum is wrong; with the right one nothing is
    // fetched.
    let last = if sha256.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{last}", &sha256[..sha256.len() - 1]);
    let run = get().args(fetch(&wrong, &url));
    run.run().fails(65, &["publishes the same digests"]);
    let ended = run.again(fetch(&blake3, &url)).fetches(&bytes);
    assert_eq!((ended.done()["resumed"].as_u64(), ended.warnings().as_str()), (Some(SIZE as u64), ""));
}

/// Serves `file` with `?metalink`, and flips a bit of piece 4 in the first `corruptions` responses
/// that contain it.
fn flipping(file: &File, document: String, corruptions: usize) -> (Server, Arc<AtomicUsize>) {
    let messages = Arc::new(AtomicUsize::new(0));
    let (file, count) = (file.clone(), messages.clone());
    let server = Server::replying(move |request| {
        if request.target.ends_with("?metalink") {
            return response("200 OK", &document).into();
        }
        let (head, body) = file.answer(request);
        let (start, end) = request.range(SIZE).filter(|_| file.ranges).unwrap_or((0, SIZE));
        let (mut body, at) = (body.to_vec(), 4 * PIECE + 5);
        if (start..end).contains(&at) && count.fetch_add(1, Ordering::SeqCst) < corruptions {
            body[at - start] ^= 1;
        }
        [head.as_bytes(), &body].concat()
    });
    (server, messages)
}

fn pieces(bytes: &[u8]) -> String {
    document(&[Entry::new("f").size(SIZE).pieces(bytes)])
}

fn with_metalink(bytes: &[u8]) -> File {
    let link = "Link: <?metalink>; rel=describedby; type=\"application/metalink4+xml\"\r\n";
    File { fields: link.to_owned(), ..File::new(bytes.to_vec()) }
}

fn requested(server: &Server) -> usize {
    let of_file = |request: &&crate::support::HttpRequest| !request.target.ends_with("?metalink");
    let length = |range: Option<(usize, usize)>| range.map_or(SIZE, |(start, end)| end - start);
    server.requests().iter().filter(of_file).map(|request| length(request.range(SIZE))).sum()
}

#[test]
fn bit_that_flips_in_flight_is_fetched_again_in_the_same_run() {
    let bytes = content(SIZE, 34);
    // A source without ranges sends the file again up to the wrong piece.
    for (sum, ranges) in [(blake3(&bytes), true), (sha256(&bytes), true), (sha256(&bytes), false)] {
        let (server, messages) = flipping(&File { ranges, ..with_metalink(&bytes) }, pieces(&bytes), 1);
        let ended = get().args(fetch(&sum, &server.url("/f"))).fetches(&bytes);
        assert!(ended.warnings().contains(&format!("bytes {}..{}", 4 * PIECE, 5 * PIECE)), "{ended:?}");
        assert_eq!(messages.load(Ordering::SeqCst), 2);
        assert!(!ranges || requested(&server) == SIZE + PIECE, "{:?}", server.requests());
    }
    // The digests are those of a metalink that names the file.
    for streams in ["1", "4"] {
        let (server, _) = flipping(&File::new(bytes.clone()), String::new(), 1);
        let entry = Entry::new("f").whole(&bytes).pieces(&bytes).urls(&[server.url("/f")]);
        let run = get().file("m.meta4", document(&[entry])).args(["--streams", streams, "m.meta4"]);
        let ended = run.fetches(&bytes);
        let range = format!("bytes {}..{} ", 4 * PIECE, 5 * PIECE);
        assert!(ended.stderr.contains(&range) && ended.stderr.contains("its metalink"), "{ended:?}");
    }
}

#[test]
fn source_that_keeps_sending_wrong_bytes_ends_with_65_and_their_ranges() {
    let bytes = content(SIZE, 35);
    let (server, messages) = flipping(&with_metalink(&bytes), pieces(&bytes), 3);
    let run = get().args(fetch(&blake3(&bytes), &server.url("/f")));
    let ranges = format!("bytes {}..{}", 4 * PIECE, 5 * PIECE);
    run.run().fails(65, &[&ranges, "fetched anew by the next run"]);
    assert_eq!(messages.load(Ordering::SeqCst), 3);
    assert!(!run.path("f").exists());
    let before = requested(&server);
    assert_eq!(run.fetches(&bytes).done()["resumed"], SIZE - PIECE);
    assert_eq!(requested(&server) - before, PIECE);
}

#[test]
fn unusable_digests_of_pieces_change_nothing() {
    let bytes = content(SIZE, 36);
    for document in [
        "no metalink".to_owned(),
        document(&[Entry::new("f").size(SIZE)]),
        document(&[Entry(format!(
            "<file name=\"f\"><size>1</size><pieces length=\"1\" type=\"md5\"><hash>{}</hash></pieces>",
            "0".repeat(32)
        ))]),
    ] {
        let (server, _) = flipping(&with_metalink(&bytes), document, usize::MAX);
        let run = get().args(["-o", "f", "--checksum", &blake3(&bytes), &server.url("/f")]);
        run.fails_unnamed(65, &["the next run with the same one fetches it anew"]);
    }
}

/// Without finer digests the whole file is fetched again, with a message.
#[test]
fn same_checksum_again_fetches_the_file_anew() {
    let bytes = content(SIZE, 37);
    let server = Server::of(File::new(bytes.clone()));
    let sum = sha256(&bytes);
    let run = complete_and_damaged(&server.url("/f"), &[0]);
    let run = run.again(fetch(&sum, &server.url("/f")));
    run.run().fails(65, &["f.longhaul-part", "fetches it anew"]);
    let ended = run.fetches(&bytes);
    assert!(ended.warnings().contains(&format!("does not have the checksum {sum}")), "{ended:?}");
    assert_eq!(ended.done()["resumed"], 0);
}

#[test]
fn digest_that_the_server_states_is_compared() {
    let bytes = content(SIZE, 38);
    let stating = |digest: &[u8]| {
        let fields = format!("Repr-Digest: blake3=:{}:\r\n", STANDARD.encode(digest));
        Server::of(File { fields, ..File::new(bytes.clone()) })
    };
    let right = stating(blake3::hash(&bytes).as_bytes());
    let run = get().args(["--json", "-o", "f", &right.url("/f")]);
    assert_eq!(run.run().ok().done()["digest"], blake3(&bytes));
    let wrong = stating(&[7; 32]);
    let run = get().args(["--json", "-o", "f", &wrong.url("/f")]);
    run.fails_unnamed(65, &["as its server states"]);
    // Fails again: the first error may have been the transfer's.
    let ended = run.run().fails(65, &["as its server states"]);
    assert!(ended.warnings().contains("does not have the checksum"), "{ended:?}");
    // The user's checksum takes precedence over the server's.
    let run = run.again(fetch(&blake3(&bytes), &wrong.url("/f")));
    assert_eq!(run.fetches(&bytes).done()["resumed"], SIZE);
}
