use super::*;

fn head(fields: &str) -> ResponseHead {
    ResponseHead::parse(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap()
}

#[test]
fn field_names_ignore_case_and_contradictory_fields_are_ignored() {
    let one = head("ETag: \"a\"\r\ncontent-range: bytes 0-1/2\r\nAccept-Ranges: bytes\r\n");
    assert_eq!((one.status(), one.reason()), (200, "OK"));
    assert!(one.etag().is_some() && one.content_range().is_some() && one.accepts_ranges());
    assert_eq!(one.validator().unwrap().to_string(), "\"a\"");
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
fn end_of_the_head_is_found_for_any_split() {
    let bytes = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n";
    let end = bytes.len() - 8;
    for searched in 0..end {
        assert_eq!(ResponseHead::end(bytes, searched), Some(end));
        assert_eq!(ResponseHead::end(&bytes[..searched], 0), None);
    }
    assert_eq!(ResponseHead::end(b"HTTP/1.1 200 OK\n\nbody", 0), Some(17));
    assert_eq!(ResponseHead::end(b"HTTP/1.1 200 OK\r\nA: b\r\r\n\r\r\nbody", 20), Some(27));
}

#[test]
fn framing_follows_the_fields_and_is_refused_if_ambiguous() {
    for (fields, framing) in [
        ("Content-Length: 5\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5, 5\r\n", Framing::Length(Bytes::new(5))),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("", Framing::UntilClose),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Framing::Chunked),
        ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", Framing::Length(Bytes::new(5))),
        ("Transfer-Encoding: identity, chunked\r\n", Framing::Chunked),
        ("Transfer-Encoding: None\r\n", Framing::UntilClose),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Framing::Chunked),
        ("Content-Length : 5\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5 bytes, 5 bytes\r\n", Framing::Length(Bytes::new(5))),
        ("Content-Length: 5;\r\n", Framing::Length(Bytes::new(5))),
        ("Transfer-Encoding:\r\n", Framing::UntilClose),
        ("Transfer-Encoding:\r\nContent-Length: 5\r\n", Framing::Length(Bytes::new(5))),
    ] {
        assert_eq!(head(fields).framing(), Ok(framing), "{fields}");
    }
    let old = ResponseHead::parse(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert_eq!(old.framing(), Ok(Framing::Chunked));
    let none = ResponseHead::parse(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n").unwrap();
    assert_eq!(none.framing(), Ok(Framing::Length(Bytes::ZERO)));
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: five\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length:\r\n",
        "Content-Length: ,\r\n",
        "Content-Length: 5\r\nContent-Length:\r\nContent-Length: 6\r\n",
        "Content-Length: 5 6\r\n",
        "Content-Length: 5 bytes, 5\r\n",
        "Content-Length: bytes\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length:\r\n",
        "Content-Length: 5, 6\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length : 6\r\n",
        "Content-Length: \u{a0}5\r\n",
        "Transfer-Encoding: \u{2003}chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, identity\r\n",
    ] {
        assert!(head(fields).framing().is_err(), "{fields}");
    }
}

/// Returns the fields of a head that the strict parser refuses.
fn tolerated(status: &str, lines: &str) -> Result<Vec<(String, String)>, Malformed> {
    let head = ResponseHead::parse(format!("{status}\r\n{lines}\r\nContent-Length: 5\r\n\r\n").as_bytes())?;
    assert!(head.ends_connection() && !head.keeps_alive(), "{lines:?}");
    assert_eq!((head.status(), head.framing()), (200, Ok(Framing::Length(Bytes::new(5)))), "{lines:?}");
    let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
    Ok(head.fields.iter().rev().skip(1).rev().map(|(name, value)| (name.clone(), text(value))).collect())
}

#[test]
fn malformed_lines_are_skipped_unless_they_may_state_framing() {
    let ok = "HTTP/1.1 200 OK";
    let many = "A: b\r\n".repeat(300);
    for (status, lines, fields) in [
        (ok, "A : b", &[("A", "b")][..]),
        (ok, "A: b\r\n folded\r\n\tagain", &[("A", "b folded again")]),
        (ok, "PHP Warning:  no x.so in Unknown on line 0\r\n folded", &[]),
        (ok, "garbage\r\n: empty\r\nX-(a): 1\r\n folded\r\nA b: c", &[]),
        (ok, "A: b\x01c\rD: e", &[("A", "b\x01c\rD: e")]),
        ("HTTP/1.1  200   OK", "A: b\n A: c", &[("A", "b A: c")]),
        ("HTTP/1.1 200", "(): x", &[]),
        ("HTTP/1.1 200OK", "A: b", &[("A", "b")]),
        ("HTTP/2 200", "A: b", &[("A", "b")]),
        ("HTTP/2.0\t200 OK", "A: b", &[("A", "b")]),
        (ok, "A: b\r\r\n folded\r", &[("A", "b folded")]),
        (ok, many.trim_end(), &[("A", "b"); 300]),
    ] {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        assert_eq!(tolerated(status, lines), Ok(fields.iter().map(own).collect()), "{lines:?}");
    }
    for (status, lines) in [
        (ok, "A: b\0c"),
        (ok, "A: b\r\n Content-Length: 9"),
        (ok, "A: b\rContent-Length: 9"),
        (ok, "Content-Length\r\nA b: c"),
        (ok, "Content-Length(): 9"),
        (ok, "Content-Length:\r\n 9"),
        (ok, " Transfer-Encoding: chunked"),
        (ok, "Transfer Encoding: chunked"),
        ("HTTP/1.1 2000 OK", "A: b"),
        ("HTTP/1.x 200 OK", "A: b"),
        ("HTTP/2.1 200", "A: b"),
        ("HTTP/3 200", "A: b"),
    ] {
        let error = tolerated(status, lines).unwrap_err();
        assert!(error.to_string().starts_with("the head is not valid"), "{status}: {lines:?}");
    }
    for bytes in ["HTTP/1.1 200 OK\r\n\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA b: c\r\n"] {
        assert!(ResponseHead::parse(bytes.as_bytes()).is_err(), "{bytes}");
    }
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
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    assert!(head(length).keeps_alive() && head(chunked).keeps_alive());
    let doubtful = [&length.replace('5', "5 bytes"), &chunked.replace("ed", "ed, identity")];
    for fields in doubtful.into_iter().chain([&[length, chunked].concat(), &chunked.repeat(2)]) {
        assert!(!head(fields).keeps_alive(), "{fields}");
    }
}

#[test]
fn content_is_described_and_its_coding_known() {
    let page = head("Content-Type: text/html; charset=utf-8\r\nContent-Length: 24\r\n");
    assert_eq!(page.describe_content(), "text/html of 24 bytes");
    assert_eq!(head("").describe_content(), "unknown type of unknown length");
    assert_eq!(head("Content-Type: \u{202e}x\r\n").describe_content(), "\\u{202e}x of unknown length");
    for (fields, coding, on_the_fly) in [
        ("Vary: Accept-Encoding\r\n", None, false),
        ("Content-Encoding: identity, none\r\nETag: W/\"a\"\r\n", None, false),
        ("Content-Encoding: X-Gzip\r\nETag: \"a\"\r\n", Some("x-gzip"), false),
        ("Content-Encoding: gzip\r\nETag: W/\"a\"\r\n", Some("gzip"), true),
        ("Content-Encoding: br\r\nVary: Cookie, Accept-Encoding\r\n", Some("br"), true),
    ] {
        let head = head(fields);
        assert_eq!((head.content_coding().as_deref(), head.is_coded_on_the_fly()), (coding, on_the_fly));
        assert_eq!(head.require_identity().is_ok(), coding.is_none(), "{fields}");
    }
    // The date is that of the file in every coding.
    let dated = "Date: Sun, 06 Nov 1994 08:49:39 GMT\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let coded = format!("{dated}Content-Encoding: gzip\r\n");
    assert!(head(dated).validator().is_some() && head(&coded).validator().is_none());
    let location = ResponseHead::parse(b"HTTP/1.1 302 X\r\nLocation: /\xe9 ?a\r\n\r\n").unwrap();
    assert_eq!(location.location().as_deref(), Some("/%E9 ?a"));
}
