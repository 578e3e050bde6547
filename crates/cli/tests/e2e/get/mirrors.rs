//! Several sources of one file: `--mirror`, and duplicates that a server lists (RFC 6249).

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::{Ended, File, Get, Server, content, get, partial_files, same};

const SIZE: usize = 18 << 20;
/// Larger than the first lease before a mirror is verified: both sources have work.
const SHARED: usize = 40 << 20;
/// Maximum bytes fetched from a mirror for comparison.
const SAMPLE: usize = 64 << 10;

/// Serves `file` at `rate` bytes per second.
fn slowly(rate: usize, file: &File) -> Server {
    let file = file.clone();
    Server::new(move |peer| peer.serve_at(rate, &file))
}

fn refusing(status: &'static str) -> Server {
    Server::answering(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
}

/// Returns a URL with a closed port.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/f", listener.local_addr().unwrap())
}

/// Creates a fetch of `url` to `f` with one mirror.
fn with_mirror(url: &str, mirror: &str) -> Get {
    get().args(["--json", "-o", "f", url, "--mirror", mirror])
}

/// Returns the warning about `url`.
#[track_caller]
fn warning(ended: &Ended, url: &str) -> String {
    let lines = ended.json();
    let warnings = lines.iter().filter(|line| line["event"] == "warning");
    let messages: Vec<_> = warnings.map(|line| line["message"].as_str().unwrap().to_owned()).collect();
    let named = messages.iter().find(|message| message.contains(url));
    named.cloned().unwrap_or_else(|| panic!("no warning names {url}: {messages:?}, {}", ended.stderr))
}

/// Returns the number of bytes requested of a file of [`SHARED`].
fn asked(server: &Server) -> usize {
    let size = |range: Option<(usize, usize)>| range.map_or(SHARED, |(start, end)| end - start);
    server.requests().iter().map(|request| size(request.range(SHARED))).sum()
}

/// Returns a file that differs from `file` only beyond the compared beginning.
fn wrong_at_the_end(file: &File) -> File {
    let mut bytes = file.bytes.to_vec();
    bytes[SHARED / 2..].iter_mut().for_each(|byte| *byte ^= 1);
    File::new(bytes)
}

