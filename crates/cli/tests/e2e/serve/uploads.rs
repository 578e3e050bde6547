//! `longhaul serve --writable`: options, log, record, full disk, SIGTERM during a transfer.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::serve::{BIN, Serve, assert_refused, lines, serve};
use crate::support::{Get, get, put, same, skip};

pub(crate) const UPLOAD: &str = "?upload=00112233445566778899aabbccddeeff";

/// A directory to serve, and a token beside it.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    beside: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap(), beside: tempfile::tempdir().unwrap() };
        fs::write(place.token(), "s3cret\n").unwrap();
        fs::set_permissions(place.token(), Permissions::from_mode(0o600)).unwrap();
        place
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.beside.path().join("token")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let token = self.token();
        let args = [&["--writable", "--token", token.to_str().unwrap()], args].concat();
        serve(self.dir.path(), &args)
    }
}

/// Sends a request with the token; returns status and head of the response.
pub(crate) fn ask(address: SocketAddr, first: &str, lines: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let head =
        format!("{first} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer s3cret\r\n");
    stream.write_all(format!("{head}{lines}\r\n").as_bytes()).unwrap();
    // The server may refuse before the body's end.
    let _ = stream.write_all(body);
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    // Where the disk is slow, 102 (Processing) precedes the answer.
    let reply = String::from_utf8_lossy(&reply).replace("HTTP/1.1 102 Processing\r\n\r\n", "");
    (reply.split(' ').nth(1).unwrap_or_else(|| panic!("{reply:?}")).parse().unwrap(), reply)
}

pub(crate) fn part(offset: usize, length: usize, size: usize, complete: bool) -> String {
    let mark = if complete { "?1" } else { "?0" };
    format!(
        "Content-Type: application/partial-upload\r\nUpload-Offset: {offset}\r\nUpload-Length: {size}\r\n\
         Upload-Complete: {mark}\r\nContent-Length: {length}\r\n"
    )
}

