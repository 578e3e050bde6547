//! Uploads as docs/uploads.md defines them: in parts, whole, in chunks; by hand and by curl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::proto::http::UploadId;
use longhaul_server::{Config, Token, Tokens};

use crate::site::{Answer, Site, curl, noise};
use crate::tls;

pub(crate) const TOKEN: &str = "Authorization: Bearer s3cret";
pub(crate) const ID: UploadId = UploadId::new([0xa5; 16]);
const TYPE: &str = "Content-Type: application/partial-upload";

/// Starts a server that takes files.
pub(crate) fn writable() -> Site {
    writable_with(|_| {})
}

pub(crate) fn writable_with(change: impl FnOnce(&mut Config)) -> Site {
    Site::with(|config| {
        config.writable = true;
        config.tokens = Tokens::One(Token::new("s3cret").unwrap());
        change(config);
    })
}

/// Writes the head of a request that shows the token.
pub(crate) fn head(method: &str, target: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{TOKEN}\r\n{lines}\r\n")
}

/// The target of an upload's resource.
pub(crate) fn resource(name: &str, id: UploadId) -> String {
    format!("/{name}?upload={id}")
}

/// Writes the head of a PATCH.
pub(crate) fn patch(target: &str, offset: usize, length: usize, size: usize, complete: bool) -> String {
    let mark = if complete { "?1" } else { "?0" };
    let offset = format!("Upload-Offset: {offset}");
    let (size, complete) = (format!("Upload-Length: {size}"), format!("Upload-Complete: {mark}"));
    head("PATCH", target, &[TYPE, &offset, &size, &complete, &format!("Content-Length: {length}")])
}

/// One connection that stays open from request to request.
pub(crate) struct Talk(pub(crate) TcpStream);

impl Talk {
    pub(crate) fn to(site: &Site) -> Self {
        Self(site.connect())
    }

    pub(crate) fn send(&mut self, head: &str, body: &[u8]) {
        self.0.write_all(head.as_bytes()).unwrap();
        self.0.write_all(body).unwrap();
    }

    /// Reads one answer, and its body where it says how long that is.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.answer_head();
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    fn answer_head(&mut self) -> Answer {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap_or_else(|error| {
                panic!("{error} after {:?}", String::from_utf8_lossy(&text));
            });
            text.push(byte[0]);
        }
        Answer::read(&String::from_utf8(text).unwrap())
    }

    pub(crate) fn ask(&mut self, head: &str, body: &[u8]) -> Answer {
        self.send(head, body);
        // What answers HEAD tells the length of a body that does not come.
        if head.starts_with("HEAD ") { self.answer_head() } else { self.answer() }
    }
}

