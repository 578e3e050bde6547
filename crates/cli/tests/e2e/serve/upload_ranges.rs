//! Ranges of one upload over several connections in any order, and their errors.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;

use crate::serve::Serve;
use crate::serve::uploads::{Place, UPLOAD, ask, content, part};

const SIZE: usize = 12 << 20;
const MIB: usize = 1 << 20;

fn lines(start: usize, end: usize) -> String {
    lines_of(start, end, SIZE)
}

fn lines_of(start: usize, end: usize, size: usize) -> String {
    format!(
        "Content-Type: application/partial-upload\r\nContent-Range: bytes {start}-{}/{size}\r\n\
         Upload-Complete: ?0\r\nWant-Repr-Digest: blake3=10\r\nContent-Length: {}\r\n",
        end - 1,
        end - start
    )
}

/// Uploads a range of `file`.
fn add(address: SocketAddr, file: &[u8], start: usize, end: usize) -> (u16, String) {
    ask(address, &format!("PATCH /f{UPLOAD}"), &lines(start, end), &file[start..end])
}

fn complete(address: SocketAddr, file: &[u8]) -> (u16, String) {
    let digest = STANDARD.encode(blake3::hash(file).as_bytes());
    let fields = part(SIZE, 0, SIZE, true)
        + &format!("Repr-Digest: blake3=:{digest}:\r\nWant-Repr-Digest: blake3=10\r\n");
    ask(address, &format!("PATCH /f{UPLOAD}"), &fields, b"")
}

fn held(address: SocketAddr) -> String {
    let (status, reply) = ask(address, &format!("HEAD /f{UPLOAD}"), "", b"");
    assert_eq!(status, 204, "{reply}");
    reply.lines().find_map(|line| line.strip_prefix("Upload-Ranges: ")).unwrap().to_owned()
}

/// Sends the head of a range and the first `sent` bytes of its body.
fn begin(address: SocketAddr, file: &[u8], (start, end): (usize, usize), sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "PATCH /f{UPLOAD} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer s3cret\r\n"
    );
    stream.write_all(format!("{head}{}\r\n", lines(start, end)).as_bytes()).unwrap();
    stream.write_all(&file[start..start + sent]).unwrap();
    stream
}

/// Sends the rest of a range; returns the status.
fn end(mut stream: TcpStream, rest: &[u8]) -> u16 {
    stream.write_all(rest).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn ranges_are_offered_and_complete_an_upload_in_any_order() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    let (_, options) = ask(server.address, "OPTIONS /f", "", b"");
    assert!(options.contains("Upload-Limit: concurrent-ranges=128\r\n"), "{options}");
    for (start, end) in [(8 * MIB, SIZE), (MIB + 5, 8 * MIB)] {
        assert_eq!(add(server.address, &file, start, end).0, 202);
    }
    assert_eq!(held(server.address), format!("bytes={}-{}", MIB + 5, SIZE - 1));
    let (status, reply) = complete(server.address, &file);
    assert_eq!(status, 409, "{reply}");
    assert!(reply.contains(&format!("the upload lacks bytes 0..{}\n", MIB + 5)), "{reply}");
    assert!(reply.contains("Upload-Offset: 0\r\n") && reply.contains("Upload-Ranges: bytes="), "{reply}");
    assert_eq!(add(server.address, &file, 0, MIB + 5).0, 202);
    assert_eq!(complete(server.address, &file).0, 201);
    assert!(fs::read(place.dir.path().join("f")).unwrap() == file);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);
}

