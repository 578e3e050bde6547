//! Other real servers: Apache's mod_dav and nginx's dav, plain and encrypted, with logins.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use super::put_of;
use crate::support::{Apache, Nginx, Site, Writable, content, put, same};

/// Puts files of edge-case sizes by both readers, over TLS too, and with a login.
fn put_all(site: &Site) {
    let large = content((32 << 20) + 4097, 1);
    let sizes = [0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, large.len()];
    for reader in ["sendfile", "direct"] {
        for size in sizes {
            let run = put_of(&large[..size], &["--json", "--reader", reader, "f", &site.url("/dav/")]);
            let done = run.run().ok().done();
            assert_eq!((done["bytes"].as_u64(), done["streams"].as_u64()), (Some(size as u64), Some(1)));
            assert!(done["retransmits"].is_u64(), "{done}");
            same(site.path("dav/f"), &large[..size]);
        }
        let encrypted = &large[..(16 << 20) + 77];
        let run = put_of(encrypted, &["--reader", reader, "f", &site.tls_url("/dav/tls"), "--cacert"]);
        run.args([site.ca()]).run().ok();
        same(site.path("dav/tls"), encrypted);
    }
    logins(site);
    several_and_odd_names(site);
    let run = put_of(b"bytes", &["f", &site.url("/f")]);
    run.run().fails(69, &["405", "takes no files"]);
    assert!(!site.path("f").exists());
}

fn logins(site: &Site) {
    let bytes = content(5 << 20, 2);
    let (url, stored) = (site.url("/dav/private/f"), site.path("dav/private/f"));
    let run = put_of(&bytes, &["f", &url]);
    run.run().fails(77, &["401", "--token", "--user"]);
    let run = run.again(["--user", "ann:wrong", "f", &url]);
    run.run().fails(77, &["401"]);
    assert!(!stored.exists());
    let run = run.again(["--user", "ann:secret", "f", &url]);
    run.run().ok();
    same(&stored, &bytes);

    fs::remove_file(&stored).unwrap();
    let run = run.again(["f", &url]).file(".netrc", "machine 127.0.0.1 login ann password secret\n");
    run.run().ok();
    same(stored, &bytes);
}

fn several_and_odd_names(site: &Site) {
    let run = put().args(["a b%c#.tar", "sub/ü", &site.url("/dav/")]);
    let run = run.file("a b%c#.tar", "one").file("sub/ü", "two");
    run.run().ok();
    same(site.path("dav/a b%c#.tar"), b"one");
    same(site.path("dav/ü"), b"two");
    // Replaces the file.
    run.again(["sub/ü", &site.url("/dav/")]).file("sub/ü", "three").run().ok();
    same(site.path("dav/ü"), b"three");
}

#[test]
fn apache() {
    let Some(site) = Apache::start() else { return };
    put_all(&site);
    let run = put_of(b"bytes", &["f", &site.url("/dav/none/f")]);
    run.run().fails(73, &["409", "directory must exist"]);
}

#[test]
fn nginx() {
    let Some(site) = Nginx::start() else { return };
    put_all(&site);
    let run = put_of(&vec![7; 16 << 20], &["f", &site.url("/dav/small/f")]);
    run.run().fails(73, &["413", "smaller files"]);
}

#[test]
fn large_file_with_holes_arrives_whole() {
    const SIZE: u64 = (128 << 20) + 12_345;
    let writable = Writable::start();
    let mut servers: Vec<(String, PathBuf)> = vec![(writable.url("/f"), writable.path("f"))];
    let nginx = Nginx::start();
    servers.extend(nginx.iter().map(|site| (site.url("/dav/f"), site.path("dav/f"))));
    for (url, stored) in servers {
        for reader in ["sendfile", "direct"] {
            let run = put_of(b"", &["--json", "--reader", reader, "--token"]).args([writable.token()]);
            let file = fs::File::create(run.path("f")).unwrap();
            file.set_len(SIZE).unwrap();
            [70_000_001, SIZE - 9_999]
                .iter()
                .for_each(|at| file.write_all_at(&content(9_999, *at), *at).unwrap());
            let run = run.args(["f", &url]);
            assert_eq!(run.run().ok().done()["bytes"], SIZE);
            let equal = Command::new("cmp").args([&run.path("f"), &stored]).status().unwrap();
            assert!(equal.success(), "{url} {reader}");
            fs::remove_file(&stored).unwrap();
        }
    }
}
