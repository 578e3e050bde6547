//! Several sources of one file: `--mirror`, and duplicates that a server lists (RFC 6249).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::support::{Ended, File, Get, Nginx, Serve, Server, at_once, content, get, response, sha256};

const SIZE: usize = 4 << 20;
/// Larger than the first lease of 16 MiB before a mirror is verified: both sources have work.
pub(crate) const SHARED: usize = 40 << 20;
/// Bytes that each of two servers sends.
const SHARE: usize = SHARED / 4;
/// Maximum bytes fetched from a mirror for comparison.
const SAMPLE: usize = 64 << 10;

/// Two servers of one file. Neither sends more than 1 MiB of a response before the other was
/// verified, or more than its share before the other has sent as much. The first serves what
/// `first` returns for the second.
pub(crate) fn sharing(first: impl FnOnce(&Server) -> File, second: &File) -> [Server; 2] {
    let sent: Arc<[AtomicUsize; 2]> = Arc::default();
    let serve = |own: usize, file: File| {
        let sent = sent.clone();
        Server::new(move |peer| {
            while let Some(request) = peer.read_request() {
                let (head, body) = file.answer(&request);
                let is_sent = peer.send(head)
                    && body.chunks(SAMPLE).enumerate().all(|(number, piece)| {
                        let all = sent[own].fetch_add(piece.len(), Ordering::SeqCst);
                        let awaited = [0, 4 * SAMPLE, SHARE]
                            [usize::from(number > 15).max(2 * usize::from(all > SHARE))];
                        while sent[1 - own].load(Ordering::SeqCst) < awaited {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        peer.send(piece)
                    });
                if !is_sent {
                    return;
                }
            }
        })
    };
    let second = serve(1, second.clone());
    [serve(0, first(&second)), second]
}

fn refusing(status: &'static str) -> Server {
    Server::answering(response(status, ""))
}

/// A URL with a closed port.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:1/f";

/// Creates a fetch of `url` to `f`. A mirror is compared with bytes that are written: small
/// segments are written early.
fn fetch(url: &str) -> Get {
    get().args(["--segment", "64KiB", "--json", "-o", "f", url])
}

fn with_mirror(url: &str, mirror: &str) -> Get {
    fetch(url).args(["--mirror", mirror])
}

/// Fails unless a warning names `url` and contains `word`.
#[track_caller]
fn warns(ended: &Ended, url: &str, word: &str) {
    let warnings = ended.warnings();
    assert!(warnings.lines().any(|line| line.contains(url) && line.contains(word)), "{url}: {ended:?}");
}

/// Returns the number of bytes requested of a file of [`SHARED`].
pub(crate) fn asked(server: &Server) -> usize {
    let size = |range: Option<(usize, usize)>| range.map_or(SHARED, |(start, end)| end - start);
    server.requests().iter().map(|request| size(request.range(SHARED))).sum()
}

/// Returns a file that differs from `file` only beyond the compared beginning, in what each of two
/// servers sends.
fn wrong_at_the_end(file: &File) -> File {
    let mut bytes = file.bytes.to_vec();
    bytes[4 << 20..].iter_mut().for_each(|byte| *byte ^= 1);
    File::new(bytes)
}

fn checksum(file: &File) -> String {
    format!("sha256:{}", sha256(&file.bytes))
}

#[test]
fn login_is_sent_to_no_mirror() {
    let file = File::new(content(SHARED, 1));
    let [first, second] = sharing(|_| file.clone(), &file);
    let run = with_mirror(&first.url("/f"), &second.url("/f"));
    let headers = ["Cookie: c", "X-Api-Key: x", "Accept: y"].map(|header| ["-H", header]).concat();
    run.args(["--user", "ann:secret"]).args(headers).run().ok();
    let sends =
        |server: &Server, name: &str| server.requests().iter().any(|request| request.field(name).is_some());
    for secret in ["authorization", "cookie", "x-api-key"] {
        assert!(sends(&first, secret) && !sends(&second, secret), "{secret}");
    }
    assert!(sends(&second, "accept"));
}

#[test]
fn both_serve_the_file() {
    let file = File::new(content(SHARED, 1));
    let sum = checksum(&file);
    for args in [&[][..], &["--streams", "1"], &["--streams", "2"], &["--checksum", &sum]] {
        let [primary, mirror] = sharing(|_| file.clone(), &file);
        with_mirror(&primary.url("/f"), &mirror.url("/g")).args(args).fetches(&file.bytes);
    }
    // The whole file is requested at once only if a paced server is the only source.
    let paced = File { fields: "Longhaul-Pace: auto\r\n".to_owned(), ..file.clone() };
    let [primary, mirror] = sharing(|_| paced.clone(), &paced);
    let ended = with_mirror(&primary.url("/f"), &mirror.url("/g")).fetches(&file.bytes);
    assert!(asked(&primary) < SHARED / 8 * 7, "{} of {SHARED}: {ended:?}", asked(&primary));
}

/// The first URL sends the rest only after the mirror was dropped.
#[test]
fn a_mirror_of_no_use_is_named_and_dropped() {
    let file = File::new(content(SIZE, 2));
    let without_ranges = File { ranges: false, ..file.clone() };
    let without_validator = File { etag: None, ..file.clone() };
    for (mirror, word) in [
        (Some(refusing("404 None")), "404"),
        (Some(refusing("503 Busy")), "503"),
        (Some(Server::of(File::new(content(SIZE + 1, 2)))), "4194305 bytes, not 4194304"),
        (Some(Server::of(without_ranges)), "no ranges"),
        (Some(Server::of(without_validator)), "strong validator"),
        (Some(Server::of(File::new(content(SIZE, 3)))), "bytes differ"),
        (None, "refused"),
    ] {
        let (primary, gate) = Server::held(&file, SIZE / 4);
        let url = mirror.as_ref().map_or_else(|| NOWHERE.to_owned(), |mirror| mirror.url("/g"));
        let run = with_mirror(&primary.url("/f"), &url).args(["--retries", "0"]);
        let mut running = run.start();
        running.until_printed("\"event\":\"warning\"");
        gate.open();
        warns(&running.end().ok(), &url, word);
        run.fetched(&file.bytes);
        let asks = mirror.map_or_else(Vec::new, |mirror| mirror.requests());
        let is_sample =
            |range: Option<(usize, usize)>| range.is_none_or(|(start, end)| end - start <= SAMPLE);
        assert!(asks.len() <= 3 && asks.iter().all(|ask| is_sample(ask.range(SIZE))), "{word}: {asks:?}");
    }
}

/// The first server refuses, or accepts the connection and sends nothing.
#[test]
fn a_mirror_serves_where_the_first_url_does_not() {
    let file = File::new(content(SIZE, 6));
    let servers = [refusing("404 None"), refusing("403 No"), Server::silent()];
    let urls = servers.iter().map(|server| server.url("/f")).chain([NOWHERE.to_owned()]);
    at_once(urls, |primary| {
        let mirror = Server::of(file.clone());
        let run = with_mirror(&primary, &mirror.url("/g")).args(["--stall-timeout", "120s"]);
        warns(&run.fetches(&file.bytes), &primary, "");
    });
}

#[test]
fn mirror_continues_after_a_break_of_the_first_url() {
    let file = File::new(content(18 << 20, 7));
    // The break occurs at once, or after a part of the first response.
    for part in [0, 1000, 5_000_000] {
        let served = file.clone();
        let primary = Server::once(move |peer| peer.break_off(&served, part));
        let mirror = Server::of(file.clone());
        with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]).fetches(&file.bytes);
    }
}

