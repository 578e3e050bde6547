//! Incremental parser of an XML listing of nginx, entry by entry.
//!
//! ```text
//!   <list>
//!   <directory mtime="2026-01-31T12:00:00Z">sub</directory>
//!   <file mtime="2026-01-31T12:00:00Z" size="7">a &amp; b</file>
//!   </list>
//! ```

use std::io::Read;

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{IoReader, StartTag, Token, Tokenizer};

use super::{ListedEntry, ListedKind, ListingError, malformed, parse_utc};
use crate::units::Bytes;

/// The longest accepted name: 255 bytes as entities take at most 1,530.
const MAX_TEXT: usize = 4096;

/// Parses the entries of an XML listing in order. The syntax that nginx uses is also that of HTML.
pub struct XmlEntries<R: Read> {
    tokens: Tokenizer<IoReader<R>>,
    state: ListState,
}

/// The state of the parser.
enum ListState {
    BeforeList,
    /// Between the entries.
    InList,
    InEntry(ListedEntry),
    /// After the list, or after an error.
    Ended,
}

impl<R: Read> XmlEntries<R> {
    /// Creates a parser of `reader`, which ends at the end of the listing.
    pub fn new(reader: R) -> Self {
        let tokens = Tokenizer::new_with_emitter(IoReader::new(reader), DefaultEmitter::default());
        Self { tokens, state: ListState::BeforeList }
    }

    fn next_entry(&mut self) -> Result<Option<ListedEntry>, ListingError> {
        for token in self.tokens.by_ref() {
            match (token?, &mut self.state) {
                (Token::StartTag(tag), ListState::BeforeList) if **tag.name == *b"list" => {
                    self.state = ListState::InList;
                }
                (Token::StartTag(tag), ListState::InList) => self.state = ListState::InEntry(begin(&tag)),
                (Token::String(text), ListState::InEntry(entry)) if entry.name.len() <= MAX_TEXT => {
                    entry.name.extend_from_slice(&text);
                }
                (Token::EndTag(_), state @ ListState::InEntry(_)) => {
                    if let ListState::InEntry(entry) = std::mem::replace(state, ListState::InList) {
                        return Ok(Some(entry));
                    }
                }
                (Token::EndTag(_), ListState::InList) => {
                    self.state = ListState::Ended;
                    return Ok(None);
                }
                (Token::String(text), ListState::BeforeList | ListState::InList)
                    if text.trim_ascii().is_empty() => {}
                (Token::Comment(_) | Token::Doctype(_), ListState::BeforeList) | (Token::Error(_), _) => {}
                _ => return Err(malformed("it is no XML list of entries")),
            }
        }
        Err(malformed("the XML listing is cut off"))
    }
}

impl<R: Read> Iterator for XmlEntries<R> {
    type Item = Result<ListedEntry, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state, ListState::Ended) {
            return None;
        }
        let entry = self.next_entry();
        if entry.is_err() {
            self.state = ListState::Ended;
        }
        entry.transpose()
    }
}

/// Begins an entry, whose name follows.
fn begin(tag: &StartTag<()>) -> ListedEntry {
    let attribute = |name: &[u8]| tag.attributes.get(name).and_then(|value| std::str::from_utf8(value).ok());
    let kind = match &**tag.name {
        b"file" => ListedKind::File,
        b"directory" => ListedKind::Directory,
        _ => ListedKind::Other,
    };
    let size = attribute(b"size").and_then(|size| size.parse().ok()).map(Bytes::new);
    let modified = attribute(b"mtime").and_then(parse_utc);
    ListedEntry {
        name: Vec::new(),
        kind,
        size: size.filter(|_| kind == ListedKind::File),
        modified,
        unique: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn read(text: &[u8]) -> Result<Vec<ListedEntry>, ListingError> {
        XmlEntries::new(text).collect()
    }

    #[test]
    fn listing_of_nginx_is_parsed_and_other_text_refused() {
        let text = b"<?xml version=\"1.0\"?>\n<list>\n<directory mtime=\"1994-11-06T08:49:37Z\">d</directory>\n\
            <file mtime=\"1994-11-06T08:49:37Z\" size=\"7\">a &amp; &lt;b&gt; \xff</file>\n<other mtime=\"?\">p</other>\n</list>\n";
        let entries = read(text).unwrap();
        let modified = Some(UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!((&entries[0].name[..], entries[0].kind), (&b"d"[..], ListedKind::Directory));
        assert_eq!((&entries[1].name[..], entries[1].kind), (&b"a & <b> \xff"[..], ListedKind::File));
        assert_eq!((entries[1].size, entries[1].modified), (Some(Bytes::new(7)), modified));
        assert_eq!((entries[2].kind, entries[2].modified), (ListedKind::Other, None));
        assert_eq!(read(b"<list>\r\n</list>").unwrap(), []);
        for text in
            "|text|<html><title>Index of</title>|<list>|<list><file>a|<list><file>a</file>|<list>text</list>|\
            <list><file><file>a</file></file></list>"
                .split('|')
        {
            assert!(matches!(read(text.as_bytes()), Err(ListingError::Malformed(_))), "{text}");
        }
    }
}