#[test]
fn overlapping_range_is_refused_while_the_other_arrives_and_taken_once_that_is_silent() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    let first = begin(server.address, &file, (0, 8 * MIB), 2 * MIB);
    std::thread::sleep(Duration::from_millis(200));
    let (status, reply) = add(server.address, &file, 4 * MIB, SIZE);
    assert_eq!(status, 423, "{reply}");
    assert!(reply.contains("this range of it, is being written"), "{reply}");
    // Other ranges are still accepted.
    assert_eq!(add(server.address, &file, 8 * MIB, SIZE).0, 202);
    assert_eq!(end(first, &file[2 * MIB..8 * MIB]), 202);
    assert_eq!(held(server.address), format!("bytes=0-{}", SIZE - 1));

    // A connection that is lost without a FIN.
    let silent = begin(server.address, &file, (0, 8 * MIB), 2 * MIB);
    std::thread::sleep(Duration::from_millis(3300));
    assert_eq!(add(server.address, &file, 0, 8 * MIB).0, 202);
    drop(silent);
    assert_eq!(complete(server.address, &file).0, 201);
    assert!(fs::read(place.dir.path().join("f")).unwrap() == file);
}

#[test]
fn digest_decides_where_a_range_comes_twice_with_other_bytes() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    let mut wrong = file.clone();
    wrong[5 * MIB..5 * MIB + 100].fill(7);
    for (first, last, status) in [(&wrong, &file, 201), (&file, &wrong, 422)] {
        let _ = fs::remove_file(place.dir.path().join("f"));
        assert_eq!(add(server.address, first, 0, 8 * MIB).0, 202);
        assert_eq!(add(server.address, &file, 8 * MIB, SIZE).0, 202);
        assert_eq!(add(server.address, last, 4 * MIB, 6 * MIB).0, 202);
        assert_eq!(complete(server.address, &file).0, status);
        let there = fs::read(place.dir.path().join("f")).ok();
        assert!(there == (status == 201).then(|| file.clone()));
    }
    assert_eq!(ask(server.address, &format!("HEAD /f{UPLOAD}"), "", b"").0, 404, "it is deleted");
    // A range is discarded if its second transmission breaks off.
    assert_eq!(add(server.address, &file, 0, SIZE).0, 202);
    drop(begin(server.address, &wrong, (4 * MIB, 6 * MIB), MIB + 100));
    let until = Instant::now() + Duration::from_secs(20);
    while held(server.address) == format!("bytes=0-{}", SIZE - 1) {
        assert!(Instant::now() < until, "the range still counts");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(complete(server.address, &file).0, 409);
    assert_eq!(add(server.address, &file, 4 * MIB, 6 * MIB).0, 202);
    assert_eq!(complete(server.address, &file).0, 201);
}

#[test]
fn sequential_client_resumes_an_upload_of_ranges() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    assert_eq!(add(server.address, &file, 0, 2 * MIB).0, 202);
    assert_eq!(add(server.address, &file, 8 * MIB, SIZE).0, 202);
    let (_, reply) = ask(server.address, &format!("HEAD /f{UPLOAD}"), "", b"");
    assert!(reply.contains(&format!("Upload-Offset: {}\r\n", 2 * MIB)), "{reply}");
    let rest = part(2 * MIB, SIZE - 2 * MIB, SIZE, true);
    assert_eq!(ask(server.address, &format!("PATCH /f{UPLOAD}"), &rest, &file[2 * MIB..]).0, 201);
    assert!(fs::read(place.dir.path().join("f")).unwrap() == file);
}

#[test]
fn ranges_of_other_uploads_and_sizes_are_refused() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    let first = begin(server.address, &file, (0, MIB), 100);
    std::thread::sleep(Duration::from_millis(200));
    let other = "/f?upload=ffeeddccbbaa99887766554433221100";
    assert_eq!(ask(server.address, &format!("PATCH {other}"), &lines(0, MIB), &file[..MIB]).0, 423);
    let shorter = lines_of(2 * MIB, 3 * MIB, SIZE - 1);
    assert_eq!(ask(server.address, &format!("PATCH /f{UPLOAD}"), &shorter, &file[..MIB]).0, 400);
    assert_eq!(ask(server.address, "PUT /f", &format!("Content-Length: {MIB}\r\n"), &file[..MIB]).0, 423);
    assert_eq!(end(first, &file[100..MIB]), 202);
    // An idle upload is evicted.
    assert_eq!(ask(server.address, &format!("PATCH {other}"), &lines(0, MIB), &file[..MIB]).0, 202);
    assert_eq!(ask(server.address, &format!("DELETE {other}"), "", b"").0, 204);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0);
}