#[test]
fn a_mirror_of_no_use_does_not_hide_why_the_first_url_failed() {
    let served = File::new(content(SIZE, 16));
    for mirror in [refusing("404 None"), Server::of(File::new(content(1000, 16)))] {
        let served = served.clone();
        let primary = Server::once(move |peer| peer.break_off(&served, 0));
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
        run.fails_unnamed(75, &["closed the connection early"]);
    }
}

#[test]
fn silent_mirror_delays_nothing() {
    let file = File::new(content(SHARED, 5));
    let (primary, silent) = (Server::of(file.clone()), Server::silent());
    let ended = with_mirror(&primary.url("/f"), &silent.url("/g")).fetches(&file.bytes);
    // The connection timeout is 30 s.
    assert!(ended.time < Duration::from_secs(20), "{:?}", ended.time);
}

/// A run that waited for the retry after a minute would count as hanging. The other source sends
/// the rest after the refusal.
#[test]
fn source_that_refuses_for_long_does_not_slow_the_other() {
    let file = File::new(content(SHARED, 7));
    for (requests, first_refuses) in [(0, true), (1, true), (1, false)] {
        let (other, refused) = Server::held(&file, 1 << 20);
        let (file, served, answered) = (file.clone(), file.clone(), AtomicUsize::new(0));
        let refusing = Server::replying(move |request| {
            if answered.fetch_add(1, Ordering::SeqCst) < requests {
                return served.response(request);
            }
            refused.open();
            response("429 Slow down\r\nRetry-After: 60", "").into()
        });
        let mut urls = [refusing.url("/f"), other.url("/f")];
        if !first_refuses {
            urls.reverse();
        }
        with_mirror(&urls[0], &urls[1]).fetches(&file.bytes);
    }
}

