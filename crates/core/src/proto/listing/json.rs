//! Incremental parser of a JSON listing, entry by entry, since a directory may have millions of entries.

use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::{Error, Visitor};

use super::{ListedEntry, ListedKind, ListingError, parse_utc};
use crate::units::Bytes;

/// The longest accepted entry: a name of 255 bytes takes at most 1,530 if every byte is escaped as `\u00xx`.
const MAX_ENTRY: usize = 16 << 10;

/// Parses the entries of a JSON listing in order.
///
/// An entry is an object with `name`, `type` (`file`, `directory`, or another kind), `size` in bytes and `mtime` as an
/// HTTP date. `longhaul serve` adds `href`, the percent-encoded name, which takes precedence over `name`, and `unique`
/// for directories. Caddy has `is_dir` for `type`, and `mod_time` (RFC 3339) for `mtime`.
#[derive(Debug)]
pub struct JsonEntries<R> {
    reader: R,
    state: ArrayState,
    /// The text of the entry being read.
    entry: Vec<u8>,
}

/// The state of the parser within the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayState {
    BeforeArray,
    /// After the opening bracket.
    FirstEntry,
    /// After a comma.
    NextEntry,
    InEntry {
        depth: usize,
        string: bool,
        escaped: bool,
    },
    AfterEntry,
    AfterArray,
    /// After the end of the text, or after an error.
    Ended,
}

impl<R: BufRead> JsonEntries<R> {
    /// Creates a parser of `reader`, which ends at the end of the listing.
    pub fn new(reader: R) -> Self {
        Self { reader, state: ArrayState::BeforeArray, entry: Vec::new() }
    }

    fn read_entry(&mut self) -> Result<Option<ListedEntry>, ListingError> {
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                return match std::mem::replace(&mut self.state, ArrayState::Ended) {
                    ArrayState::AfterArray => Ok(None),
                    _ => Err(malformed("the JSON listing is cut off")),
                };
            }
            let (mut used, mut complete) = (0, false);
            for &byte in bytes {
                used += 1;
                let next =
                    self.state.after(byte).ok_or_else(|| malformed("it is no JSON array of entries"))?;
                if matches!(next, ArrayState::InEntry { .. })
                    || matches!(self.state, ArrayState::InEntry { .. })
                {
                    self.entry.push(byte);
                }
                complete = matches!(self.state, ArrayState::InEntry { .. }) && next == ArrayState::AfterEntry;
                self.state = next;
                if complete {
                    break;
                }
            }
            self.reader.consume(used);
            if self.entry.len() > MAX_ENTRY {
                return Err(malformed("an entry of the JSON listing is too long"));
            }
            if complete {
                let entry = parse(&self.entry);
                self.entry.clear();
                return entry.map(Some);
            }
        }
    }
}

impl ArrayState {
    /// Returns the state after `byte`; `None` if the byte is not allowed.
    fn after(self, byte: u8) -> Option<Self> {
        const IN: ArrayState = ArrayState::InEntry { depth: 1, string: false, escaped: false };
        match (self, byte) {
            (Self::InEntry { depth, string: true, escaped }, _) => {
                let string = escaped || byte != b'"';
                Some(Self::InEntry { depth, string, escaped: !escaped && byte == b'\\' })
            }
            (Self::InEntry { depth, .. }, _) => Some(match byte {
                b'"' => Self::InEntry { depth, string: true, escaped: false },
                b'{' | b'[' => Self::InEntry { depth: depth + 1, string: false, escaped: false },
                b'}' | b']' if depth == 1 => Self::AfterEntry,
                b'}' | b']' => Self::InEntry { depth: depth - 1, string: false, escaped: false },
                _ => self,
            }),
            (Self::Ended, _) => None,
            (_, b' ' | b'\t' | b'\r' | b'\n') => Some(self),
            (Self::BeforeArray, b'[') => Some(Self::FirstEntry),
            (Self::FirstEntry | Self::NextEntry, b'{') => Some(IN),
            (Self::FirstEntry | Self::AfterEntry, b']') => Some(Self::AfterArray),
            (Self::AfterEntry, b',') => Some(Self::NextEntry),
            _ => None,
        }
    }
}

impl<R: BufRead> Iterator for JsonEntries<R> {
    type Item = Result<ListedEntry, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == ArrayState::Ended {
            return None;
        }
        let entry = self.read_entry();
        if entry.is_err() {
            self.state = ArrayState::Ended;
        }
        entry.transpose()
    }
}

/// An entry as serialised.
#[derive(Deserialize)]
struct WrittenEntry<'a> {
    name: Option<NameBytes>,
    #[serde(borrow)]
    href: Option<Cow<'a, str>>,
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    is_dir: Option<bool>,
    size: Option<u64>,
    #[serde(borrow)]
    mtime: Option<Cow<'a, str>>,
    #[serde(borrow)]
    mod_time: Option<Cow<'a, str>>,
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

fn parse(text: &[u8]) -> Result<ListedEntry, ListingError> {
    let written: WrittenEntry<'_> = serde_json::from_slice(text)
        .map_err(|error| malformed(&format!("an entry of the JSON listing cannot be understood: {error}")))?;
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

fn malformed(why: &str) -> ListingError {
    ListingError::Malformed(why.to_owned())
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
        let long = format!("[{{\"name\":\"{}\",\"type\":\"file\"}}]", "x".repeat(MAX_ENTRY));
        let short =
            r#"|[|[{}]|{}|[1]|null|<html>|[{]|[{"name":"a"}]|[{"type":"file"}]|[{"name":1,"type":"file"}]"#;
        let ends = ["}", "},]", "}] x", ",\"size\":-1}]"];
        let entries = ends.map(|end| format!(r#"[{{"name":"a","type":"file"{end}"#));
        for text in short.split('|').chain(entries.iter().chain([&long]).map(String::as_str)) {
            assert!(matches!(read(text.as_bytes()), Err(ListingError::Malformed(_))), "{text:.40}");
        }
    }
}
