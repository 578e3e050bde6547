//! Incremental parser of a JSON listing, entry by entry, since a directory may have millions of
//! entries.

use std::fmt;
use std::io::{self, BufRead, Read};

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::{Error, Visitor};
use serde_json::error::Category;

use super::{ListedEntry, ListedKind, ListingError, malformed, parse_utc};
use crate::units::Bytes;

/// The longest accepted entry: a name of 255 bytes takes at most 1,530 if every byte is escaped as
/// `\u00xx`.
const MAX_ENTRY: u64 = 16 << 10;

/// Parses the entries of a JSON listing in order.
///
/// An entry is an object with `name`, `type` (`file`, `directory`, or another kind), `size` in
/// bytes and `mtime` as an HTTP date. `longhaul serve` adds `href`, the percent-encoded name, which
/// takes precedence over `name`, and `unique` for directories. Caddy has `is_dir` for `type`, and
/// `mod_time` (RFC 3339) for `mtime`.
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
mod tests;
