use proptest::prelude::*;

use super::*;

fn head(fields: &str) -> ResponseHead {
    ResponseHead::parse(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap()
}

#[test]
fn field_names_ignore_case() {
    let head = head("ETag: \"a\"\r\ncontent-range: bytes 0-1/2\r\nAccept-Ranges: bytes\r\n");
    assert_eq!((head.status(), head.reason()), (200, "OK"));
    assert!(head.etag().is_some() && head.content_range().is_some() && head.accepts_ranges());
    assert_eq!(head.validator().unwrap().to_string(), "\"a\"");
}

#[test]
fn end_of_the_head_is_found_for_any_split() {
    let bytes = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
    let end = bytes.len() - 8;
    for searched in 0..end {
        assert_eq!(ResponseHead::end(bytes, searched), Some(end));
        assert_eq!(ResponseHead::end(&bytes[..searched], 0), None);
    }
    assert_eq!(ResponseHead::end(b"HTTP/1.1 200 OK\n\nbody", 0), Some(17));
}

#[test]
fn framing_follows_the_fields() {
    for (fields, framing) in [
        ("Content-Length: 5\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5, 5\r\n", Framing::Length(Bytes::new(5))),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("", Framing::UntilClose),
    ] {
        assert_eq!(head(fields).framing(), Ok(framing), "{fields}");
    }
    let none = ResponseHead::parse(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n").unwrap();
    assert_eq!(none.framing(), Ok(Framing::Length(Bytes::ZERO)));
}

#[test]
fn ambiguous_framing_is_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: five\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length:\r\n",
        "Content-Length: ,\r\n",
        "Content-Length: 5\r\nContent-Length:\r\nContent-Length: 6\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length:\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
    ] {
        assert!(head(fields).framing().is_err(), "{fields}");
    }
    let old = ResponseHead::parse(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert!(old.framing().is_err());
    for text in
        ["HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/2 200\r\n\r\n"]
    {
        assert!(matches!(ResponseHead::parse(text.as_bytes()), Err(HeadError::Syntax(_))), "{text}");
    }
    for line in ["A: b\rC: d", "A : b", " A: b", "A: b\0c", "A b: c", ": c"] {
        let text = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n");
        assert!(matches!(ResponseHead::parse(text.as_bytes()), Err(HeadError::Syntax(_))), "{line:?}");
    }
    assert!(ResponseHead::parse(b"HTTP/1.1 200 OK\r\n\r\nA: b\r\n\r\n").is_err());
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(MAX_FIELDS + 1));
    assert_eq!(ResponseHead::parse(many.as_bytes()), Err(HeadError::TooManyFields));
}

#[test]
fn contradictory_fields_are_ignored() {
    let twice = |name: &str, a: &str, b: &str| head(&format!("{name}: {a}\r\n{name}: {b}\r\n"));
    let range = |a, b| twice("Content-Range", a, b).content_range();
    assert_eq!(range("bytes 0-1/9", "bytes 2-3/9"), None);
    assert!(range("bytes 0-1/9", "bytes 0-1/9").is_some());
    assert_eq!(twice("ETag", "\"a\"", "\"b\"").validator(), None);
    assert_eq!(twice("ETag", "\"a\"", "\"b\"").etag(), None);
    assert_eq!(twice("Content-Length", "1", "2").content_length(), None);
    assert_eq!(twice("Content-Length", "1", "1").content_length(), Some(Bytes::new(1)));
}

#[test]
fn all_link_and_digest_fields_are_parsed() {
    let head = head(
        "Link: <http://b/f>; rel=duplicate; pri=2, <http://c/f>; rel=duplicate\r\nETag: \"x\"\r\n\
         LINK: <http://a/f>; rel=duplicate; pri=1\r\nLink: é\r\n\
         Link: </f.meta4>; rel=describedby; type=\"application/metalink4+xml\"\r\n\
         Digest: md5=HUXZLQLMuI/KZ5KDcJPcOA==\r\n\
         Digest: SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\r\n\
         Repr-Digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:, md5=:AAAAAAAAAAAAAAAAAAAAAA==:\r\n\
         Content-Digest: sha-512=:AA==:\r\n",
    );
    let urls: Vec<_> = head.duplicates().into_iter().map(|duplicate| duplicate.url).collect();
    assert_eq!(urls, ["http://a/f", "http://b/f", "http://c/f"]);
    assert_eq!(head.metalinks(), ["/f.meta4"]);
    // The two MD5 digests differ.
    let digests: Vec<_> = head.digests().iter().map(ToString::to_string).collect();
    assert_eq!(digests, ["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]);
}

#[test]
fn keep_alive_depends_on_version_and_connection_option() {
    assert!(head("").keeps_alive() && !head("Connection: foo, Close\r\n").keeps_alive());
    let old =
        |fields: &str| ResponseHead::parse(format!("HTTP/1.0 200 OK\r\n{fields}\r\n").as_bytes()).unwrap();
    assert!(!old("").keeps_alive() && old("Connection: keep-alive\r\n").keeps_alive());
}

#[test]
fn content_codings_are_refused() {
    assert!(
        head("").require_identity().is_ok()
            && head("Content-Encoding: identity\r\n").require_identity().is_ok()
    );
    assert!(head("Content-Encoding: gzip\r\n").require_identity().is_err());
}

proptest! {
    #[test]
    fn parsing_any_head_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), fields in "[A-Za-z:;=,\"* \r\n0-9-]{0,200}") {
        let text = format!("HTTP/1.1 206 X\r\nContent-Disposition: {fields}\r\n\r\n");
        for input in [bytes.as_slice(), text.as_bytes()] {
            let _ = ResponseHead::end(input, input.len() / 2);
            if let Ok(head) = ResponseHead::parse(input) {
                let _ = (head.framing(), head.file_name(), head.validator(), head.content_range());
                let _ = (head.keeps_alive(), head.retry_after(SystemTime::UNIX_EPOCH), head.require_identity());
                let _ = head.offers_scheme("content-disposition", "basic");
            }
        }
    }
}

#[test]
fn content_is_described_by_type_and_length() {
    let page = head("Content-Type: text/html; charset=utf-8\r\nContent-Length: 24\r\n");
    assert_eq!(page.describe_content(), "text/html of 24 bytes");
    assert_eq!(head("").describe_content(), "unknown type of unknown length");
    assert_eq!(head("Content-Type: \u{202e}x\r\n").describe_content(), "\\u{202e}x of unknown length");
}
