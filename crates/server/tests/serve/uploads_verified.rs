//! Digests of uploads: compared while the bytes arrive, or read back from the disk.

use std::os::unix::fs::FileExt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::metalink::Metalink;
use longhaul_engine::digest::{PrefixDigest, WantedDigests};

use crate::site::{noise, wait_for};
use crate::uploads::{
    ID, Talk, blake3_field, content, head, names, offset, patch, range, resource, with_field, writable,
};

/// A byte that changes on the disk is found only where the server reads the file back.
#[test]
fn upload_is_read_back_unless_every_request_asks_for_a_digest_in_passing() {
    for (parts, completion, status) in [
        ("blake3=10", "blake3=10", 201),
        ("sha-256=3, blake3=1", "blake3=1", 201),
        ("blake3=0", "blake3=0", 422),
        ("blake3=10", "blake3=0", 422),
    ] {
        let (site, file, url) = (writable(), noise(5_000_001), resource("f", ID));
        let mut talk = Talk::to(&site);
        for part in [0..3_000_001, 3_000_001..file.len()] {
            let part_head = patch(&url, part.start, part.len(), file.len(), false);
            let part_head = with_field(&part_head, &format!("Want-Repr-Digest: {parts}"));
            let answer = talk.ask(&part_head, &file[part]);
            assert_eq!(answer.status, 204, "{answer:?}");
        }
        let partial = std::fs::File::options().write(true).open(site.dir.path().join("f.longhaul-part"));
        partial.unwrap().write_all_at(&[file[1_000_000] ^ 1], 1_000_000).unwrap();
        let complete = patch(&url, file.len(), 0, file.len(), true);
        let complete = with_field(&complete, &format!("Want-Repr-Digest: {completion}"));
        let complete = with_field(&complete, &blake3_field(&file));
        assert_eq!(talk.ask(&complete, b"").status, status, "{parts}, {completion}");
    }
}

/// Returns the value of Repr-Digest by SHA-256.
fn sha256_field(bytes: &[u8]) -> String {
    let wanted = WantedDigests { whole: Some(Algorithm::Sha256), pieces: None };
    let mut digest = PrefixDigest::new(wanted);
    digest.update(bytes);
    format!("Repr-Digest: sha-256=:{}:", STANDARD.encode(digest.digests().whole.unwrap().bytes()))
}

/// The server hashes what it receives, and reads nothing back: a byte that changes on the disk goes
/// unnoticed.
///
/// The file is changed only after its last byte was written; the answer waits for the rest of the
/// chunked body.
#[test]
fn whole_file_with_sha_256_is_hashed_as_it_comes() {
    for (is_digest_of_file, status) in [(true, 201), (false, 422)] {
        let (site, file) = (writable(), noise(12_000_001));
        let field = sha256_field(if is_digest_of_file { &file } else { &file[1..] });
        let mut talk = Talk::to(&site);
        talk.send(&head("PUT", "/f", &["Transfer-Encoding: chunked", &field]), b"");
        talk.send(&format!("{:x}\r\n", file.len()), &file);
        let path = site.dir.path().join("f.longhaul-part");
        let first = |end: usize| std::fs::read(&path).is_ok_and(|there| there.get(..end) == file.get(..end));
        wait_for(|| first(8 << 20));
        let partial = std::fs::File::options().write(true).open(&path).unwrap();
        partial.write_all_at(&[file[1_000_000] ^ 1], 1_000_000).unwrap();
        assert_eq!(talk.ask("\r\n0\r\n\r\n", b"").status, status);
        assert_eq!(names(&site).len(), usize::from(status == 201));
    }
}

#[test]
fn client_that_takes_digests_of_pieces_gets_those_of_what_the_server_has() {
    let (site, file, url) = (writable(), noise(5_000_001), resource("f", ID));
    let mut wrong = file.clone();
    wrong[3_000_000] ^= 1;
    let mut talk = Talk::to(&site);
    assert_eq!(talk.ask(&patch(&url, 0, file.len(), file.len(), false), &wrong).status, 204);
    let complete = with_field(&patch(&url, file.len(), 0, file.len(), true), &blake3_field(&file));
    let answer = talk.ask(&with_field(&complete, "Accept: application/metalink4+xml"), b"");
    assert_eq!((answer.status, answer.header("content-type")), (422, Some("application/metalink4+xml")));
    let pieces = Metalink::parse(answer.body.as_bytes()).unwrap().files.remove(0).pieces.unwrap();
    let hashes: Vec<_> =
        wrong.chunks(1 << 20).map(|piece| blake3::hash(piece).to_hex().to_string()).collect();
    assert_eq!(pieces.digests.iter().map(|digest| digest.hex()).collect::<Vec<_>>(), hashes);
    // It is kept, to be mended.
    assert_eq!(offset(&site, &url), "5000001");
    let piece = 2_097_152..3_145_728;
    assert_eq!(talk.ask(&range(&url, piece.clone(), file.len()), &file[piece]).status, 202);
    assert_eq!(talk.ask(&complete, b"").status, 201);
    assert!(content(&site, "f") == file);
}

