//! `--checksum-file SHA256SUMS`.

use std::fs;

use sha2::{Digest, Sha512};

use crate::support::{File, Server, content, get, same, sha256};

#[test]
fn files_are_verified_by_the_lines_of_their_names() {
    let (one, two) = (content(300_000, 90), content(200_000, 91));
    let [first, second] = [&one, &two].map(|bytes| Server::of(File::new(bytes.clone())));
    let sha512: String = Sha512::digest(&two).iter().map(|byte| format!("{byte:02x}")).collect();
    let list =
        format!("{} *./pub/one.bin\nSHA512 (two.bin) = {sha512}\n{}  other\n", sha256(&one), "0".repeat(64));
    let run = get().file("SUMS", list).args(["--json", "--checksum-file", "SUMS"]);
    let run = run.args([first.url("/one.bin"), second.url("/two.bin")]);
    let done = run.run().ok().events("done");
    same(run.path("one.bin"), &one);
    same(run.path("two.bin"), &two);
    assert!(done.iter().all(|line| line["digest"].is_string()), "{done:?}");
    // The local name is used if the server's name is not in the list.
    let run = run.file("SUMS", format!("{}  other\n", sha256(&one)));
    run.again(["--checksum-file", "SUMS", "-o", "other", &first.url("/one.bin?id=1")]).run().ok();
    // Wrong bytes get no name.
    let run = get().file("SUMS", format!("{}  f\n", "a".repeat(64)));
    run.args(["--checksum-file", "SUMS", &first.url("/f")])
        .fails_resumably(65, &["has the checksum", "aaaa"]);
}

#[test]
fn file_without_a_checksum_is_refused_before_anything_is_fetched() {
    let server = Server::of(File::new(content(10, 93)));
    let run = get().args(["--checksum-file", "SUMS", &server.url("/f"), &server.url("/g")]);
    let run = run.file("SUMS", format!("{}  f\n", sha256(b"one")));
    run.run().fails(64, &["SUMS", "/g", "no line has the name g"]);
    let run = run.file("SUMS", "<html>not found</html>");
    run.run().fails(64, &["SUMS", "no line of it is a checksum"]);
    fs::remove_file(run.path("SUMS")).unwrap();
    run.run().fails(66, &["SUMS"]);
    assert!(server.requests().is_empty());
}