pub(crate) fn names(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(site.dir.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn content(site: &Site, name: &str) -> Vec<u8> {
    std::fs::read(site.dir.path().join(name)).unwrap()
}

/// The field that lets a server verify `content`.
pub(crate) fn blake3_field(content: &[u8]) -> String {
    let digest = STANDARD.encode(blake3::hash(content).as_bytes());
    format!("Repr-Digest: blake3=:{digest}:")
}

#[test]
fn an_upload_in_parts_becomes_a_file() {
    let (site, file, url) = (writable(), noise(9_000_001), resource("sub/f", ID));
    std::fs::create_dir(site.dir.path().join("sub")).unwrap();
    let mut talk = Talk::to(&site);
    let options = talk.ask("OPTIONS /sub/f HTTP/1.1\r\nHost: h\r\n\r\n", b"");
    assert_eq!(options.header("accept-patch"), Some("application/partial-upload"));
    assert!(options.header("allow").unwrap().contains("PATCH"));
    assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").status, 404);
    let mut offset = 0;
    for end in [0, 3_000_000, 3_000_000, 5_000_007, file.len()] {
        let part = &file[offset..end];
        let answer = talk.ask(&patch(&url, offset, part.len(), file.len(), false), part);
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(answer.header("upload-offset"), Some(end.to_string().as_str()));
        offset = end;
        let there = talk.ask(&head("HEAD", &url, &[]), b"");
        assert_eq!(there.status, 204);
        let of = |name| there.header(name).unwrap().to_owned();
        assert_eq!((of("upload-offset"), of("upload-length")), (end.to_string(), file.len().to_string()));
        assert_eq!(of("upload-complete"), "?0");
        assert_eq!(site.get("/sub/f", &[]).status, 404, "half a file is served");
    }
    for name in ["f.longhaul-part", "f.longhaul-journal"] {
        assert!(site.dir.path().join("sub").join(name).exists());
        assert_eq!(site.get(&format!("/sub/{name}"), &[]).status, 404);
    }
    assert!(!site.get("/sub/", &[]).body.contains("longhaul-"), "partial files are listed");
    let end = patch(&url, file.len(), 0, file.len(), true);
    let end = end.replacen("\r\n\r\n", &format!("\r\n{}\r\n\r\n", blake3_field(&file)), 1);
    assert_eq!(talk.ask(&end, b"").status, 201);
    assert!(content(&site, "sub/f") == file);
    assert_eq!(std::fs::read_dir(site.dir.path().join("sub")).unwrap().count(), 1);
    // Another file by the same ID replaces it.
    assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").header("upload-complete"), Some("?1"));
    assert_eq!(talk.ask(&patch(&url, 0, 3, 3, true), b"new").status, 204);
    assert_eq!(content(&site, "sub/f"), b"new");
}

#[test]
fn upload_whose_connections_have_closed_makes_way_sooner_than_one_between_ranges() {
    let (site, file) = (writable(), noise(2_000_000));
    let range = |id, text: &str| {
        let lines = ["Content-Type: application/partial-upload", "Upload-Complete: ?0", text];
        head("PATCH", &resource("f", id), &[lines.as_slice(), &["Content-Length: 1000000"]].concat())
    };
    let first = "Content-Range: bytes 0-999999/2000000";
    let (mut open, other) = (Talk::to(&site), UploadId::new([0x5a; 16]));
    for (closes, at_least, at_most) in [(false, 2000, 10_000), (true, 500, 2000)] {
        assert_eq!(open.ask(&range(if closes { other } else { ID }, first), &file[..1_000_000]).status, 202);
        if closes {
            open = Talk::to(&site);
        }
        let began = Instant::now();
        let next = if closes { ID } else { other };
        assert_eq!(Talk::to(&site).ask(&range(next, first), &file[..1_000_000]).status, 202);
        let waited = began.elapsed().as_millis();
        assert!((at_least..at_most).contains(&waited), "closes: {closes}, {waited} ms");
    }
}

#[test]
fn client_that_connects_anew_at_once_keeps_its_upload() {
    let (site, file) = (writable(), noise(2_000_000));
    let range = |id, text: &str| {
        let lines = ["Content-Type: application/partial-upload", "Upload-Complete: ?0", text];
        head("PATCH", &resource("f", id), &[lines.as_slice(), &["Content-Length: 1000000"]].concat())
    };
    let (first, second) =
        ("Content-Range: bytes 0-999999/2000000", "Content-Range: bytes 1000000-1999999/2000000");
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&range(ID, first), &file[..1_000_000]).status, 202);
    // Longer than a client needs to connect anew: what counts is when the connection closed.
    std::thread::sleep(Duration::from_millis(1200));
    drop(talk);
    let mut rival = Talk::to(&site);
    rival.send(&range(UploadId::new([0x5a; 16]), first), &file[..1_000_000]);
    std::thread::sleep(Duration::from_millis(200));
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&range(ID, second), &file[1_000_000..]).status, 202);
    let held = talk.ask(&head("HEAD", &resource("f", ID), &[]), b"");
    assert_eq!(held.header("upload-offset"), Some("2000000"));
}

#[test]
fn an_empty_file_is_an_upload_too() {
    let (site, url) = (writable(), resource("f", ID));
    assert_eq!(Talk::to(&site).ask(&patch(&url, 0, 0, 0, true), b"").status, 201);
    assert_eq!(Talk::to(&site).ask(&head("PUT", "/g", &["Content-Length: 0"]), b"").status, 201);
    assert_eq!(
        (names(&site), content(&site, "f"), content(&site, "g")),
        (vec!["f".into(), "g".into()], vec![], vec![])
    );
}