#[test]
fn digest_that_does_not_match_drops_the_upload() {
    let (site, file, url) = (writable(), noise(5_000_001), resource("f", ID));
    site.write("f", b"old");
    let mut wrong = file.clone();
    wrong[4_999_999] ^= 1;
    let (mut talk, field) = (Talk::to(&site), blake3_field(&file));
    // At once, whole, or hashed in passing and completed by a request of its own.
    let whole = head("PUT", "/f", &[&format!("Content-Length: {}", file.len()), &field]);
    let passing = |length, offset, complete| {
        let part = patch(&url, offset, length, file.len(), complete);
        with_field(&part, "Want-Repr-Digest: blake3=10")
    };
    for (first, last) in [
        (None, with_field(&patch(&url, 0, file.len(), file.len(), true), &field)),
        (None, whole),
        (Some(passing(file.len(), 0, false)), with_field(&passing(0, file.len(), true), &field)),
    ] {
        let body = if first.is_some() { &[] } else { wrong.as_slice() };
        assert!(first.is_none_or(|first| talk.ask(&first, &wrong).status == 204));
        assert_eq!(talk.ask(&last, body).status, 422, "{last}");
        assert_eq!((content(&site, "f"), names(&site)), (b"old".to_vec(), vec!["f".to_owned()]));
    }
}

/// Sends a whole file as one part, and does not complete the upload.
fn send_part(talk: &mut Talk, url: &str, file: &[u8]) {
    assert_eq!(talk.ask(&patch(url, 0, file.len(), file.len(), false), file).status, 204);
}

/// A client that has lost the answer repeats the request.
#[test]
fn completing_request_may_be_repeated_until_its_digest_or_the_file_changes() {
    let (site, file, url) = (writable(), noise(100_001), resource("f", ID));
    let mut talk = Talk::to(&site);
    send_part(&mut talk, &url, &file);
    let complete = patch(&url, file.len(), 0, file.len(), true);
    let complete = with_field(&complete, "X-OC-Mtime: 1700000000");
    let of = |content: &[u8]| with_field(&complete, &blake3_field(content));
    assert_eq!(talk.ask(&of(&file), b"").status, 201);
    for _ in 0..2 {
        let answer = talk.ask(&head("HEAD", &url, &[]), b"");
        assert_eq!((answer.status, answer.header("upload-complete")), (204, Some("?1")));
        assert_eq!(answer.header("upload-offset"), Some("100001"));
        assert_eq!(talk.ask(&of(&file), b"").status, 204);
    }
    // Another digest, another file, or an ID in use again: the upload starts over.
    let answer = talk.ask(&of(&file[1..]), b"");
    assert_eq!((answer.status, answer.header("upload-offset")), (409, Some("0")));
    assert_eq!(offset(&site, &url), "");
    send_part(&mut talk, &url, &file);
    assert_eq!(talk.ask(&of(&file), b"").status, 204);
    let mut other = file.clone();
    other[0] ^= 1;
    std::fs::write(site.dir.path().join("f"), &other).unwrap();
    assert_eq!(offset(&site, &url), "");
    assert_eq!(talk.ask(&of(&file), b"").status, 409);
    assert!(content(&site, "f") == other && names(&site) == ["f"]);
}

/// Also where the second upload's partial file is then removed, as by its expiry.
#[test]
fn complete_upload_is_forgotten_when_its_id_is_used_again() {
    let (site, file, url) = (writable(), noise(100_001), resource("f", ID));
    let mut talk = Talk::to(&site);
    let complete = patch(&url, file.len(), 0, file.len(), true);
    for begin in
        [patch(&url, 0, 1, file.len(), false), range(&url, 0..1, file.len()), head("DELETE", &url, &[])]
    {
        send_part(&mut talk, &url, &file);
        talk.ask(&complete, b"");
        assert_eq!(talk.ask(&head("HEAD", &url, &[]), b"").header("upload-complete"), Some("?1"));
        let body = if begin.starts_with("PATCH") { &file[..1] } else { &[] };
        let status = talk.ask(&begin, body).status;
        assert!(matches!(status, 202 | 204 | 404), "{begin}: {status}");
        for name in names(&site).iter().filter(|name| *name != "f") {
            std::fs::remove_file(site.dir.path().join(name)).unwrap();
        }
        assert_eq!(offset(&site, &url), "", "{begin}");
        assert_eq!(talk.ask(&complete, b"").status, 409, "{begin}");
    }
    assert!(content(&site, "f") == file && names(&site) == ["f"]);
}
