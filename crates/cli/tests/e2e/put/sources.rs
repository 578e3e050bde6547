//! Sources that cannot be sent, or that change.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{address_of, holding, is_verified, midway, put_of, to};
use crate::support::lab::ran;
use crate::support::{Nginx, Writable, content, needs_root, public_copy, put, same, write_secret};

#[test]
fn unreadable_source_is_refused_before_a_request() {
    let url = "http://127.0.0.1:1/";
    let mut run = put();
    fs::create_dir(run.path("dir")).unwrap();
    assert!(Command::new("mkfifo").arg(run.path("pipe")).status().unwrap().success());
    for (path, code, words) in [
        ("none", 66, &["none", "No such file"][..]),
        ("dir", 66, &["dir", "a directory", "-r"]),
        ("pipe", 66, &["pipe", "a pipe"]),
        ("/dev/null", 66, &["/dev/null", "a device"]),
        ("/proc/cpuinfo", 66, &["/proc/cpuinfo", "states a size of 0", "copy it"]),
        ("/", 64, &["has no name"]),
    ] {
        run = run.again([path, url]);
        run.run().fails(code, words);
    }
}

#[test]
fn unreadable_file_of_another_user_is_refused() {
    let Some(()) = needs_root("becoming another user") else { return };
    let (dir, program) = public_copy();
    write_secret(dir.path().join("f"), "secret");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command.args(["put", "f", "http://127.0.0.1:1/"]).current_dir(dir.path());
    ran(command).fails(77, &["cannot open f: Permission denied"]);
}

#[test]
fn changed_source_never_gets_its_name() {
    let writable = Writable::start();
    let nginx = Nginx::start();
    let mut servers = vec![(writable.address(), "/f", "1"), (writable.address(), "/f", "4")];
    servers.extend(nginx.iter().map(|site| (address_of(site), "/dav/f", "1")));
    for (address, target, streams) in servers {
        for (reader, shrinks) in
            [("sendfile", false), ("sendfile", true), ("direct", false), ("direct", true)]
        {
            let run = put_of(&content(24 << 20, 7), &["--reader", reader, "--streams", streams, "--token"]);
            let path = run.path("f");
            let relay = midway(address, move || {
                let file = File::options().write(true).open(&path).unwrap();
                if shrinks { file.set_len(1 << 20).unwrap() } else { file.write_all_at(b"new", 5).unwrap() }
            });
            let run = run.args([writable.token()]).args(["f", &relay.url(target)]);
            run.run().fails(65, &["f changed while it was sent", "run again"]);
            assert!(!writable.path("f").exists(), "{target} {streams} {reader} {shrinks}");
        }
    }
}

#[test]
fn source_is_read_for_its_digest_only_where_that_is_compared() {
    let Some(plain) = Nginx::start() else { return };
    let resumable = Writable::start();
    for (address, target, hashes) in
        [(address_of(&plain), "/dav/f", false), (resumable.address(), "/f", true)]
    {
        let (relay, midway, _release) = holding(address);
        let run = put_of(&content(32 << 20, 1), &["--limit", "16MB/s", "--token"]).args([resumable.token()]);
        let run = run.args(["f", &relay.url(target)]);
        let mut running = run.start();
        running.until("it is midway", || midway.try_recv().is_ok());
        let mut threads = running.threads();
        let is_there = |threads: &[String]| threads.iter().any(|name| name == "hasher");
        // A thread has its name only once it runs.
        let deadline = Instant::now() + Duration::from_secs(10);
        while hashes && !is_there(&threads) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            threads = running.threads();
        }
        assert_eq!(is_there(&threads), hashes, "{threads:?}");
    }
}

#[test]
fn file_read_with_direct_io_is_read_and_hashed_once() {
    const SIZE: usize = (48 << 20) + 4097;
    let site = Writable::start();
    let bytes = content(SIZE, 11);
    for streams in ["1", "3"] {
        let run = to(&site, "/f", &bytes).args(["--reader", "direct", "--streams", streams]);
        let (mut running, mut read) = (run.start(), 0);
        // The counter is gone when the process ends, so the last reading counts.
        while !running.has_ended() {
            read = running.bytes_read().unwrap_or(read);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_verified(&running.end().ok()));
        same(site.path("f"), &bytes);
        assert!(read < SIZE * 5 / 4, "{read} bytes of {SIZE} were read over {streams} streams");
    }
}
