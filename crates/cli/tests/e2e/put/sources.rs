//! Sources that cannot be sent, or that change.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Nginx, Put, Running, Writable, content, put, same, skip};

/// A put of a file of 32 MiB, slow enough to be modified midway.
fn slow(reader: &str, url: &str) -> Put {
    let run = put().args(["--limit", "16MB/s", "--reader", reader, "f", url]);
    fs::write(run.path("f"), content(32 << 20, 1)).unwrap();
    run
}

/// Starts the put and waits until data was sent.
fn in_the_midst(run: &Put) -> Running {
    let mut running = run.start();
    let began = Instant::now();
    running.until("some is sent", || began.elapsed() > Duration::from_millis(500));
    running
}

#[test]
fn unreadable_source_is_refused_before_a_request() {
    let url = "http://127.0.0.1:1/";
    let run = put().args(["none", url]);
    run.run().fails(66, &["none", "No such file"]);
    fs::create_dir(run.path("dir")).unwrap();
    let run = run.again(["dir", url]);
    run.run().fails(66, &["dir", "a directory", "-r"]);
    assert!(Command::new("mkfifo").arg(run.path("pipe")).status().unwrap().success());
    let run = run.again(["pipe", url]);
    run.run().fails(66, &["pipe", "a pipe"]);
    let run = run.again(["/dev/null", url]);
    run.run().fails(66, &["/dev/null", "a device"]);
    let run = run.again(["/proc/cpuinfo", url]);
    run.run().fails(66, &["/proc/cpuinfo", "states a size of 0", "copy it"]);
    run.again(["/", url]).run().fails(64, &["has no name"]);
}

#[test]
fn unreadable_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become another user");
    }
    let run = put().args(["f", "http://127.0.0.1:1/"]);
    fs::write(run.path("f"), "secret").unwrap();
    fs::set_permissions(run.path("f"), Permissions::from_mode(0o600)).unwrap();
    // In a world-readable directory: a private one would be refused itself.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), dir.path().join("longhaul")).unwrap();
    fs::copy(run.path("f"), dir.path().join("f")).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(dir.path().join("longhaul"))
        .args(["put", "f", "http://127.0.0.1:1/"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{stderr}");
    assert!(stderr.contains("cannot open f: Permission denied"), "{stderr}");
}

#[test]
fn modified_source_is_reported() {
    let Some(site) = Nginx::start() else { return };
    for reader in ["sendfile", "direct"] {
        let run = slow(reader, &site.url("/dav/"));
        let running = in_the_midst(&run);
        File::options().write(true).open(run.path("f")).unwrap().write_all_at(b"new", 5).unwrap();
        running.end().fails(65, &["f changed while it was sent", "run again"]);
    }
}

#[test]
fn a_source_is_read_for_its_digest_only_where_that_is_compared() {
    let Some(plain) = Nginx::start() else { return };
    let resumable = Writable::start();
    for (url, token, hashes) in
        [(plain.url("/dav/"), None, false), (resumable.url("/"), Some(resumable.token()), true)]
    {
        let mut run = slow("sendfile", &url);
        if let Some(token) = token {
            run = run.args([OsStr::new("--token"), token.as_os_str()]);
        }
        let running = in_the_midst(&run);
        let threads = running.threads();
        assert_eq!(threads.iter().any(|name| name == "hasher"), hashes, "{threads:?}");
    }
}

#[test]
fn shrunk_source_is_reported() {
    let Some(site) = Nginx::start() else { return };
    for reader in ["sendfile", "direct"] {
        let run = slow(reader, &site.url("/dav/"));
        let running = in_the_midst(&run);
        File::options().write(true).open(run.path("f")).unwrap().set_len(1 << 20).unwrap();
        running.end().fails(65, &["f changed while it was sent"]);
    }
}

#[test]
fn file_read_with_direct_io_is_read_and_hashed_once() {
    const SIZE: usize = (64 << 20) + 4097;
    let site = Writable::start();
    let bytes = content(SIZE, 11);
    for streams in ["1", "3"] {
        let run =
            crate::put::serve::to(&site, "/f", &bytes).args(["--reader", "direct", "--streams", streams]);
        let (mut running, mut read) = (run.start(), 0);
        // The counter is gone when the process ends, so the last reading counts.
        while !running.has_ended() {
            read = running.bytes_read().unwrap_or(read);
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = running.end().ok();
        assert!(ended.done()["digest"].as_str().unwrap().starts_with("blake3:"), "{ended:?}");
        same(site.path("f"), &bytes);
        assert!(read < SIZE * 5 / 4, "{read} bytes of {SIZE} were read over {streams} streams");
    }
}
