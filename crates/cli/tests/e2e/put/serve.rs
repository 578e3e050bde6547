//! `longhaul serve --writable`: verified, refused and concurrent uploads.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::time::Duration;

use crate::support::{Put, Writable, content, old_kernel, put, same};

/// Creates a put of `f` to `path`, with the server's token.
pub(crate) fn to(site: &Writable, path: &str, bytes: &[u8]) -> Put {
    let run = put().args(["--json", "--token"]).args([site.token()]).args(["f", &site.url(path)]);
    fs::write(run.path("f"), bytes).unwrap();
    run
}

#[test]
fn every_size_arrives_by_either_reader_and_is_verified() {
    let site = Writable::start();
    let bytes = content((9 << 20) + 4097, 1);
    for reader in ["sendfile", "direct"] {
        for size in [0, 1, 4095, 4096, 4097, 4 << 20, (4 << 20) + 1, bytes.len()] {
            let done = to(&site, "/", &bytes[..size]).args(["--reader", reader]).run().ok().done();
            assert_eq!((done["bytes"].as_u64(), done["resumed"].as_u64()), (Some(size as u64), Some(0)));
            assert!(done["digest"].as_str().unwrap().starts_with("blake3:"), "{done}");
            same(site.path("f"), &bytes[..size]);
        }
    }
    let unverified = to(&site, "/unverified", &bytes).args(["--no-verify"]);
    assert!(unverified.run().ok().done()["digest"].is_null());
    assert_eq!(site.names(), ["f", "unverified"]);
}

#[test]
fn a_large_file_arrives_whole() {
    let site = Writable::start();
    for reader in ["sendfile", "direct"] {
        let run = to(&site, "/large", b"").args(["--reader", reader]);
        let file = File::create(run.path("f")).unwrap();
        let piece = content(16 << 20, 2);
        (0..64u64).for_each(|n| file.write_all_at(&piece[n as usize..], n * (16 << 20)).unwrap());
        file.set_len((1 << 30) + 4097).unwrap();
        drop(file);
        let done = run.run().ok().done();
        assert_eq!(done["bytes"], (1u64 << 30) + 4097);
        // The server's digest of its stored file was equal.
        let equal = std::process::Command::new("cmp").arg(run.path("f")).arg(site.path("large")).status();
        assert!(equal.unwrap().success());
    }
}

#[test]
fn over_tls() {
    let site = Writable::encrypted();
    let bytes = content((20 << 20) + 77, 3);
    for reader in ["sendfile", "direct"] {
        let run = to(&site, "/", &bytes).args(["--reader", reader, "--cacert"]).args([site.ca()]);
        run.run().ok();
        same(site.path("f"), &bytes);
    }
}

#[test]
fn a_file_system_without_direct_io_is_read_through_the_cache() {
    let Some(old_kernel) = old_kernel() else { return };
    let site = Writable::start();
    // A tmpfs, on a kernel without cachestat(2).
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let bytes = content(40 << 20, 10);
    let path = dir.path().join("f");
    fs::write(&path, &bytes).unwrap();
    let run = put().through(&[&old_kernel]).args(["--json", "--token"]).args([site.token()]);
    let run = run.args([path.as_os_str(), site.url("/").as_ref()]);
    let ended = run.run().ok();
    let opened = ended.json().into_iter().find(|line| line["event"] == "opened").unwrap();
    assert_eq!(opened["writer"], "sendfile");
    same(site.path("f"), &bytes);
    let direct = put().args(["--reader", "direct"]).args([path.as_os_str(), site.url("/").as_ref()]);
    direct.run().fails(64, &["Direct I/O", "--reader auto"]);
}

#[test]
fn without_the_right_token_nothing_is_written() {
    let site = Writable::start();
    let run = put().args(["f", &site.url("/")]);
    fs::write(run.path("f"), content(1 << 20, 4)).unwrap();
    run.run().fails(77, &["401", "--token"]);
    let run = run.again(["--token", "wrong", "f", &site.url("/")]);
    fs::write(run.path("wrong"), "open").unwrap();
    run.run().fails(77, &["401", "--token"]);
    assert!(site.names().is_empty());
}

#[test]
fn targets_that_may_not_be_written_are_refused() {
    let site = Writable::start();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), site.path("out")).unwrap();
    fs::create_dir(site.path("dir")).unwrap();
    for (path, code, why) in [
        ("/out/f", 77, "nothing may be written there"),
        ("/%2e%2e%2ff", 76, "an encoded slash"),
        ("/.hidden", 77, "files of this name are not taken"),
        ("/f.longhaul-part", 77, "files of this name are not taken"),
        ("/none/f", 73, "the directory does not exist"),
        ("/dir", 73, "there is a directory of this name"),
        (&format!("/{}", "x".repeat(256)), 73, "choose a shorter name"),
    ] {
        to(&site, path, b"bytes").run().fails(code, &[why]);
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(site.names(), ["dir", "out"]);
}

#[test]
fn two_puts_to_one_name_do_not_mix() {
    let site = Writable::start();
    let (first, second) = (content(16 << 20, 5), content(16 << 20, 6));
    let run = to(&site, "/f", &first).args(["--limit", "8MB/s"]);
    let mut running = run.start();
    running.until("it has begun", || !site.names().is_empty());
    to(&site, "/f", &second).run().fails(75, &["423", "being written by another upload"]);
    running.end().ok();
    same(site.path("f"), &first);
    to(&site, "/f", &second).run().ok();
    same(site.path("f"), &second);
}

#[test]
fn changed_source_never_gets_its_name() {
    let site = Writable::start();
    for shrinks in [false, true] {
        for reader in ["sendfile", "direct"] {
            let run = to(&site, "/f", &content(16 << 20, 7)).args(["--limit", "16MB/s", "--reader", reader]);
            let mut running = run.start();
            running.until("it has begun", || !site.names().is_empty());
            std::thread::sleep(Duration::from_millis(300));
            let file = File::options().write(true).open(run.path("f")).unwrap();
            if shrinks {
                file.set_len(5).unwrap()
            } else {
                file.write_all_at(b"new", 5).unwrap()
            }
            running.end().fails(65, &["f changed while it was sent"]);
            assert!(!site.path("f").exists());
        }
    }
}
