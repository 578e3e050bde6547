//! Incremental parser of a JSON listing, entry by entry, since a directory may have millions of entries.

use std::fmt;
use std::io::{self, BufRead, Read};

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::{Error, Visitor};
use serde_json::error::Category;

use super::{ListedEntry, ListedKind, ListingError, malformed, parse_utc};
use crate::units::Bytes;

/// The longest accepted entry: a name of 255 bytes takes at most 1,530 if every byte is escaped as `\u00xx`.
const MAX_ENTRY: u64 = 16 << 10;

/// Parses the entries of a JSON listing in order.
///
/// An entry is an object with `name`, `type` (`file`, `directory`, or another kind), `size` in bytes and `mtime` as an
/// HTTP date. `longhaul serve` adds `href`, the percent-encoded name, which takes precedence over `name`, and `unique`
/// for directories. Caddy has `is_dir` for `type`, and `mod_time` (RFC 3339) for `mtime`.
#[derive(Debug)]
pub struct JsonEntries<R> {
    reader: R,
    /// Whether the opening bracket comes next.
    is_first: bool,
    /// Whether the array or the text has ended, or an error was returned.
    has_ended: bool,
}

impl<R: BufRead> JsonEntries<R> {
    /// Creates a parser of `reader`, which ends at the end of the listing.
    pub fn new(reader: R) -> Self {
        Self { reader, is_first: true, has_ended: false }
    }

    fn read_entry(&mut self) -> Result<Option<ListedEntry>, ListingError> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        if is_first {
            self.expect(b'[')?;
        }
        if self.peek()? == Some(b']') {
            self.reader.consume(1);
            return self.peek()?.map_or(Ok(None), |byte| Err(unexpected(Some(byte))));
        }
        if !is_first {
            self.expect(b',')?;
        }
        let next = self.peek()?;
        if next != Some(b'{') {
            return Err(unexpected(next));
        }
        let mut limited = self.reader.by_ref().take(MAX_ENTRY);
        let entry = WrittenEntry::deserialize(&mut serde_json::Deserializer::from_reader(&mut limited));
        let written = entry.map_err(|error| match error.classify() {
            Category::Io => ListingError::Read(error.into()),
            Category::Eof if limited.limit() == 0 => malformed("an entry of the JSON listing is too long"),
            Category::Eof => unexpected(None),
            _ => malformed(&format!("an entry of the JSON listing cannot be understood: {error}")),
        })?;
        entry_of(written).map(Some)
    }

    /// Returns the next byte that is not white space; `None` at the end of the text.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let blank = bytes.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count();
            let (next, is_end) = (bytes.get(blank).copied(), bytes.is_empty());
            self.reader.consume(blank);
            if next.is_some() || is_end {
                return Ok(next);
            }
        }
    }

    /// Skips `byte`, which must come next.
    fn expect(&mut self, byte: u8) -> Result<(), ListingError> {
        let next = self.peek()?;
        if next != Some(byte) {
            return Err(unexpected(next));
        }
        self.reader.consume(1);
        Ok(())
    }
}

impl<R: BufRead> Iterator for JsonEntries<R> {
    type Item = Result<ListedEntry, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let entry = self.read_entry().transpose();
        self.has_ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// An entry as serialised.
#[derive(Deserialize)]
struct WrittenEntry {
    name: Option<NameBytes>,
    href: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    is_dir: Option<bool>,
    size: Option<u64>,
    mtime: Option<String>,
    mod_time: Option<String>,
    unique: Option<String>,
}

/// A JSON string that need not be UTF-8, because nginx writes the bytes of a file name unchanged.
struct NameBytes(Vec<u8>);

impl<'de> Deserialize<'de> for NameBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = NameBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<NameBytes, E> {
                Ok(NameBytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

fn entry_of(written: WrittenEntry) -> Result<ListedEntry, ListingError> {
    let href = written.href.map(|href| percent_decode_str(&href).collect());
    let name = href.or(written.name.map(|name| name.0));
    let mut name: Vec<u8> = name.ok_or_else(|| malformed("an entry of the JSON listing has no name"))?;
    let kind = match (written.kind.as_deref(), written.is_dir) {
        (Some("file"), _) | (None, Some(false)) => ListedKind::File,
        (Some("directory"), _) => ListedKind::Directory,
        (None, Some(true)) => {
            name.pop_if(|last| *last == b'/');
            ListedKind::Directory
        }
        (Some(_), _) => ListedKind::Other,
        (None, None) => return Err(malformed("an entry of the JSON listing has no type")),
    };
    let modified = written.mtime.and_then(|date| httpdate::parse_http_date(&date).ok());
    Ok(ListedEntry {
        name,
        kind,
        size: written.size.filter(|_| kind == ListedKind::File).map(Bytes::new),
        modified: modified.or_else(|| parse_utc(&written.mod_time?)),
        unique: written.unique.filter(|_| kind == ListedKind::Directory),
    })
}

/// Creates the error of a byte that is out of place, or of a text that is cut off.
fn unexpected(byte: Option<u8>) -> ListingError {
    malformed(if byte.is_some() { "it is no JSON array of entries" } else { "the JSON listing is cut off" })
}

#[cfg(test)]
mod tests {
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
}