#[test]
fn another_state_of_the_source_starts_over_and_an_upload_can_be_dropped() {
    let site = writable();
    let (old, new) = (resource("f", ID), resource("f", UploadId::new([1; 16])));
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&patch(&old, 0, 4, 9, false), b"olds").status, 204);
    assert_eq!(talk.ask(&head("HEAD", &new, &[]), b"").status, 404);
    assert_eq!(talk.ask(&head("DELETE", &new, &[]), b"").status, 404);
    // What makes no sense takes nothing away from the first.
    let bad = patch(&new, 0, 0, 5, false).replace("Upload-Length: 5\r\n", "");
    assert_eq!(talk.ask(&bad, b"").status, 400);
    assert_eq!(talk.ask(&patch(&new, 2, 0, 5, false), b"").status, 409);
    assert_eq!(talk.ask(&head("HEAD", &old, &[]), b"").header("upload-offset"), Some("4"));
    assert_eq!(talk.ask(&patch(&new, 0, 3, 5, false), b"new").status, 204);
    assert_eq!(talk.ask(&head("HEAD", &old, &[]), b"").status, 404);
    assert_eq!(talk.ask(&head("DELETE", &new, &[]), b"").status, 204);
    assert_eq!((talk.ask(&head("HEAD", &new, &[]), b"").status, names(&site).len()), (404, 0));
    assert_eq!(talk.ask(&head("DELETE", &new, &[]), b"").status, 404);
}

