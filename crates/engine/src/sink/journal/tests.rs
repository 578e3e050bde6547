use longhaul_core::ranges::ByteRange;

use super::*;

const SIZE: Bytes = Bytes::new(100);
const URL: &str = "http://h/f?id=1";

fn identity(text: &str) -> Identity {
    Validator::parse(text).unwrap().into()
}

fn source(url: &str, validator: &str) -> JournalSource {
    JournalSource::new(url, "http://h/f".into(), identity(validator))
}

fn checksum(digit: char) -> Checksum {
    format!("sha256:{}", digit.to_string().repeat(64)).parse().unwrap()
}

#[test]
fn journal_reads_as_written_with_a_source_per_url_up_to_a_limit() {
    let ranges: RangeSet = [ByteRange::new(0, 10), ByteRange::new(50, 100)].into_iter().collect();
    let time = Identity::ModificationTime("20260101000000".into());
    let sources = vec![source(URL, "\"a\""), JournalSource::new("ftp://h/f", "ftp://h/f".into(), time)];
    let mut journal = Journal::new(SIZE, sources, Some(checksum('a')));
    journal.refuted = Some(checksum('b'));
    let read = Journal::decode(&journal.encode(&ranges).unwrap()).unwrap();
    assert_eq!(read.committed, ranges);
    assert_eq!((&read.sources, read.digest), (&journal.sources, Some(checksum('a'))));
    assert_eq!(read.refuted, Some(checksum('b')));
    let mut journal = Journal::new(SIZE, vec![source(URL, "\"a\"")], None);
    journal.add_source(source(URL, "\"b\""));
    assert_eq!(journal.sources, [source(URL, "\"b\"")]);
    (0..MAX_SOURCES).for_each(|n| journal.add_source(source(&format!("http://h/{n}"), "\"b\"")));
    assert_eq!((journal.sources.len(), journal.source(URL)), (MAX_SOURCES, None));
}

#[test]
fn damaged_journal_is_distinguished_from_a_later_version() {
    let good = r#"{"version":2,"size":9,"sources":[{"url":"u","url_digest":"d","identity":{"kind":"etag","value":"\"a\""}}],"committed":[[0,9]]}"#;
    assert!(Journal::decode(good.as_bytes()).is_ok());
    let later = r#"{"version":3,"pieces":"elsewhere"}"#;
    assert_eq!(Journal::decode(later.as_bytes()), Err(DecodeError::Version(3)));
    let changes = [
        (":2,", ":0,"),
        (":2,", ":1,"),
        ("[0,9]", "[0,10]"),
        ("[0,9]", "[9,3]"),
        (r#"\"a\""#, "a"),
        (r#""size""#, r#""digest":"md5:0","size""#),
        (r#""size""#, r#""more":1,"size""#),
    ];
    let changed = changes.map(|(from, to)| good.replace(from, to));
    let no_source = r#"{"version":2,"size":9,"sources":[],"committed":[]}"#;
    for text in changed.into_iter().chain([&good[..40], no_source, ""].map(str::to_owned)) {
        assert!(matches!(Journal::decode(text.as_bytes()), Err(DecodeError::Damaged(_))), "{text}");
    }
}

#[test]
fn only_a_known_url_and_identity_needs_no_comparison() {
    use SourceMatch::{FreshUrl, Other, Same};
    let (tag, date) = ("\"a\"", "Sun, 06 Nov 1994 08:49:37 GMT");
    let assumed = JournalSource::new("http://vouched/f", String::new(), Identity::AssumedUnchanged);
    let sources = vec![source(URL, tag), source("http://m/f", date), assumed];
    let journal = Journal::new(SIZE, sources, Some(checksum('a')));
    let given = |text: &str| Some(identity(text));
    let (ours, others) = (Some(checksum('a')), Some(checksum('b')));
    for (url, size, identity, digest, found) in [
        (URL, SIZE, given(tag), None, Same),
        (URL, SIZE, given(tag), others.clone(), Same),
        ("http://m/f", SIZE, given(date), None, Same),
        ("http://vouched/f", SIZE, Some(Identity::AssumedUnchanged), None, Same),
        // The expected digest proves the complete file, not the bytes present.
        (URL, SIZE, given("\"b\""), ours.clone(), FreshUrl),
        ("http://new/f", SIZE, None, ours.clone(), Other),
        ("http://new/f", SIZE, Some(Identity::Digest(checksum('a'))), None, FreshUrl),
        // Another URL, possibly a fresh link to the file.
        ("http://h/f?id=2", SIZE, given(tag), None, FreshUrl),
        ("http://new/f", SIZE, given(date), None, FreshUrl),
        ("http://new/f", SIZE, given(tag), others, Other),
        ("http://new/f", SIZE, Some(Identity::AssumedUnchanged), None, Other),
        ("http://new/f", SIZE, given("\"b\""), None, Other),
        ("http://new/f", SIZE, None, None, Other),
        // The file has changed, or a change cannot be detected.
        (URL, SIZE, given("\"b\""), None, Other),
        (URL, SIZE, given(date), None, Other),
        (URL, SIZE, None, None, Other),
        (URL, Bytes::new(99), given(tag), ours, Other),
    ] {
        let result = journal.match_source(url, size, identity.as_ref(), digest.as_ref());
        assert_eq!(result, found, "{url} {size} {identity:?} {digest:?}");
    }
}
