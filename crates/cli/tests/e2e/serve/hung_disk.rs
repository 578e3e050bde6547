//! A file system that never answers holds up neither other files nor the end of the server.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::serve::fuse::{Daemon, FuseMount};
use crate::serve::open_files::with_open_files;
use crate::serve::starvation::without_attack;
use crate::serve::uploads::{Place, ask};
use crate::serve::{Serve, get, serve};

/// A directory with a file, and one where a file system is to be mounted.
fn tree() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "content").unwrap();
    let point = dir.path().join("hung");
    std::fs::create_dir(&point).unwrap();
    (dir, point)
}

/// Starts a server, and mounts a file system in the directory that it serves; `None` where that is not permitted.
fn start_beside_mount(command: Command, point: &Path, daemon: Daemon) -> Option<(Serve, FuseMount)> {
    let server = Serve::start(command);
    let mount = FuseMount::new(point, daemon)?;
    Some((server, mount))
}

fn request(server: &Serve, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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

/// Signals twice; returns when the second signal was sent.
fn interrupt_twice(server: &Serve) -> Instant {
    server.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(200));
    server.signal(Signal::INT);
    Instant::now()
}

#[track_caller]
fn assert_second_signal_ends(server: Serve) {
    let started = interrupt_twice(&server);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn hung_file_system_holds_up_neither_other_files_nor_the_end() {
    let _alone = without_attack();
    let (dir, point) = tree();
    std::fs::create_dir(dir.path().join("links")).unwrap();
    symlink("../hung/f", dir.path().join("links/link")).unwrap();
    let command = serve(dir.path(), &[]);
    let Some((server, _mount)) = start_beside_mount(command, &point, Daemon::ReadsNothing) else { return };
    // A listing must not follow the link on a thread of the file system that it lists.
    let paths = ["/hung/f", "/links/link", "/links/"].into_iter().cycle();
    let waiting: Vec<TcpStream> =
        paths.take(600).map(|path| request(&server, &format!("GET {path} HTTP/1.1\r\nHost: h"))).collect();
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    assert!(get(server.address, "/f").ends_with("content"));
    assert!(get(server.address, "/").contains("hung"), "a listing does not wait for the mount point");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_second_signal_ends(server);
    drop(waiting);
}

#[test]
fn hung_listings_hold_up_no_listing_of_another_file_system() {
    let _alone = without_attack();
    let (dir, first) = tree();
    let second = dir.path().join("hung too");
    std::fs::create_dir(&second).unwrap();
    let server = Serve::start(serve(dir.path(), &[]));
    // Directories that open, and whose entries never come: their listings have begun.
    let mounts = [first, second].map(|point| FuseMount::new(&point, Daemon::ListsNothing));
    if mounts.iter().any(Option::is_none) {
        return;
    }
    let paths = ["/hung/", "/hung%20too/"].into_iter().cycle();
    let waiting: Vec<TcpStream> =
        paths.take(80).map(|path| request(&server, &format!("GET {path} HTTP/1.1\r\nHost: h"))).collect();
    std::thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    let listing = get(server.address, "/");
    assert!(listing.starts_with("HTTP/1.1 200 ") && listing.contains(">f<"), "{listing}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    interrupt_twice(&server);
    drop(mounts);
    assert_eq!(server.end().0, Some(0));
    drop(waiting);
}

#[test]
fn listing_shows_links_to_other_file_systems_that_answer() {
    let _alone = without_attack();
    let (dir, point) = tree();
    symlink("hung/made", dir.path().join("there")).unwrap();
    symlink("/proc/version", dir.path().join("outside")).unwrap();
    let command = serve(dir.path(), &[]);
    let Some((server, _mount)) = start_beside_mount(command, &point, Daemon::Answers) else { return };
    std::fs::write(point.join("made"), "123").unwrap();
    let listing = get(server.address, "/");
    assert!(listing.contains("there") && listing.contains(">f<"), "{listing}");
    assert!(!listing.contains("outside"), "{listing}");
}

#[test]
fn uploads_to_a_hung_file_system_hold_up_neither_others_nor_the_end() {
    let _alone = without_attack();
    const UPLOADS: usize = 16;
    let place = Place::new();
    let point = place.dir.path().join("hung");
    std::fs::create_dir(&point).unwrap();
    let linked = place.dir.path().join("linked");
    symlink("hung", &linked).unwrap();
    let command = place.command(&[]);
    let Some((server, mount)) = start_beside_mount(command, &point, Daemon::Answers) else { return };
    // FLUSH is refused once: for each one that is not answered, the kernel would keep the process.
    std::fs::write(point.join("flushed"), "").unwrap();
    let mut waiting: Vec<TcpStream> =
        (0..UPLOADS).map(|number| begin_put(&server, &format!("/hung/{number}"))).collect();
    for stream in &mut waiting {
        let interim = interim_reply(stream);
        assert!(interim.starts_with("HTTP/1.1 100 "), "{interim}");
    }
    mount.set(Daemon::ReadsNothing);
    for stream in &mut waiting {
        stream.write_all(&[7; 1_000_000]).unwrap();
    }
    // Before they start, these wait for the file system, which their path reaches through a link.
    waiting.extend((0..64).map(|number| begin_put(&server, &format!("/linked/{number}"))));
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    let (status, reply) = ask(server.address, "PUT /f", "Content-Length: 4\r\n", b"file");
    assert!(status == 201 && started.elapsed() < Duration::from_secs(1), "{:?} {reply}", started.elapsed());
    assert_eq!(std::fs::read(place.dir.path().join("f")).unwrap(), b"file");
    assert_second_signal_ends(server);
    drop(waiting);
}

#[test]
fn uploads_to_hung_file_systems_leave_a_place_to_an_upload_elsewhere() {
    let _alone = without_attack();
    const HUNG: [&str; 5] = ["a", "b", "c", "d", "e"];
    const UPLOADS_OF_EACH: usize = 16;
    // With the usual limit of open files, and with one that allows eleven uploads in all.
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
        // FLUSH is refused once: for each one that is not answered, the kernel would keep the process.
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
        std::thread::sleep(Duration::from_millis(300));
        let started = Instant::now();
        let (status, reply) = ask(server.address, "PUT /f", "Content-Length: 4\r\n", b"file");
        let took = started.elapsed();
        assert!(status == 201 && took < Duration::from_secs(1), "{files}: {took:?} {reply}");
        assert_eq!(std::fs::read(place.dir.path().join("f")).unwrap(), b"file");
        assert_second_signal_ends(server);
    }
}

#[test]
fn replies_from_a_hung_file_system_are_closed_by_its_own_threads() {
    let _alone = without_attack();
    let (dir, point) = tree();
    let command = serve(dir.path(), &[]);
    let Some((server, mount)) = start_beside_mount(command, &point, Daemon::AnswersFlush) else { return };
    // In the page cache: the replies wait for their clients only.
    std::fs::write(point.join("large"), vec![7; 32 << 20]).unwrap();
    let mut waiting: Vec<TcpStream> =
        (0..8).map(|_| request(&server, "GET /hung/large HTTP/1.1\r\nHost: h")).collect();
    for stream in &mut waiting {
        stream.read_exact(&mut [0]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    mount.set(Daemon::AnswersNothing);
    drop(waiting);
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    assert!(get(server.address, "/f").ends_with("content"));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    interrupt_twice(&server);
    drop(mount);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn port_is_free_after_the_second_signal_even_where_the_kernel_keeps_the_process() {
    let _alone = without_attack();
    let (dir, point) = tree();
    let command = serve(dir.path(), &[]);
    let Some((mut server, mount)) = start_beside_mount(command, &point, Daemon::AnswersNothing) else {
        return;
    };
    let waiting: Vec<TcpStream> =
        (0..30).map(|_| request(&server, "GET /hung/f HTTP/1.1\r\nHost: h")).collect();
    std::thread::sleep(Duration::from_millis(300));
    let started = interrupt_twice(&server);
    while let Err(error) = TcpListener::bind(server.address) {
        assert!(started.elapsed() < Duration::from_secs(2), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
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
    let _alone = without_attack();
    let (dir, point) = tree();
    let beside = tempfile::tempdir().unwrap();
    let tokens = beside.path().join("tokens");
    write_tokens(&tokens, "s3cret", "/hung/below");
    let Some(_mount) = FuseMount::new(&point, Daemon::ReadsNothing) else { return };
    let started = Instant::now();
    let args = ["--writable", "--tokens", tokens.to_str().unwrap()];
    let mut server = Serve::start(serve(dir.path(), &args));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let put = || ask(server.address, "PUT /new", "Content-Length: 1\r\n", b"x").0;
    assert_eq!(put(), 201);
    write_tokens(&tokens, "other", "/hung/elsewhere");
    let changed = Instant::now();
    while put() != 401 {
        assert!(changed.elapsed() < Duration::from_secs(5), "a revoked token is still in force");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.wait_for_log("/hung/elsewhere");
    assert_eq!(server.logged.matches("does not answer").count(), 2, "{}", server.logged);
    assert!(server.logged.contains("/hung/below"), "{}", server.logged);
    assert_second_signal_ends(server);
}

#[test]
fn missing_directory_of_a_token_keeps_the_server_from_starting() {
    let (dir, _) = tree();
    let beside = tempfile::tempdir().unwrap();
    let (tokens, record) = (beside.path().join("tokens"), beside.path().join("record"));
    write_tokens(&tokens, "s3cret", "/none");
    let args = ["--writable", "--tokens", tokens.to_str().unwrap(), "--record", record.to_str().unwrap()];
    let output = serve(dir.path(), &args).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{messages}");
    assert!(messages.contains("line 9: the directory /none of token 'hung'"), "{messages}");
    assert!(!record.exists(), "a record was begun");
}

#[test]
fn hung_file_systems_do_not_keep_uploads_elsewhere_from_the_quota() {
    let _alone = without_attack();
    let place = Place::new();
    let points = ["hung", "hung too"].map(|name| place.dir.path().join(name));
    points.iter().for_each(|point| std::fs::create_dir(point).unwrap());
    let mounts = points.map(|point| FuseMount::new(&point, Daemon::ReadsNothing));
    if mounts.iter().any(Option::is_none) {
        return;
    }
    let server = Serve::start(place.command(&["--upload-quota", "1MiB"]));
    let started = Instant::now();
    assert!(!ask(server.address, "GET /?uploads", "", b"").1.contains("\"used\":"), "nothing is counted yet");
    let (status, reply) = ask(server.address, "PUT /f", "Content-Length: 4\r\n", b"file");
    assert!(status == 201 && started.elapsed() < Duration::from_secs(6), "{:?} {reply}", started.elapsed());
    let (_, listing) = ask(server.address, "GET /?uploads", "", b"");
    assert!(listing.contains("\"used_at_least\":0"), "{listing}");
    assert_eq!(ask(server.address, "PUT /g", "Content-Length: 2000000\r\n", b"").0, 507);
    assert_second_signal_ends(server);
    drop(mounts);
}