#[test]
fn killed_server_names_only_ranges_that_are_on_the_disk() {
    let place = Place::new();
    let file = content(SIZE);
    let server = Serve::start(place.command(&[]));
    // Data beyond the first 4 MiB of a segment lets the first half be written.
    let streams = [
        begin(server.address, &file, (0, 6 * MIB), 5 * MIB),
        begin(server.address, &file, (7 * MIB, SIZE), 3 * MIB),
    ];
    let journal = place.dir.path().join("f.longhaul-journal");
    let until = Instant::now() + Duration::from_secs(20);
    let both = |text: String| text.contains("[[0,") && text.contains(&format!("[{},", 7 * MIB));
    while !fs::read_to_string(&journal).is_ok_and(both) {
        assert!(Instant::now() < until, "nothing is committed");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal(Signal::KILL);
    drop((server.end(), streams));

    let server = Serve::start(place.command(&[]));
    let named = held(server.address);
    let of_part = fs::read(place.dir.path().join("f.longhaul-part")).unwrap();
    let mut missing = 0;
    for range in named.strip_prefix("bytes=").unwrap().split(',') {
        let (first, last) = range.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        assert!(of_part[first..=last] == file[first..=last], "{named}");
        if first > missing {
            assert_eq!(add(server.address, &file, missing, first).0, 202);
        }
        missing = last + 1;
    }
    assert!(named.contains(','), "{named}");
    assert_eq!(add(server.address, &file, missing, SIZE).0, 202);
    assert_eq!(complete(server.address, &file).0, 201);
    assert!(fs::read(place.dir.path().join("f")).unwrap() == file);
}

#[test]
fn upload_between_two_ranges_is_kept_from_another_for_three_seconds() {
    let place = Place::new();
    let server = Serve::start(place.command(&[]));
    let file = content(SIZE);
    let address = server.address;
    let other = "/f?upload=ffeeddccbbaa99887766554433221100";
    let whole = file.clone();
    type RivalRequest = fn(SocketAddr, &str, &[u8]) -> u16;
    let ways: [RivalRequest; 3] = [
        |address, other, file| ask(address, &format!("PATCH {other}"), &lines(0, MIB), &file[..MIB]).0,
        |address, other, file| ask(address, &format!("PATCH {other}"), &part(0, SIZE, SIZE, true), file).0,
        |address, _, file| ask(address, "PUT /f", &format!("Content-Length: {SIZE}\r\n"), file).0,
    ];
    for way in ways {
        assert_eq!(add(address, &file, 0, MIB).0, 202);
        let bytes = whole.clone();
        let rival = std::thread::spawn(move || way(address, other, &bytes));
        // Its next ranges arrive one second apart, as over a path with a long queue.
        for start in 1..3 {
            std::thread::sleep(Duration::from_millis(1000));
            assert_eq!(add(address, &file, start * MIB, (start + 1) * MIB).0, 202);
        }
        assert_eq!(add(address, &file, 3 * MIB, SIZE).0, 202);
        let (status, reply) = complete(address, &file);
        assert!(matches!(status, 201 | 204), "it was given up: {reply}");
        // The other upload is accepted once this one is complete.
        let rival = rival.join().unwrap();
        assert!(matches!(rival, 201 | 202 | 204 | 423), "{rival}");
        let _ = ask(address, &format!("DELETE {other}"), "", b"");
    }
    // A discarded upload frees its place.
    assert_eq!(add(address, &file, 0, MIB).0, 202);
    assert_eq!(ask(address, "PUT /f", &format!("Content-Length: {SIZE}\r\n"), &file).0, 204);
}
