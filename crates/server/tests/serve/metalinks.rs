//! The Metalink of a served file.

use std::fs::File;

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::metalink::{Metalink, MetalinkFile};
use longhaul_core::units::Bytes;

use crate::site::{Answer, Site, noise, wait_for};
use crate::uploads::{Talk, head};

fn file_of(answer: &Answer) -> MetalinkFile {
    Metalink::parse(answer.body.as_bytes()).unwrap().files.remove(0)
}

#[test]
fn each_reply_with_a_file_names_a_metalink_with_digests_of_its_pieces() {
    let site = Site::start();
    let bytes = noise((2 << 20) + 77);
    site.write("d/a b", &bytes);
    let media = "application/metalink4+xml";
    for lines in [&[][..], &["Range: bytes=0-9"]] {
        let link = site.ask("HEAD", "/d/a%20b", lines);
        let expected = format!("<?metalink>; rel=describedby; type=\"{media}\"");
        assert_eq!(link.header("Link"), Some(expected.as_str()));
    }
    // Computed, then kept.
    for _ in 0..2 {
        let answer = site.get("/d/a%20b?metalink", &[]);
        assert_eq!((answer.status, answer.header("Content-Type")), (200, Some(media)));
        let file = file_of(&answer);
        let size = Bytes::new(bytes.len() as u64);
        assert_eq!((file.name.to_string().as_str(), file.size), ("a b", Some(size)));
        let pieces = file.pieces.unwrap();
        assert_eq!((pieces.length, pieces.algorithm), (Bytes::mib(1), Algorithm::Blake3));
        assert_eq!(pieces.digests.len(), 3);
    }
}

#[test]
fn what_is_not_served_has_no_metalink() {
    let site = Site::start();
    for name in [".hidden", "f.longhaul-part", "empty"] {
        site.write(name, b"");
    }
    for target in ["/.hidden?metalink", "/f.longhaul-part?metalink", "/missing?metalink", "/../x?metalink"] {
        let answer = site.get(target, &[]);
        assert!(matches!(answer.status, 400 | 404), "{target}: {answer:?}");
    }
    let file = file_of(&site.get("/empty?metalink", &[]));
    assert_eq!((file.size, file.pieces), (Some(Bytes::ZERO), None));
    // Another query asks for the file.
    assert_eq!(site.get("/empty?x=metalink", &[]).header("Content-Type"), Some("application/octet-stream"));
}

#[test]
fn hashing_for_one_client_leaves_a_turn_to_another_and_may_be_off() {
    let site = Site::start();
    let sparse = ["a", "b"].map(|name| site.write(name, b""));
    sparse
        .iter()
        .for_each(|path| File::options().write(true).open(path).unwrap().set_len(300 << 30).unwrap());
    site.write("small", b"x");
    let mut asked = ["/a?metalink", "/b?metalink"].map(|target| {
        let mut talk = Talk::to(&site);
        talk.send(&head("HEAD", target, &[]), b"");
        talk
    });
    // One of them hashes, and the other one is refused at once.
    wait_for(|| asked.iter().any(Talk::is_answered));
    let mut other = Talk(site.connect_from_another());
    let asks = head("GET", "/small?metalink", &[]);
    assert_eq!(other.ask(&asks, b"").status, 200);
    let refused = asked.iter().position(Talk::is_answered).unwrap();
    assert_eq!(asked[refused].answer_head().status, 503);
    // Where the client has gone, it has its turn again.
    drop(asked);
    wait_for(|| Talk::to(&site).ask(&asks, b"").status == 200);
    let without = Site::with(|config| config.files.digests = false);
    without.write("f", b"x");
    assert_eq!(without.get("/f", &[]).header("Link"), None);
    assert_eq!(without.get("/f?metalink", &[]).status, 404);
}
