//! The Metalink of a served file.

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::metalink::{Metalink, MetalinkFile};
use longhaul_core::units::Bytes;

use crate::site::{Answer, Site, noise};

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
    let hashes: Vec<_> =
        bytes.chunks(1 << 20).map(|piece| blake3::hash(piece).to_hex().to_string()).collect();
    // Computed, then kept.
    for _ in 0..2 {
        let answer = site.get("/d/a%20b?metalink", &[]);
        assert_eq!((answer.status, answer.header("Content-Type")), (200, Some(media)));
        let file = file_of(&answer);
        let size = Bytes::new(bytes.len() as u64);
        assert_eq!((file.name.to_string().as_str(), file.size), ("a b", Some(size)));
        let pieces = file.pieces.unwrap();
        assert_eq!((pieces.length, pieces.algorithm), (Bytes::mib(1), Algorithm::Blake3));
        assert_eq!(pieces.digests.iter().map(|digest| digest.hex()).collect::<Vec<_>>(), hashes);
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