fn checksum(bytes: &[u8]) -> String {
    let run = get();
    fs::write(run.path("g"), bytes).unwrap();
    let sum = Command::new("sha256sum").arg(run.path("g")).output().unwrap();
    String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn login_is_sent_to_no_mirror() {
    let file = File::new(content(SHARED, 1));
    let (first, second) = (slowly(20_000_000, &file), slowly(20_000_000, &file));
    let run = with_mirror(&first.url("/f"), &second.url("/f"));
    run.args(["--user", "ann:secret", "--header", "Cookie: c", "--header", "X-Kept: x"]).run().ok();
    let sends =
        |server: &Server, name: &str| server.requests().iter().any(|request| request.field(name).is_some());
    for secret in ["authorization", "cookie"] {
        assert!(sends(&first, secret) && !sends(&second, secret), "{secret}");
    }
    assert!(sends(&second, "x-kept"));
}

#[test]
fn both_serve_the_file() {
    let file = File::new(content(SHARED, 1));
    let sum = format!("sha256:{}", checksum(&file.bytes));
    for args in [&[][..], &["--streams", "1"], &["--streams", "2"], &["--checksum", &sum]] {
        let (primary, mirror) = (slowly(20_000_000, &file), slowly(20_000_000, &file));
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(args);
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(partial_files(run.dir()), [""; 0]);
        for server in [&primary, &mirror] {
            assert!(asked(server) > SHARED / 8, "{args:?}: {} of {SHARED}: {ended:?}", asked(server));
        }
    }
}

/// The whole file is requested at once only if a paced server is the only source.
#[test]
fn paced_servers_share_the_file_by_their_rates() {
    let file = File { fields: "Longhaul-Pace: auto\r\n".to_owned(), ..File::new(content(SHARED, 19)) };
    let (primary, mirror) = (slowly(20_000_000, &file), slowly(20_000_000, &file));
    let run = with_mirror(&primary.url("/f"), &mirror.url("/g"));
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    let first = asked(&primary);
    assert!(first < SHARED / 8 * 7, "{first} of {SHARED}: {ended:?}");
}

#[test]
fn a_mirror_of_no_use_is_named_and_dropped() {
    let file = File::new(content(SIZE, 2));
    let larger = File::new(content(SIZE + 1, 2));
    let without_ranges = File { ranges: false, ..file.clone() };
    let without_validator = File { etag: None, ..file.clone() };
    for (mirror, word) in [
        (refusing("404 None"), "404"),
        (refusing("503 Busy"), "503"),
        (Server::of(larger), "18874369 bytes, not 18874368"),
        (Server::of(without_ranges), "no ranges"),
        (Server::of(without_validator), "strong validator"),
        (Server::of(File::new(content(SIZE, 3))), "bytes differ"),
    ] {
        let primary = slowly(20_000_000, &file);
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let warning = warning(&ended, &mirror.url("/g"));
        assert!(warning.contains(word), "'{word}' is missing in {warning}");
        let all = mirror
            .requests()
            .iter()
            .all(|request| request.range(SIZE).is_none_or(|(start, end)| end - start <= SAMPLE));
        assert!(all && mirror.requests().len() <= 3, "{word}: {:?}", mirror.requests());
    }
}

#[test]
fn a_mirror_that_is_down_is_named_and_dropped() {
    let file = File::new(content(SIZE, 4));
    let (primary, mirror) = (slowly(20_000_000, &file), nowhere());
    let run = with_mirror(&primary.url("/f"), &mirror);
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    warning(&ended, &mirror);
}

#[test]
fn a_slow_mirror_delays_nothing() {
    let file = File::new(content(SIZE, 5));
    let (primary, mirror) = (slowly(20_000_000, &file), slowly(100_000, &file));
    let run = with_mirror(&primary.url("/f"), &mirror.url("/g"));
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    // The primary alone needs two seconds.
    assert!(ended.time < Duration::from_secs(5), "{:?}", ended.time);
}

#[test]
fn a_mirror_serves_where_the_first_url_does_not() {
    let file = File::new(content(SIZE, 6));
    for primary in [refusing("404 None").url("/f"), refusing("403 No").url("/f"), nowhere()] {
        let mirror = Server::of(file.clone());
        let run = with_mirror(&primary, &mirror.url("/g"));
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        warning(&ended, &primary);
    }
}

#[test]
fn mirror_continues_after_a_break_of_the_first_url() {
    let file = File::new(content(SIZE, 7));
    // The break occurs at once, or after a part of the first response.
    for part in [0, 1000, 5_000_000] {
        let served = file.clone();
        let primary = Server::once(move |peer| {
            let Some(request) = peer.read_request() else { return };
            let (head, body) = served.answer(&request);
            peer.send(head);
            peer.trickle(&body[..part], 20_000_000);
            peer.close();
        });
        let mirror = slowly(40_000_000, &file);
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
        run.run().ok();
        same(run.path("f"), &file.bytes);
    }
}

#[test]
fn a_mirror_of_no_use_does_not_hide_why_the_first_url_failed() {
    let served = File::new(content(SIZE, 16));
    for mirror in [refusing("404 None"), Server::of(File::new(content(1000, 16)))] {
        let served = served.clone();
        let primary = Server::once(move |peer| {
            let Some(request) = peer.read_request() else { return };
            peer.send(served.answer(&request).0);
            peer.close();
        });
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
        run.run().fails(75, &["closed the connection early"]);
        assert!(!run.path("f").exists());
    }
}

/// Parts of a file without ranges must not be combined with those of other sources.
#[test]
fn a_first_url_that_sends_one_answer_only_has_no_mirrors() {
    let file = File::new(content(1 << 20, 17));
    for first in [File { etag: None, ..file.clone() }, File { ranges: false, ..file.clone() }] {
        let (primary, mirror) = (Server::of(first), Server::of(file.clone()));
        let run = with_mirror(&primary.url("/f"), &mirror.url("/g"));
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        warning(&ended, &mirror.url("/g"));
        assert_eq!(mirror.requests().len(), 0);
    }
}

/// The first server accepts the connection and sends nothing.
#[test]
fn silent_first_url_does_not_delay_a_mirror() {
    let file = File::new(content(1 << 20, 18));
    let primary = Server::new(|peer| while peer.read_request().is_some() {});
    let mirror = Server::of(file.clone());
    let run = with_mirror(&primary.url("/f"), &mirror.url("/g"));
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    warning(&ended, &primary.url("/f"));
    assert!(ended.time < Duration::from_secs(12), "{ended:?}");
}

#[test]
fn no_source_at_all() {
    let (down, missing) = (nowhere(), refusing("404 None"));
    let run = with_mirror(&down, &missing.url("/g"));
    let address = down.trim_start_matches("http://").trim_end_matches("/f");
    let ended = run.run().fails(69, &["no source", address, &missing.url("/g"), "404"]);
    assert!(ended.time < Duration::from_secs(3), "{ended:?}");
    assert_eq!(fs::read_dir(run.dir()).unwrap().count(), 0);
}

#[test]
fn corrupt_source_is_detected_by_the_checksum() {
    let file = File::new(content(SHARED, 8));
    let other = wrong_at_the_end(&file);
    let sum = format!("sha256:{}", checksum(&file.bytes));
    for liar_is_first in [false, true] {
        let (honest, liar) = (slowly(20_000_000, &file), slowly(20_000_000, &other));
        let (first, second) = if liar_is_first { (&liar, &honest) } else { (&honest, &liar) };
        let run = with_mirror(&first.url("/f"), &second.url("/g")).args(["--checksum", &sum]);
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(ended.done()["digest"], *sum);
        assert_eq!(partial_files(run.dir()), [""; 0]);
        assert!(asked(&liar) > SHARED / 8, "{ended:?}");
        warning(&ended, &liar.url(if liar_is_first { "/f" } else { "/g" }));
    }
}

/// The mirror cannot replace data of the only source: the checksum error is reported, and the data is kept.
#[test]
fn a_wrong_checksum_is_reported_though_a_mirror_is_down() {
    let file = File::new(content(600_000, 10));
    let (primary, wrong) = (Server::of(file), format!("sha256:{}", "0".repeat(64)));
    for mirror in [nowhere(), refusing("404 None").url("/g")] {
        let run = with_mirror(&primary.url("/f"), &mirror).args(["--checksum", &wrong, "--retries", "0"]);
        run.run().fails(65, &["checksum", &wrong]);
        assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    }
}

#[test]
fn interrupted_with_a_mirror_the_transfer_resumes_from_either() {
    let file = File::new(content(SIZE, 11));
    // The break is in the first or in the third response: a mirror is described and compared first.
    let cut = |connections: usize| {
        let file = file.clone();
        Server::new(move |peer| {
            let Some(request) = peer.read_request() else { return };
            if peer.number < connections {
                let (head, body) = file.answer(&request);
                peer.send(head);
                peer.trickle(&body[..body.len().min(SIZE / 8)], 20_000_000);
            }
            peer.close();
        })
    };
    let (primary, mirror) = (cut(1), cut(3));
    let run = with_mirror(&primary.url("/f"), &mirror.url("/g")).args(["--retries", "0"]);
    run.run().fails(75, &[]);
    assert_eq!(partial_files(run.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    mirror.mend(file.clone());
    let run = run.again(["--json", "-o", "f", &mirror.url("/g")]);
    assert!(run.run().ok().done()["resumed"].as_u64() > Some(0));
    same(run.path("f"), &file.bytes);
}

/// Encodes hexadecimal digits in base64, for the Digest field.
fn base64(hex: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |at: usize| u32::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<_> = (0..hex.len()).step_by(2).map(byte).collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | byte) << (8 * (3 - group.len()));
        let letter = |at: usize| {
            if at > group.len() { '=' } else { LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Serves `file` at a rate, and lists `duplicate`.
fn naming(file: &File, duplicate: &str, digest: Option<&str>) -> Server {
    let digest = digest.map_or_else(String::new, |digest| format!("Digest: SHA-256={digest}\r\n"));
    let fields = format!("Link: <{duplicate}>; rel=duplicate\r\n{digest}");
    slowly(20_000_000, &File { fields, ..file.clone() })
}

#[test]
fn a_duplicate_that_the_server_names_is_used_under_its_digest() {
    let file = File::new(content(SHARED, 12));
    let digest = base64(&checksum(&file.bytes));
    for streams in [&["--streams", "2"][..], &[]] {
        let duplicate = slowly(20_000_000, &file);
        let server = naming(&file, &duplicate.url("/d"), Some(&digest));
        let run = get().args(["--json", "-o", "f", &server.url("/f")]).args(streams);
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(ended.done()["digest"], format!("sha256:{}", checksum(&file.bytes)));
        assert!(asked(&duplicate) > SHARED / 8, "{} of {SHARED}: {ended:?}", asked(&duplicate));
    }
}

#[test]
fn corrupt_duplicate_is_detected_by_the_digest() {
    let file = File::new(content(SHARED, 13));
    let other = wrong_at_the_end(&file);
    let digest = base64(&checksum(&file.bytes));
    let duplicate = slowly(20_000_000, &other);
    let server = naming(&file, &duplicate.url("/d"), Some(&digest));
    let run = get().args(["--json", "--streams", "2", "-o", "f", &server.url("/f")]);
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert!(asked(&duplicate) > SHARED / 8, "{ended:?}");
    warning(&ended, &duplicate.url("/d"));
}

#[test]
fn a_duplicate_without_a_digest_is_not_used() {
    let file = File::new(content(1 << 20, 15));
    let duplicate = Server::of(file.clone());
    let server = naming(&file, &duplicate.url("/d"), None);
    let run = get().args(["-o", "f", &server.url("/f")]);
    run.run().ok();
    same(run.path("f"), &file.bytes);
    assert_eq!(duplicate.requests().len(), 0);
}
