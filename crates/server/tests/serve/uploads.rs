//! Uploads as docs/uploads.md defines them: in parts, whole, in chunks; by hand and by curl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::proto::http::UploadId;
use longhaul_server::{Config, Token, Tokens};

use crate::site::{Answer, Site, curl, noise, wait_for};

pub(crate) const TOKEN: &str = "Authorization: Bearer s3cret";
pub(crate) const ID: UploadId = UploadId::new([0xa5; 16]);
const TYPE: &str = "Content-Type: application/partial-upload";

pub(crate) fn writable() -> Site {
    writable_with(|_| {})
}

pub(crate) fn writable_with(change: impl FnOnce(&mut Config)) -> Site {
    Site::with(|config| {
        allow_writing(config);
        change(config);
    })
}

fn allow_writing(config: &mut Config) {
    config.access.writable = true;
    config.access.tokens = Tokens::One(Token::new("s3cret").unwrap());
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

/// Writes the head of a PATCH with a range of a file of `size` bytes.
pub(crate) fn range(target: &str, range: Range<usize>, size: usize) -> String {
    let bytes = format!("Content-Range: bytes {}-{}/{size}", range.start, range.end - 1);
    head("PATCH", target, &[TYPE, &bytes, "Upload-Complete: ?0", &format!("Content-Length: {}", range.len())])
}

pub(crate) fn with_field(head: &str, field: &str) -> String {
    head.replacen("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"), 1)
}

pub(crate) fn expect(head: &str) -> String {
    with_field(head, "Expect: 100-continue")
}

/// Sends one request over a new connection; returns the status of the answer.
pub(crate) fn status(site: &Site, head: &str, body: &[u8]) -> u16 {
    Talk::to(site).ask(head, body).status
}

/// Uploads a whole file; returns the status of the answer.
pub(crate) fn put(site: &Site, target: &str, body: &[u8]) -> u16 {
    status(site, &head("PUT", target, &[&format!("Content-Length: {}", body.len())]), body)
}

/// Asks how far an upload has come; an empty text where the server knows of none.
pub(crate) fn offset(site: &Site, target: &str) -> String {
    let answer = Talk::to(site).ask(&head("HEAD", target, &[]), b"");
    answer.header("upload-offset").unwrap_or_default().to_owned()
}

/// One connection that stays open from request to request.
pub(crate) struct Talk(pub(crate) TcpStream);

impl Talk {
    pub(crate) fn to(site: &Site) -> Self {
        Self(site.connect())
    }

    /// Whether an answer has begun, or the connection has ended.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        peeked.is_ok()
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

