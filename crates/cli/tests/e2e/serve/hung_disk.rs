//! A file system that never answers holds up neither other files nor the end of the server.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::serve::fuse::{Daemon, FuseMount};
use crate::serve::open_files::with_open_files;
use crate::serve::uploads::{Place, ask};
use crate::serve::{Serve, get, serve};

/// Operations on one file system that a server performs at once; paths through links have as many
/// in all.
const OPERATIONS: usize = 24;

/// A directory with a file, and one where a file system is to be mounted.
fn tree() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "content").unwrap();
    let point = dir.path().join("hung");
    std::fs::create_dir(&point).unwrap();
    (dir, point)
}

/// Starts a server of a directory with a file, and mounts a file system in it; `None` where that is
/// not permitted.
fn start_beside_mount(daemon: Daemon) -> Option<(TempDir, PathBuf, Serve, FuseMount)> {
    let (dir, point) = tree();
    let server = Serve::start(serve(dir.path(), &[]));
    let mount = FuseMount::new(&point, daemon)?;
    Some((dir, point, server, mount))
}

fn request(server: &Serve, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{head}\r\n\r\n").unwrap();
    stream
}

/// Sends the head of an upload of a megabyte.
fn begin_put(server: &Serve, path: &str) -> TcpStream {
    let expect = "Host: h\r\nAuthorization: Bearer s3cret\r\nExpect: 100-continue\r\nContent-Length: 1000000";
    request(server, &format!("PUT {path} HTTP/1.1\r\n{expect}"))
}