/// Content that encodes its position.
pub(crate) fn content(size: usize) -> Vec<u8> {
    (0..size as u32 / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn flags_that_cannot_work_have_their_exit_code() {
    let place = Place::new();
    let beside = |name: &str, text: &str| {
        let path = place.beside.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (empty, odd) = (beside("empty", " \n"), beside("odd", "two words"));
    let inside = place.dir.path().join("token");
    fs::write(&inside, "s3cret").unwrap();
    let (inside, good) = (inside.to_str().unwrap(), beside("good", "s3cret"));
    let (wide, broken) = (beside("wide", "s3cret"), beside("broken", "[[token]]\nname = 1\n"));
    fs::set_permissions(&wide, Permissions::from_mode(0o644)).unwrap();
    for (args, code, named) in [
        (vec!["--writable"], 64, "--token"),
        (vec!["--token", &good], 64, "--writable"),
        (vec!["--require-token"], 64, "--token"),
        (vec!["--writable", "--token", &good, "--tokens", &good], 64, "--tokens"),
        (vec!["--writable", "--token", "/none/token"], 66, "/none/token"),
        (vec!["--writable", "--token", &wide], 78, "chmod 600"),
        (vec!["--writable", "--tokens", &wide], 78, "chmod 600"),
        (vec!["--writable", "--tokens", "/none/tokens"], 78, "/none/tokens"),
        (vec!["--writable", "--tokens", &broken], 78, "line 2"),
        (vec!["--writable", "--tokens", inside], 64, "readable for every client"),
        (vec!["--writable", "--token", &empty], 78, "empty"),
        (vec!["--writable", "--token", &odd], 78, "letters, digits"),
        (vec!["--writable", "--token", inside], 64, "readable for every client"),
        (vec!["--writable", "--token", &good, "--upload-expiry", "3"], 64, "write 3s or 3d"),
        (vec!["--app-buffer", "many"], 64, "--app-buffer"),
    ] {
        assert_refused(serve(place.dir.path(), &args), code, named);
    }
}

#[test]
fn an_upload_is_logged_and_recorded_with_its_buffers() {
    let place = Place::new();
    let record = place.beside.path().join("r.jsonl");
    let args = ["--record", record.to_str().unwrap(), "--record-interval", "2ms", "--app-buffer", "4GiB"];
    let server = Serve::start(place.command(&args));
    let file = content(24 << 20);
    let (status, _) = ask(server.address, "PUT /f", &format!("Content-Length: {}\r\n", file.len()), &file);
    assert!(status == 201 && fs::read(place.dir.path().join("f")).unwrap() == file);
    let (_, listing) = ask(server.address, "GET /?uploads", "", b"");
    let log = server.stop();
    let listed = listing.split("\r\n\r\n").nth(1).unwrap().len();
    let logged = log.lines().find(|line| line.contains("uploads")).unwrap();
    assert!(logged.contains(&format!("bytes={listed} ")), "{listed}: {logged}");
    for word in ["method=\"PUT\"", "path=\"/f\"", "status=201", "bytes=25165824", "goodput="] {
        assert!(log.contains(word), "{word} in {log}");
    }
    assert!(!log.contains("s3cret"));
    let lines = lines(&record);
    let samples: Vec<_> = lines.iter().filter(|line| line["event"] == "sample").collect();
    let last = samples.last().unwrap();
    for counter in ["moved", "written"] {
        assert!(samples.is_sorted_by_key(|sample| sample[counter].as_u64()), "{counter}");
    }
    assert!(last["segments"].is_null() && samples.iter().any(|line| line["streams"][0]["tcp"].is_object()));
    assert_eq!(last["written"], 25_165_824, "{last}");
    assert!(last["moved"].as_u64().unwrap() >= 25_165_824, "{last}");
    assert!(samples.iter().any(|line| line["segments"]["count"] == 1024), "{last}");
    assert!(samples.iter().any(|line| line["page_cache"].is_object() || line["host_pages"].is_object()));
}

#[test]
fn a_disk_that_is_full_or_fills_up() {
    let place = Place::new();
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-rm"] };
    let allowed = Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        return skip("no mount namespace may be made here");
    }
    let (dir, token) = (place.dir.path().display(), place.token());
    let script = format!(
        "mount -t tmpfs -o size=6m,nr_inodes=60 none {dir} && \
         exec {BIN} serve {dir} --listen 127.0.0.1:0 --writable --token {}",
        token.display()
    );
    let mut command = Command::new("unshare");
    command.args(flags).args(["sh", "-c", &script]);
    let server = Serve::start(command);
    let inside = PathBuf::from(format!("/proc/{}/root/{dir}", server.child.id()));
    let file = content(12 << 20);
    // Refused in advance, without the body.
    let expect = "Expect: 100-continue\r\n";
    let whole = part(0, file.len(), file.len(), true);
    let (status, reply) = ask(server.address, &format!("PATCH /f{UPLOAD}"), &(whole + expect), b"");
    assert_eq!(status, 507, "{reply}");
    let length = format!("Content-Length: {}\r\n{expect}", file.len());
    assert_eq!(ask(server.address, "PUT /f", &length, b"").0, 507);
    // Refused midway: a chunked body has no announced size.
    let (status, reply) = ask(server.address, "PUT /f", CHUNKED, &one_chunk(&file));
    assert_eq!(status, 507, "{reply}");
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "something is left");
    // A file that fits is accepted, and one that does not fit leaves no trace.
    let (small, begun) = (&file[..4 << 20], 1 << 20);
    let patch = |head: String, body: &[u8]| ask(server.address, &format!("PATCH /f{UPLOAD}"), &head, body).0;
    assert_eq!(patch(part(0, begun, small.len(), false), &small[..begun]), 204);
    assert_eq!(ask(server.address, "PUT /f", &length, b"").0, 507);
    let rest = part(begun, small.len() - begun, small.len(), true);
    assert_eq!(patch(rest, &small[begun..]), 201);
    assert!(fs::read(inside.join("f")).unwrap() == small);
    // A part of the disk stays free: 2 MiB are left, and 60 inodes, of which an unfinished upload
    // takes two.
    assert_eq!(
        ask(server.address, "PUT /g", "Content-Length: 1900000\r\nExpect: 100-continue\r\n", b"").0,
        507
    );
    let begin = |number: usize| {
        let head = part(0, 1, 2, false);
        ask(server.address, &format!("PATCH /{number}{UPLOAD}"), &head, b"x").0
    };
    let begun = (0..60).take_while(|number| begin(*number) == 204).count();
    assert!((20..29).contains(&begun), "{begun}");
    for (request, head) in [("PUT /g", "Content-Length: 0\r\n"), ("MKCOL /d", "")] {
        assert_eq!(ask(server.address, request, head, b"").0, 507, "{request}");
    }
    fs::write(inside.join("others"), vec![0; 400_000]).unwrap();
    server.stop();
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

fn one_chunk(file: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", file.len()).as_bytes(), file, b"\r\n0\r\n\r\n"].concat()
}

#[test]
fn file_size_limit_is_reported() {
    let place = Place::new();
    let plain = place.command(&[]);
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 1024; exec \"$@\"", "bash", BIN]).args(plain.get_args());
    let server = Serve::start(command);
    let file = content(3 << 20);
    let length = format!("Content-Length: {}\r\n", file.len());
    assert_eq!(ask(server.address, "PUT /f", &length, &file).0, 413);
    assert_eq!(ask(server.address, "PUT /f", CHUNKED, &one_chunk(&file)).0, 413);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0);
}

/// Runs a transfer, and stops the server once the first bytes are written to `part`; fails unless
/// both end successfully.
fn completes(run: &Get, server: Serve, part: &Path, bytes: &[u8]) {
    let mut running = run.start();
    let begins = |part: Vec<u8>| part.len() >= 8 && part[..8] == bytes[..8];
    running.until("the transfer has begun", || fs::read(part).is_ok_and(begins));
    server.stop();
    running.end().ok();
}

#[test]
fn put_and_get_complete_after_sigterm() {
    let bytes = content(10 << 20);
    for streams in ["1", "4"] {
        let place = Place::new();
        let (stored, options) = (place.dir.path().join("f"), ["--streams", streams, "--limit", "8MB/s"]);
        let server = Serve::start(place.command(&[]));
        let run = put().args(options).args(["f", &format!("http://{}/", server.address), "--token"]);
        let run = run.args([place.token()]).file("f", &bytes);
        completes(&run, server, &stored.with_extension("longhaul-part"), &bytes);
        same(stored, &bytes);
        let server = Serve::start(serve(place.dir.path(), &[]));
        let run = get().args(options).args(["-o", "f", &format!("http://{}/f", server.address)]);
        completes(&run, server, &run.path("f.longhaul-part"), &bytes);
        run.fetched(&bytes);
    }
}