#[test]
fn real_mirror_replaces_a_killed_server() {
    let Some(nginx) = Nginx::start() else { return };
    let bytes = content(32 << 20, 9);
    nginx.file("f", &bytes);
    for serve_first in [true, false] {
        let serve = Serve::start();
        serve.file("f", &bytes);
        let mut urls = [serve.url("/f"), nginx.url("/f")];
        if !serve_first {
            urls.reverse();
        }
        let run = get().args(["--limit", "160Mbit", &urls[0], "--mirror", &urls[1]]);
        let mut running = run.start();
        let part = run.path("f.longhaul-part");
        running.until("some is written", || fs::metadata(&part).is_ok_and(|part| part.blocks() > 0));
        drop(serve);
        running.end().ok();
        run.fetched(&bytes);
    }
}

/// Parts of a file without ranges must not be combined with those of other sources.
#[test]
fn a_first_url_that_sends_one_answer_only_has_no_mirrors() {
    let file = File::new(content(1 << 20, 17));
    for first in [File { etag: None, ..file.clone() }, File { ranges: false, ..file.clone() }] {
        let (primary, mirror) = (Server::of(first), Server::of(file.clone()));
        let ended = with_mirror(&primary.url("/f"), &mirror.url("/g")).fetches(&file.bytes);
        warns(&ended, &mirror.url("/g"), "");
        assert_eq!(mirror.requests().len(), 0);
    }
}

#[test]
fn no_source_at_all() {
    let missing = refusing("404 None");
    let run = with_mirror(NOWHERE, &missing.url("/g"));
    run.run().fails(69, &["no source", "127.0.0.1:1", &missing.url("/g"), "404"]);
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
}

/// The mirror cannot replace data of the only source: the checksum error is reported, and the data
/// is kept.
#[test]
fn a_wrong_checksum_is_reported_though_a_mirror_is_down() {
    let file = File::new(content(600_000, 10));
    let (primary, wrong) = (Server::of(file), format!("sha256:{}", "0".repeat(64)));
    for mirror in [NOWHERE.to_owned(), refusing("404 None").url("/g")] {
        let run = with_mirror(&primary.url("/f"), &mirror).args(["--checksum", &wrong, "--retries", "0"]);
        run.fails_resumably(65, &["checksum", &wrong]);
    }
}

#[test]
fn interrupted_with_a_mirror_the_transfer_resumes_from_either() {
    let file = File::new(content(18 << 20, 11));
    // The break is in the first or in the third response: a mirror is described and compared first.
    let cut = |connections: usize| {
        let file = file.clone();
        Server::new(move |peer| {
            if peer.number < connections {
                peer.begin(&file, 2 << 20);
            }
            peer.close();
        })
    };
    let (primary, mirror) = (cut(1), cut(3));
    let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
    run.fails_resumably(75, &[]);
    mirror.mend(file.clone());
    let run = run.again(["--json", "-o", "f", &mirror.url("/g")]);
    assert!(run.fetches(&file.bytes).done()["resumed"].as_u64() > Some(0));
}

/// Returns the fields that list `duplicate`, and state the digest of `digested`.
fn listing(duplicate: &Server, digested: Option<&File>) -> String {
    let digest = digested.map_or_else(String::new, |file| {
        format!("Digest: SHA-256={}\r\n", STANDARD.encode(Sha256::digest(&file.bytes[..])))
    });
    format!("Link: <{}>; rel=duplicate\r\n{digest}", duplicate.url("/d"))
}

#[test]
fn a_duplicate_that_the_server_names_is_used_under_its_digest() {
    let file = File::new(content(SHARED, 12));
    let other = wrong_at_the_end(&file);
    for (named, streams) in [(&file, &[][..]), (&file, &["--streams", "2"]), (&other, &["--streams", "1"])] {
        let first = |duplicate: &Server| File { fields: listing(duplicate, Some(&file)), ..file.clone() };
        let [server, duplicate] = sharing(first, named);
        let run = fetch(&server.url("/f")).args(streams);
        let ended = run.fetches(&file.bytes);
        assert_eq!(ended.done()["digest"], checksum(&file));
        if named.bytes != file.bytes {
            // The corrupt duplicate was found by the digest.
            warns(&ended, &duplicate.url("/d"), "");
        }
    }
    let duplicate = Server::of(file.clone());
    let without_digest = Server::of(File { fields: listing(&duplicate, None), ..file.clone() });
    fetch(&without_digest.url("/f")).fetches(&file.bytes);
    assert_eq!(duplicate.requests().len(), 0);
}