/// Reads the server's answer to the head of an upload: 25 bytes are all of 100 (Continue).
fn interim_reply(stream: &mut TcpStream) -> String {
    let mut reply = [0; 25];
    stream.read_exact(&mut reply).unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

/// Signals twice: the second signal ends the server although requests wait for a disk.
fn interrupt_twice(server: &mut Serve) {
    server.signal(Signal::INT);
    server.wait_for_log("finishing");
    server.signal(Signal::INT);
}

/// Asserts that the second signal ends a server; the first one would take 30 seconds.
#[track_caller]
fn assert_second_signal_ends(mut server: Serve) {
    let started = Instant::now();
    interrupt_twice(&mut server);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}

fn request_all(server: &Serve, paths: impl Iterator<Item = String>) -> Vec<TcpStream> {
    paths.map(|path| request(server, &format!("GET {path} HTTP/1.1\r\nHost: h"))).collect()
}

/// Asserts that a small upload elsewhere succeeds, which waits for no hung disk: one would be given
/// up after 30 seconds.
#[track_caller]
fn assert_upload_elsewhere(server: &Serve, place: &Place) {
    let (status, reply) = ask(server.address, "PUT /f", "Content-Length: 4\r\n", b"file");
    assert_eq!(status, 201, "{reply}");
    assert_eq!(std::fs::read(place.dir.path().join("f")).unwrap(), b"file");
}

#[test]
fn hung_file_system_holds_up_neither_other_files_nor_the_end() {
    let Some((dir, _, server, mount)) = start_beside_mount(Daemon::ReadsNothing) else { return };
    std::fs::create_dir(dir.path().join("links")).unwrap();
    symlink("../hung/f", dir.path().join("links/link")).unwrap();
    // A listing must not follow the link on a thread of the file system that it lists.
    let paths = ["/hung/f", "/links/link", "/links/"].into_iter().cycle();
    let waiting = request_all(&server, paths.take(600).map(str::to_owned));
    mount.wait_for_requests(2 * OPERATIONS);
    assert!(get(server.address, "/f").ends_with("content"));
    assert!(get(server.address, "/").contains("hung"), "a listing does not wait for the mount point");
    assert_second_signal_ends(server);
    drop(waiting);
}

#[test]
fn hung_listings_hold_up_no_listing_of_another_file_system() {
    let (dir, first) = tree();
    let second = dir.path().join("hung too");
    std::fs::create_dir(&second).unwrap();
    let mut server = Serve::start(serve(dir.path(), &[]));
    // Directories that open, and whose entries never come: their listings have begun.
    let mounts = [first, second].map(|point| FuseMount::new(&point, Daemon::ListsNothing));
    let [Some(first), Some(second)] = mounts else { return };
    let paths = ["/hung/", "/hung%20too/"].into_iter().cycle();
    let waiting = request_all(&server, paths.take(80).map(str::to_owned));
    // As many as one client may have of a file system.
    [&first, &second].iter().for_each(|mount| mount.wait_for_requests(16));
    let listing = get(server.address, "/");
    assert!(listing.starts_with("HTTP/1.1 200 ") && listing.contains(">f<"), "{listing}");
    interrupt_twice(&mut server);
    drop((first, second));
    assert_eq!(server.end().0, Some(0));
    drop(waiting);
}

#[test]
fn listing_shows_links_to_other_file_systems_that_answer() {
    let Some((dir, point, server, _mount)) = start_beside_mount(Daemon::Answers) else { return };
    symlink("hung/made", dir.path().join("there")).unwrap();
    symlink("/proc/version", dir.path().join("outside")).unwrap();
    std::fs::write(point.join("made"), "123").unwrap();
    let listing = get(server.address, "/");
    assert!(listing.contains("there") && listing.contains(">f<"), "{listing}");
    assert!(!listing.contains("outside"), "{listing}");
}

#[test]
fn uploads_to_hung_file_systems_hold_up_neither_an_upload_elsewhere_nor_the_end() {
    const HUNG: [&str; 5] = ["a", "b", "c", "d", "e"];
    const UPLOADS_OF_EACH: usize = 16;
    // With the usual limit of open files, and with one that allows ten uploads in all.
    for files in [10_000, 600] {
        let place = Place::new();
        let points = HUNG.map(|name| place.dir.path().join(name));
        points.iter().for_each(|point| std::fs::create_dir(point).unwrap());
        let server = Serve::start(with_open_files(files, &place.command(&[])));
        let mounts: Vec<_> =
            points.iter().filter_map(|point| FuseMount::new(point, Daemon::Answers)).collect();
        if mounts.len() < HUNG.len() {
            return;
        }
        // FLUSH is refused once: for each one that is not answered, the kernel would keep the
        // process.
        points.iter().for_each(|point| std::fs::write(point.join("flushed"), "").unwrap());
        let paths =
            HUNG.iter().flat_map(|name| (0..UPLOADS_OF_EACH).map(move |file| format!("/{name}/{file}")));
        let mut begun = Vec::new();
        for mut stream in paths.map(|path| begin_put(&server, &path)) {
            let reply = interim_reply(&mut stream);
            if reply.starts_with("HTTP/1.1 100 ") {
                begun.push(stream);
            } else {
                assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
            }
        }
        assert!(begun.len() >= HUNG.len(), "{files}: {} uploads were begun", begun.len());
        mounts.iter().for_each(|mount| mount.set(Daemon::ReadsNothing));
        for stream in &mut begun {
            stream.write_all(&[7; 1_000_000]).unwrap();
        }
        mounts.iter().for_each(|mount| mount.wait_for_requests(1));
        if files > 1000 {
            // Before they start, these wait for the file system, which their path reaches through a
            // link.
            symlink("a", place.dir.path().join("linked")).unwrap();
            begun.extend((0..64).map(|number| begin_put(&server, &format!("/linked/{number}"))));
            mounts[0].wait_for_requests(UPLOADS_OF_EACH + OPERATIONS);
        }
        assert_upload_elsewhere(&server, &place);
        assert_second_signal_ends(server);
    }
}

#[test]
fn replies_from_a_hung_file_system_are_closed_by_its_own_threads() {
    let Some((_dir, point, mut server, mount)) = start_beside_mount(Daemon::AnswersFlush) else { return };
    // In the page cache: the replies wait for their clients only.
    std::fs::write(point.join("large"), vec![7; 32 << 20]).unwrap();
    let mut waiting = request_all(&server, std::iter::repeat_n("/hung/large".to_owned(), 8));
    for stream in &mut waiting {
        stream.read_exact(&mut [0]).unwrap();
    }
    mount.set(Daemon::AnswersNothing);
    drop(waiting);
    mount.wait_for_requests(8);
    assert!(get(server.address, "/f").ends_with("content"));
    interrupt_twice(&mut server);
    drop(mount);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn port_is_free_after_the_second_signal_even_where_the_kernel_keeps_the_process() {
    let Some((_dir, _, mut server, mount)) = start_beside_mount(Daemon::AnswersNothing) else { return };
    let waiting = request_all(&server, std::iter::repeat_n("/hung/f".to_owned(), 30));
    mount.wait_for_unanswered();
    interrupt_twice(&mut server);
    super::wait_until("the port is free", || TcpListener::bind(server.address).is_ok());
    // No signal ends a thread that waits for the answer to a request that the daemon has read.
    assert_eq!(server.child.try_wait().unwrap(), None);
    drop(mount);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    drop(waiting);
}

/// Writes a file of tokens: one for the whole directory, and one for a directory below it.
fn write_tokens(path: &Path, first: &str, directory: &str) {
    let entry = |name: &str, token: &str, directory: &str| {
        format!(
            "[[token]]\nname = \"{name}\"\ntoken = \"{token}\"\ndirectory = \"{directory}\"\nrights = [\"write\"]\n"
        )
    };
    std::fs::write(path, entry("all", first, "/") + &entry("hung", "hungs", directory)).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn token_for_a_hung_directory_delays_neither_the_start_nor_a_revocation() {
    let (dir, point) = tree();
    let beside = tempfile::tempdir().unwrap();
    let tokens = beside.path().join("tokens");
    write_tokens(&tokens, "s3cret", "/hung/below");
    let Some(_mount) = FuseMount::new(&point, Daemon::ReadsNothing) else { return };
    let args = ["--writable", "--tokens", tokens.to_str().unwrap()];
    let mut server = Serve::start(serve(dir.path(), &args));
    let put = || ask(server.address, "PUT /new", "Content-Length: 1\r\n", b"x").0;
    assert_eq!(put(), 201);
    write_tokens(&tokens, "other", "/hung/elsewhere");
    super::wait_until("the revoked token is out of force", || put() == 401);
    server.wait_for_log("/hung/elsewhere");
    assert_eq!(server.logged.matches("does not answer").count(), 2, "{}", server.logged);
    assert!(server.logged.contains("/hung/below"), "{}", server.logged);
    assert_second_signal_ends(server);
}

#[test]
fn hung_file_systems_do_not_keep_uploads_elsewhere_from_the_quota() {
    let place = Place::new();
    let points = ["hung", "hung too"].map(|name| place.dir.path().join(name));
    points.iter().for_each(|point| std::fs::create_dir(point).unwrap());
    let mounts = points.map(|point| FuseMount::new(&point, Daemon::ReadsNothing));
    if mounts.iter().any(Option::is_none) {
        return;
    }
    let server = Serve::start(place.command(&["--upload-quota", "1MiB"]));
    assert!(!ask(server.address, "GET /?uploads", "", b"").1.contains("\"used\":"), "nothing is counted yet");
    assert_upload_elsewhere(&server, &place);
    let (_, listing) = ask(server.address, "GET /?uploads", "", b"");
    assert!(listing.contains("\"used_at_least\":0"), "{listing}");
    assert_eq!(ask(server.address, "PUT /g", "Content-Length: 2000000\r\n", b"").0, 507);
    assert_second_signal_ends(server);
    drop(mounts);
}
