//! `--checksum-file SHA256SUMS`.

use std::fmt::Write;
use std::fs;

use sha2::{Digest, Sha256, Sha512};

use crate::support::{Nginx, content, get, same};

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn files_are_verified_by_the_lines_of_their_names() {
    let Some(nginx) = Nginx::start() else { return };
    let (one, two) = (content(300_000, 90), content(200_000, 91));
    nginx.file("one.bin", &one);
    nginx.file("two.bin", &two);
    let list = format!(
        "{} *./pub/one.bin\nSHA512 (two.bin) = {}\n{}  other\n",
        hex(&Sha256::digest(&one)),
        hex(&Sha512::digest(&two)),
        "0".repeat(64)
    );
    let run =
        get().args(["--json", "--checksum-file", "SUMS", &nginx.url("/one.bin"), &nginx.url("/two.bin")]);
    fs::write(run.path("SUMS"), list).unwrap();
    let ended = run.run().ok();
    same(run.path("one.bin"), &one);
    same(run.path("two.bin"), &two);
    let digests: Vec<_> = ended.json().into_iter().filter(|line| line["event"] == "done").collect();
    assert!(digests.iter().all(|line| line["digest"].is_string()), "{digests:?}");
    // The local name is used if the server's name is not in the list.
    fs::write(run.path("SUMS"), format!("{}  other\n", hex(&Sha256::digest(&one)))).unwrap();
    run.again(["--checksum-file", "SUMS", "-o", "other", &nginx.url("/one.bin?id=1")]).run().ok();
}

#[test]
fn wrong_bytes_get_no_name() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("f", &content(100_000, 92));
    let run = get().args(["--checksum-file", "SUMS", &nginx.url("/f")]);
    fs::write(run.path("SUMS"), format!("{}  f\n", "a".repeat(64))).unwrap();
    run.run().fails(65, &["has the checksum", "aaaa"]);
    assert!(!run.path("f").exists());
}

#[test]
fn file_without_a_checksum_is_refused_before_anything_is_fetched() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("f", b"one");
    nginx.file("g", b"two");
    let run = get().args(["--checksum-file", "SUMS", &nginx.url("/f"), &nginx.url("/g")]);
    fs::write(run.path("SUMS"), format!("{}  f\n", hex(&Sha256::digest(b"one")))).unwrap();
    run.run().fails(64, &["SUMS", "/g", "no line has the name g"]);
    assert!(!run.path("f").exists());
    fs::write(run.path("SUMS"), "<html>not found</html>").unwrap();
    run.run().fails(64, &["SUMS", "no line of it is a checksum"]);
    fs::remove_file(run.path("SUMS")).unwrap();
    run.run().fails(66, &["SUMS"]);
}
