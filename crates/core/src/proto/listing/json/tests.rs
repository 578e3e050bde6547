use std::time::{Duration, UNIX_EPOCH};

use super::*;

fn read(text: &[u8]) -> Result<Vec<ListedEntry>, ListingError> {
    JsonEntries::new(text).collect()
}

#[test]
fn listing_of_nginx_is_parsed_and_a_percent_encoded_name_preferred() {
    let text = b"[\n{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" },\n\
        { \"name\":\"a \\\"b\\\" \\u0041\xff]}\", \"type\":\"file\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\", \"size\":7 },\n\
        { \"name\":\"pipe\", \"type\":\"other\", \"mtime\":\"?\" }\n]";
    let entries = read(text).unwrap();
    let modified = Some(UNIX_EPOCH + Duration::from_secs(784_111_777));
    assert_eq!((&entries[0].name[..], entries[0].kind), (&b"d"[..], ListedKind::Directory));
    assert_eq!((&entries[1].name[..], entries[1].kind), (&b"a \"b\" A\xff]}"[..], ListedKind::File));
    assert_eq!((entries[1].size, entries[1].modified), (Some(Bytes::new(7)), modified));
    assert_eq!((entries[2].kind, entries[2].modified), (ListedKind::Other, None));
    assert_eq!(read(b" [ ] \r\n").unwrap(), []);
    let entry =
        read(br#"[{"name":"?","href":"%FF%2e","type":"directory","unique":"1:2"}]"#).unwrap().remove(0);
    assert_eq!((&entry.name[..], entry.unique.as_deref()), (&b"\xff."[..], Some("1:2")));
    let caddy = read(
        br#"[{"name":"d/","size":4096,"url":"./d/","mod_time":"1994-11-06T08:49:37.25Z","mode":2147484141,"is_dir":true,
        "is_symlink":false},{"name":"f","size":7,"url":"./f","mod_time":"1994-11-06T08:49:37Z","is_dir":false}]"#,
    )
    .unwrap();
    assert_eq!((&caddy[0].name[..], caddy[0].kind), (&b"d"[..], ListedKind::Directory));
    assert_eq!((caddy[1].kind, caddy[1].size), (ListedKind::File, Some(Bytes::new(7))));
    assert_eq!((caddy[0].size, caddy[0].modified, caddy[1].modified), (None, modified, modified));
}

#[test]
fn incomplete_or_malformed_listings_are_refused() {
    let long = format!("[{{\"name\":\"{}\",\"type\":\"file\"}}]", "x".repeat(16 << 10));
    let short =
        r#"|[|[{}]|{}|[1]|null|<html>|[{]|[{"name":"a"}]|[{"type":"file"}]|[{"name":1,"type":"file"}]"#;
    let ends = ["}", "},]", "}] x", ",\"size\":-1}]"];
    let entries = ends.map(|end| format!(r#"[{{"name":"a","type":"file"{end}"#));
    for text in short.split('|').chain(entries.iter().chain([&long]).map(String::as_str)) {
        assert!(matches!(read(text.as_bytes()), Err(ListingError::Malformed(_))), "{text:.40}");
    }
}