#[test]
fn a_whole_file_comes_by_length_or_in_chunks() {
    let (site, file) = (writable(), noise(6_000_001));
    let mut talk = Talk::to(&site);
    let length = format!("Content-Length: {}", file.len());
    assert_eq!(talk.ask(&head("PUT", "/a%20b", &[&length, &blake3_field(&file)]), &file).status, 201);
    assert!(content(&site, "a b") == file);
    let mut chunked = Vec::new();
    for chunk in file.chunks(100_000) {
        chunked.extend_from_slice(format!("{:x};ext\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nX: y\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n");
    let put = head("PUT", "/c", &["Transfer-Encoding: chunked"]);
    assert_eq!(talk.ask(&put, &chunked).status, 201);
    // The request that came right behind the last chunk.
    let mut got = talk.0.try_clone().unwrap();
    let mut text = vec![0; file.len() + 100];
    got.read_exact(&mut text).unwrap();
    assert!(text.starts_with(b"HTTP/1.1 200 OK\r\n") && content(&site, "c") == file);
    assert_eq!(names(&site), ["a b", "c"]);
}

#[test]
fn an_existing_file_is_kept_where_the_client_says_so() {
    let site = writable();
    site.write("f", b"old");
    let new = head("PUT", "/f", &["If-None-Match: *", "Content-Length: 3"]);
    assert_eq!(Talk::to(&site).ask(&new, b"new").status, 412);
    assert_eq!((content(&site, "f"), names(&site)), (b"old".to_vec(), vec!["f".to_owned()]));
    let other = head("PUT", "/f", &["If-None-Match: \"a\"", "Content-Length: 3"]);
    assert_eq!(Talk::to(&site).ask(&other, b"new").status, 412);
    let url = resource("f", ID);
    let keep = |request: String| request.replacen("\r\n\r\n", "\r\nIf-None-Match: *\r\n\r\n", 1);
    assert_eq!(Talk::to(&site).ask(&keep(patch(&url, 0, 3, 3, true)), b"new").status, 412);
    assert_eq!((content(&site, "f"), names(&site)), (b"old".to_vec(), vec!["f".to_owned()]));
    assert_eq!(Talk::to(&site).ask(&head("PUT", "/f", &["Content-Length: 3"]), b"new").status, 204);
    assert_eq!(content(&site, "f"), b"new");
    // A file that comes meanwhile is kept too.
    let mut late = Talk::to(&site);
    late.send(&keep(patch(&resource("g", ID), 0, 3, 3, true)), b"la");
    while names(&site).len() < 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    site.write("g", b"first");
    assert_eq!((late.ask("", b"t").status, content(&site, "g")), (412, b"first".to_vec()));
    let delete = keep(head("DELETE", &resource("g", ID), &[]));
    assert_eq!(Talk::to(&site).ask(&delete, b"").status, 412);
    assert_eq!(Talk::to(&site).ask(&head("DELETE", &resource("g", ID), &[]), b"").status, 204);
    assert_eq!(names(&site), ["f", "g"]);
}

#[test]
fn who_waits_to_be_asked_is_asked_once_there_is_space() {
    let site = writable();
    let mut talk = Talk::to(&site);
    let put = head("PUT", "/f", &["Content-Length: 5", "Expect: 100-continue"]);
    assert_eq!(talk.ask(&put, b"").status, 100);
    assert_eq!(std::fs::metadata(site.dir.path().join("f.longhaul-part")).unwrap().len(), 5);
    assert_eq!(talk.ask("", b"hello").status, 201);
    assert_eq!(content(&site, "f"), b"hello");
}

#[test]
fn a_long_verification_is_no_silence() {
    let site = writable_with(|config| config.limits.processing = Duration::from_millis(5));
    let (file, url) = (noise(64 << 20), resource("f", ID));
    let mut talk = Talk::to(&site);
    let put = patch(&url, 0, file.len(), file.len(), true);
    talk.send(&put.replacen("\r\n\r\n", &format!("\r\n{}\r\n\r\n", blake3_field(&file)), 1), &file);
    let mut interim = 0;
    loop {
        match talk.answer().status {
            102 => interim += 1,
            status => break assert_eq!(status, 201),
        }
    }
    assert!(interim > 1, "{interim} interim answers");
    assert!(content(&site, "f") == file);
}

#[test]
fn a_long_verification_is_no_silence_over_tls_either() {
    let (certs, file) = (tempfile::tempdir().unwrap(), noise(64 << 20));
    let tls = tls::files(certs.path());
    let cert = tls.cert.to_str().unwrap().to_owned();
    let site = writable_with(|config| {
        config.tls = Some(tls);
        config.limits.processing = Duration::from_millis(5);
    });
    let source = certs.path().join("source");
    std::fs::write(&source, &file).unwrap();
    let (source, url) = (source.to_str().unwrap(), format!("https://{}/f", site.address));
    for framing in ["Transfer-Encoding: chunked", "X: by length"] {
        let lines = ["-H", TOKEN, "-H", framing, "-H", &blake3_field(&file)];
        let args = [["--cacert", &cert, "-i", "-T", source, &url].as_slice(), &lines].concat();
        let Some((code, text)) = curl(&args) else { return };
        let text = String::from_utf8_lossy(&text);
        assert_eq!(code, 0, "{text}");
        assert!(text.matches("HTTP/1.1 102").count() > 1, "{framing}: {text}");
        assert!(text.contains("HTTP/1.1 201") || text.contains("HTTP/1.1 204"), "{text}");
        assert!(content(&site, "f") == file);
    }
}

#[test]
fn curl_puts_files_plain_and_encrypted() {
    let (certs, file) = (tempfile::tempdir().unwrap(), noise(20_000_001));
    let tls = tls::files(certs.path());
    let cert = tls.cert.to_str().unwrap().to_owned();
    let source: PathBuf = certs.path().join("source");
    std::fs::write(&source, &file).unwrap();
    let source = source.to_str().unwrap();
    for (scheme, site) in [("http", writable()), ("https", writable_with(|config| config.tls = Some(tls)))] {
        let url = |name: &str| format!("{scheme}://{}/{name}", site.address);
        let common = ["--cacert", &cert, "-H", TOKEN, "-w", "%{http_code} ", "-o", "/dev/null"];
        let run = |args: &[&str]| curl(&[&common, args].concat());
        for expected in ["201 ", "204 "] {
            let Some((code, text)) = run(&["-T", source, &url("whole")]) else { return };
            assert_eq!((code, String::from_utf8_lossy(&text).as_ref()), (0, expected), "{scheme}");
            assert!(content(&site, "whole") == file);
        }
        let (code, text) = run(&["-T", source, "-H", "Transfer-Encoding: chunked", &url("chunked")]).unwrap();
        assert_eq!((code, String::from_utf8_lossy(&text).as_ref()), (0, "201 "), "{scheme}");
        assert!(content(&site, "chunked") == file);
        let (half, size) = (format!("@{source}"), format!("Upload-Length: {}", 2 * file.len()));
        for (offset, complete, status) in [(0, "?0", "204 "), (file.len(), "?1", "201 ")] {
            let (offset, complete) =
                (format!("Upload-Offset: {offset}"), format!("Upload-Complete: {complete}"));
            let lines = ["-H", TYPE, "-H", &offset, "-H", &size, "-H", &complete];
            let part = ["-X", "PATCH", "--data-binary", &half, &url(&format!("twice?upload={ID}"))];
            let (code, text) = run(&[lines.as_slice(), &part].concat()).unwrap();
            assert_eq!((code, String::from_utf8_lossy(&text).as_ref()), (0, status), "{scheme}");
        }
        assert!(content(&site, "twice") == [file.as_slice(), &file].concat());
    }
}
