//! Tests with a stock server: plain files, ranges, kept and pipelined connections, chunks.

use longhaul_core::proto::http::{Framing, RangeAnswer, RangeRequest};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{Client, ErrorKind, HttpError};
use url::Url;

use crate::support::{Nginx, client, content, next, open, open_error, quick, range, read_all};

#[test]
fn fetches_a_file_and_keeps_the_connection() {
    let Some(nginx) = Nginx::start() else { return };
    let data = content(3_000_001);
    nginx.file("data", &data);
    let mut opened = open(&client(), &nginx.url("/data")).unwrap();
    assert_eq!(opened.head.framing(), Ok(Framing::Length(Bytes::new(3_000_001))));
    assert!(opened.head.accepts_ranges() && opened.head.validator().is_some());
    assert_eq!(read_all(&mut opened.connection, 1 << 20).unwrap(), data);
    assert!(opened.connection.reusable());
    assert_eq!(next(&mut opened.connection, Some(&range(10, 20))), (206, data[10..20].to_vec()));
}

#[test]
fn pipelines_ranges() {
    let Some(nginx) = Nginx::start() else { return };
    let data = content(2_000_000);
    nginx.file("data", &data);
    let client = client();
    let url: Url = nginx.url("/data").parse().unwrap();
    let first = range(0, 700_000);
    let mut opened = client.open(&url, Some(&first), &Cancel::new()).unwrap();
    let validator = opened.head.validator();
    let ranges =
        [range(700_000, 700_001), range(700_001, 1_999_999), RangeRequest::from(Bytes::new(1_999_999))];
    // Requested while the first answer is still being received.
    for range in &ranges {
        opened.connection.send_get(Some(&range.clone().only_if(validator.clone()))).unwrap();
    }
    let mut got = read_all(&mut opened.connection, 100_000).unwrap();
    for range in &ranges {
        let head = opened.connection.read_head().unwrap();
        let answer = RangeAnswer::of(&head, Some(range)).unwrap();
        let end = range.range().end().min(2_000_000);
        let expected = ByteRange::new(range.range().start(), end);
        assert_eq!(answer, RangeAnswer::Part { range: expected, total: Some(Bytes::new(2_000_000)) });
        got.extend(read_all(&mut opened.connection, 100_000).unwrap());
    }
    assert_eq!(got, data);
    assert_eq!(opened.connection.unanswered(), 0);
}

#[test]
fn changed_file_is_sent_completely() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"the old state");
    let client = client();
    let url: Url = nginx.url("/data").parse().unwrap();
    let opened = client.open(&url, Some(&range(0, 4)), &Cancel::new()).unwrap();
    let validator = opened.head.validator().unwrap();
    nginx.file("data", b"another, longer state");
    let requested = range(4, 8).only_if(Some(validator));
    let opened = client.open(&url, Some(&requested), &Cancel::new()).unwrap();
    let answer = RangeAnswer::of(&opened.head, Some(&requested)).unwrap();
    assert_eq!(answer, RangeAnswer::Whole { total: Some(Bytes::new(21)) });
}

#[test]
fn missing_files_and_ranges_are_reported() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let error = open_error(&client(), &nginx.url("/nothing?key=secret"));
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("/nothing") && text.contains("404") && !text.contains("secret"), "{text}");
    let url: Url = nginx.url("/data").parse().unwrap();
    let beyond = RangeRequest::from(Bytes::new(5));
    match client().open(&url, Some(&beyond), &Cancel::new()) {
        Err(HttpError::RangeNotSatisfiable { total, .. }) => assert_eq!(total, Some(Bytes::new(5))),
        other => panic!("{:?}", other.map(|o| o.head)),
    }
}

#[test]
fn reads_chunks() {
    let Some(nginx) = Nginx::start() else { return };
    let data = content(1_000_003);
    nginx.file("data", &data);
    for size in [1 << 20, 4096, 777] {
        let mut opened = open(&client(), &nginx.url("/chunked/data")).unwrap();
        assert_eq!(opened.head.framing(), Ok(Framing::Chunked));
        assert_eq!(read_all(&mut opened.connection, size).unwrap(), data);
        assert!(opened.connection.reusable());
        opened.connection.send_get(None).unwrap();
        opened.connection.read_head().unwrap();
        assert_eq!(read_all(&mut opened.connection, size).unwrap(), data);
    }
}

#[test]
fn further_connections_reuse_the_resolved_address() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let client = Client::new(quick()).unwrap();
    // "localhost" has an IPv6 address without a listener.
    let mut opened = open(&client, &format!("http://localhost:{}/moved/data", nginx.port)).unwrap();
    assert_eq!(opened.target.url().path(), "/data");
    let mut second = client.connect(&mut opened.target, &Cancel::new()).unwrap();
    assert_eq!(second.peer(), opened.connection.peer());
    assert_eq!(next(&mut second, Some(&range(1, 3))), (206, b"23".to_vec()));
}