    pub(crate) fn answer_head(&mut self) -> Answer {
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

    /// Fetches a file; returns the bytes received, those of the head included.
    pub(crate) fn fetch(&mut self, target: &str) -> usize {
        self.send(&head("GET", target, &[]), b"");
        let head = self.answer_head();
        let length: usize = head.header("content-length").unwrap().parse().unwrap();
        self.0.read_exact(&mut vec![0; length]).unwrap();
        head.head.len() + 4 + length
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
fn upload_in_parts_becomes_a_file() {
    let (site, file, url) = (writable(), noise(9_000_001), resource("sub/f", ID));
    std::fs::create_dir(site.dir.path().join("sub")).unwrap();
    let mut talk = Talk::to(&site);
    let options = talk.ask("OPTIONS /sub/f HTTP/1.1\r\nHost: h\r\n\r\n", b"");
    assert_eq!(options.header("accept-patch"), Some("application/partial-upload"));
    assert!(options.header("allow").unwrap().contains("PATCH"));
    let other = talk.ask("LOCK /sub/f HTTP/1.1\r\nHost: h\r\n\r\n", b"");
    assert_eq!((other.status, other.header("allow")), (405, options.header("allow")));
    assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").status, 404);
    let mut offset = 0;
    for end in [0, 3_000_000, 3_000_000, 5_000_007, file.len()] {
        let part = &file[offset..end];
        let answer = talk.ask(&patch(&url, offset, part.len(), file.len(), false), part);
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(answer.header("upload-offset"), Some(end.to_string().as_str()));
        offset = end;
        let there = talk.ask(&head("HEAD", &url, &[]), b"");
        let found =
            ["upload-offset", "upload-length", "upload-complete"].map(|name| there.header(name).unwrap());
        assert_eq!((there.status, found), (204, [&*end.to_string(), &*file.len().to_string(), "?0"]));
        assert_eq!(site.get("/sub/f", &[]).status, 404, "half a file is served");
    }
    for name in ["f.longhaul-part", "f.longhaul-journal"] {
        assert!(site.dir.path().join("sub").join(name).exists());
        assert_eq!(site.get(&format!("/sub/{name}"), &[]).status, 404);
    }
    assert!(!site.get("/sub/", &[]).body.contains("longhaul-"), "partial files are listed");
    let end = patch(&url, file.len(), 0, file.len(), true);
    assert_eq!(talk.ask(&with_field(&end, &blake3_field(&file)), b"").status, 201);
    assert!(content(&site, "sub/f") == file);
    assert_eq!(std::fs::read_dir(site.dir.path().join("sub")).unwrap().count(), 1);
    // Another file by the same ID replaces it.
    assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").header("upload-complete"), Some("?1"));
    assert_eq!(talk.ask(&patch(&url, 0, 3, 3, true), b"new").status, 204);
    assert_eq!(content(&site, "sub/f"), b"new");
}

/// An upload between two ranges is kept for 3 s, or for 0.7 s after its last connection has closed.
#[test]
fn upload_whose_connections_have_closed_makes_way_sooner_than_one_between_ranges() {
    let (site, file, other) = (writable(), noise(2_000_000), UploadId::new([0x5a; 16]));
    let first = |name, id| range(&resource(name, id), 0..1_000_000, 2_000_000);
    let [mut open, mut closed] = [Talk::to(&site), Talk::to(&site)];
    for (talk, name) in [(&mut open, "open"), (&mut closed, "closed")] {
        assert_eq!(talk.ask(&first(name, ID), &file[..1_000_000]).status, 202);
    }
    drop(closed);
    let mut slower = Talk::to(&site);
    slower.send(&first("open", other), &file[..1_000_000]);
    assert_eq!(status(&site, &first("closed", other), &file[..1_000_000]), 202);
    assert!(!slower.is_answered());
    assert_eq!(slower.answer().status, 202);
}

#[test]
fn another_state_of_the_source_starts_over_and_an_upload_can_be_dropped() {
    let site = writable();
    let (old, new) = (resource("f", ID), resource("f", UploadId::new([1; 16])));
    let mut talk = Talk::to(&site);
    let of = |method, url: &str| head(method, url, &[]);
    for (request, body, status) in [
        (patch(&old, 0, 4, 9, false), "olds", 204),
        (of("HEAD", &new), "", 404),
        (of("DELETE", &new), "", 404),
        // What makes no sense takes nothing away from the first.
        (patch(&new, 0, 0, 5, false).replace("Upload-Length: 5\r\n", ""), "", 400),
        (patch(&new, 2, 0, 5, false), "", 409),
        (of("HEAD", &old), "", 204),
        (patch(&new, 0, 3, 5, false), "new", 204),
        (of("HEAD", &old), "", 404),
        (of("DELETE", &new), "", 204),
        (of("HEAD", &new), "", 404),
        (of("DELETE", &new), "", 404),
    ] {
        let answer = talk.ask(&request, body.as_bytes());
        assert_eq!(answer.status, status, "{request}");
        if status == 204 && request.starts_with("HEAD") {
            assert_eq!(answer.header("upload-offset"), Some("4"));
        }
    }
    assert_eq!(names(&site).len(), 0);
}

#[test]
fn whole_file_comes_by_length_or_in_chunks() {
    let (site, file) = (writable(), noise(6_000_001));
    let mut talk = Talk::to(&site);
    let length = format!("Content-Length: {}", file.len());
    assert_eq!(talk.ask(&head("PUT", "/a%20b", &[&length, &blake3_field(&file)]), &file).status, 201);
    assert!(content(&site, "a b") == file);
    let chunk = |bytes: &[u8]| [format!("{:x};ext\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let mut chunked: Vec<u8> = file.chunks(100_000).flat_map(chunk).collect();
    chunked.extend_from_slice(b"0\r\nX: y\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n");
    let chunked_put = head("PUT", "/c", &["Transfer-Encoding: chunked"]);
    assert_eq!(talk.ask(&chunked_put, &chunked).status, 201);
    // The request that came right behind the last chunk.
    let mut got = talk.0.try_clone().unwrap();
    let mut text = vec![0; file.len() + 100];
    got.read_exact(&mut text).unwrap();
    assert!(text.starts_with(b"HTTP/1.1 200 OK\r\n") && content(&site, "c") == file);
    assert_eq!((put(&site, "/empty", b""), content(&site, "empty")), (201, Vec::new()));
    assert_eq!(names(&site), ["a b", "c", "empty"]);
}

#[test]
fn existing_file_is_kept_or_replaced_as_the_client_says() {
    let site = writable();
    site.write("f", b"old");
    let tag = site.get("/f", &[]).header("ETag").unwrap().to_owned();
    let put_if = |condition: &str, name: &str, body: &str| {
        let length = format!("Content-Length: {}", body.len());
        status(&site, &head("PUT", name, &[condition, &length]), body.as_bytes())
    };
    let keep = |request: String| with_field(&request, "If-None-Match: *");
    for condition in ["If-None-Match: *", "If-None-Match: \"a\"", "If-Match: \"other\""] {
        assert_eq!(put_if(condition, "/f", "new"), 412, "{condition}");
    }
    assert_eq!(put_if("If-Match: *", "/missing", "new"), 412);
    assert_eq!(status(&site, &keep(patch(&resource("f", ID), 0, 3, 3, true)), b"new"), 412);
    assert_eq!((content(&site, "f"), names(&site)), (b"old".to_vec(), vec!["f".to_owned()]));
    let named = format!("If-Match: {tag}");
    assert_eq!((put_if(&named, "/f", "second"), put_if(&named, "/f", "third")), (204, 412));
    assert_eq!(content(&site, "f"), b"second");
    assert_eq!(put(&site, "/f", b"new"), 204);
    assert_eq!(content(&site, "f"), b"new");
    // A file that comes meanwhile is kept too.
    let g = resource("g", ID);
    let mut late = Talk::to(&site);
    late.send(&keep(patch(&g, 0, 3, 3, true)), b"la");
    wait_for(|| names(&site).len() == 3);
    site.write("g", b"first");
    assert_eq!((late.ask("", b"t").status, content(&site, "g")), (412, b"first".to_vec()));
    let delete = head("DELETE", &g, &[]);
    assert_eq!((status(&site, &keep(delete.clone()), b""), status(&site, &delete, b"")), (412, 204));
    assert_eq!(names(&site), ["f", "g"]);
}

/// A client sets the seconds of the time; the tag does not depend on them alone.
#[test]
fn uploads_of_one_size_and_time_have_different_tags() {
    let site = writable();
    let mut talk = Talk::to(&site);
    let mut put = |body: &str, line: &str| {
        let lines = ["Content-Length: 3", "X-OC-Mtime: 1700000000", line];
        let answer = talk.ask(&head("PUT", "/f", &lines), body.as_bytes());
        assert!(answer.status == 412 || answer.header("x-oc-mtime") == Some("accepted"), "{answer:?}");
        answer.status
    };
    let state = || {
        let answer = site.get("/f", &[]);
        ["etag", "last-modified"].map(|name| answer.header(name).unwrap().to_owned())
    };
    assert_eq!(put("old", "X: y"), 201);
    let [old, date] = state();
    assert!(old.starts_with('"') && date == "Tue, 14 Nov 2023 22:13:20 GMT", "{old} {date}");
    assert_eq!(put("new", &format!("If-Match: {old}")), 204);
    assert_eq!(put("bad", &format!("If-Match: {old}")), 412, "an update is not lost");
    let [new, same] = state();
    assert!(new.starts_with('"') && new != old && same == date, "{old} {new}");
    // Bytes of two uploads are not mixed, by the date neither.
    for (condition, answer) in [(&new, (206, "ew")), (&old, (200, "new")), (&date, (200, "new"))] {
        let found = site.get("/f", &["Range: bytes=1-2", &format!("If-Range: {condition}")]);
        assert_eq!((found.status, found.body.as_str()), answer, "{condition}");
    }
}

#[test]
fn long_verification_is_no_silence() {
    let file = noise(64 << 20);
    let site = writable_with(|config| config.limits.timeouts.processing = Duration::from_millis(1));
    let mut talk = Talk::to(&site);
    let part = patch(&resource("f", ID), 0, file.len(), file.len(), true);
    talk.send(&with_field(&part, &blake3_field(&file)), &file);
    let mut interim = 0;
    loop {
        match talk.answer().status {
            102 => interim += 1,
            status => break assert_eq!(status, 201),
        }
    }
    assert!(interim > 1, "{interim} interim answers");
    assert!(content(&site, "f") == file);

    let (site, cert) = Site::encrypted(|config| {
        allow_writing(config);
        config.limits.timeouts.processing = Duration::from_millis(1);
    });
    let source = site.beside.path().join("source");
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
