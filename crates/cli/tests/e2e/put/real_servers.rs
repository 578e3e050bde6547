//! Other real servers: Apache's mod_dav and nginx's dav, plain and encrypted, with logins.

use std::fs;

use crate::support::{Apache, Nginx, Site, content, put, same};

/// Puts files of edge-case sizes by both readers, over TLS too, and with a login.
fn put_all(site: &Site) {
    let large = content((64 << 20) + 4097, 1);
    let sizes = [0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, large.len()];
    for reader in ["sendfile", "direct"] {
        for size in sizes {
            let run = put().args(["--json", "--reader", reader, "f", &site.url("/dav/")]);
            fs::write(run.path("f"), &large[..size]).unwrap();
            let done = run.run().ok().done();
            assert_eq!((done["bytes"].as_u64(), done["streams"].as_u64()), (Some(size as u64), Some(1)));
            assert!(done["retransmits"].is_u64(), "{done}");
            same(site.path("dav/f"), &large[..size]);
        }
        let run = put().args(["--reader", reader, "f", &site.tls_url("/dav/tls"), "--cacert"]);
        let run = run.args([site.ca()]);
        let encrypted = &large[..(16 << 20) + 77];
        fs::write(run.path("f"), encrypted).unwrap();
        run.run().ok();
        same(site.path("dav/tls"), encrypted);
    }
    logins(site);
    several_and_odd_names(site);
}

fn logins(site: &Site) {
    let bytes = content(5 << 20, 2);
    let url = site.url("/dav/private/f");
    let run = put().args(["f", &url]);
    fs::write(run.path("f"), &bytes).unwrap();
    run.run().fails(77, &["401", "--token", "--user"]);
    run.again(["--user", "ann:wrong", "f", &url]).run().fails(77, &["401"]);
    assert!(!site.path("dav/private/f").exists());

    let run = put().args(["--user", "ann:secret", "f", &url]);
    fs::write(run.path("f"), &bytes).unwrap();
    run.run().ok();
    same(site.path("dav/private/f"), &bytes);

    fs::remove_file(site.path("dav/private/f")).unwrap();
    let run = run.again(["f", &url]);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login ann password secret\n").unwrap();
    run.run().ok();
    same(site.path("dav/private/f"), &bytes);
}

fn several_and_odd_names(site: &Site) {
    let run = put().args(["a b%c#.tar", "sub/ü", &site.url("/dav/")]);
    fs::create_dir(run.path("sub")).unwrap();
    fs::write(run.path("a b%c#.tar"), "one").unwrap();
    fs::write(run.path("sub/ü"), "two").unwrap();
    run.run().ok();
    same(site.path("dav/a b%c#.tar"), b"one");
    same(site.path("dav/ü"), b"two");
    // Replaces the file.
    fs::write(run.path("sub/ü"), "three").unwrap();
    run.again(["sub/ü", &site.url("/dav/")]).run().ok();
    same(site.path("dav/ü"), b"three");
}

#[test]
fn apache() {
    let Some(site) = Apache::start() else { return };
    put_all(&site);
    let run = put().args(["f", &site.url("/dav/none/f")]);
    fs::write(run.path("f"), "bytes").unwrap();
    run.run().fails(73, &["409", "directory must exist"]);
    run.again(["f", &site.url("/f")]).run().fails(69, &["405", "takes no files"]);
    assert!(!site.path("f").exists());
}

#[test]
fn nginx() {
    let Some(site) = Nginx::start() else { return };
    put_all(&site);
    let run = put().args(["f", &site.url("/dav/small/f")]);
    fs::write(run.path("f"), vec![7; 64 << 20]).unwrap();
    run.run().fails(73, &["413", "smaller files"]);
    let run = run.again(["f", &site.url("/f")]);
    fs::write(run.path("f"), "bytes").unwrap();
    run.run().fails(69, &["405", "takes no files"]);
}

#[test]
fn a_large_file_with_holes_arrives_whole() {
    let Some(site) = Nginx::start() else { return };
    for reader in ["sendfile", "direct"] {
        let run = put().args(["--reader", reader, "f", &site.url("/dav/")]);
        let file = fs::File::create(run.path("f")).unwrap();
        file.set_len((1 << 30) + 12_345).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &content(9_999, 3), 700_000_001).unwrap();
        drop(file);
        run.run().ok();
        assert_eq!(digest(&run.path("f")), digest(&site.path("dav/f")), "{reader}");
        fs::remove_file(site.path("dav/f")).unwrap();
    }
}

fn digest(path: &std::path::Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}
