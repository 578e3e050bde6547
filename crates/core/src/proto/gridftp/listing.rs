//! Incremental parser of a listing by MLSD (RFC 3659, section 7.2) or LIST.

use super::facts::{shown, split_line};
use super::list_line::parse_list_line;
use super::{EntryName, Facts, FactsError, FileKind};

/// The longest accepted line: a name has up to 255 bytes, facts some hundred.
const MAX_LINE: usize = 16 << 10;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// The name of the entry.
    pub name: EntryName,
    /// The facts of the entry.
    pub facts: Facts,
}

/// The form of a listing's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListingForm {
    /// Facts and a name: MLSD.
    #[default]
    Facts,
    /// Columns as of `ls -l` or of DOS: LIST.
    Columns,
}

/// Parses the lines of a listing, which may be split at any byte.
#[derive(Debug, Default)]
pub struct ListingReader {
    form: ListingForm,
    input: Vec<u8>,
    /// The number of bytes of `input` that belong to returned entries.
    used: usize,
    /// The number of bytes after `used` that contain no line feed.
    searched: usize,
    /// Whether the rest of a line that is too long is being skipped.
    skipping: bool,
}

impl ListingReader {
    /// Creates a parser of lines of this form.
    pub fn new(form: ListingForm) -> Self {
        Self { form, ..Self::default() }
    }

    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..std::mem::take(&mut self.used));
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next entry; `None` if more bytes are needed. The directory itself and its parent are omitted.
    ///
    /// # Errors
    /// [`FactsError`] for a line that cannot be used; the next call continues after it.
    pub fn next_entry(&mut self) -> Option<Result<ListingEntry, FactsError>> {
        loop {
            let rest = &self.input[self.used..];
            let Some(at) = rest[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = rest.len();
                return self.skip_long_line();
            };
            let end = self.searched + at;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let too_long = line.len() > MAX_LINE;
            let read = match self.form {
                _ if too_long => Err(FactsError::Line(shown(line))),
                ListingForm::Facts => entry(line),
                ListingForm::Columns => parse_list_line(line),
            };
            (self.used, self.searched) = (self.used + end + 1, 0);
            if !std::mem::take(&mut self.skipping)
                && let Some(read) = read.transpose()
            {
                return Some(read);
            }
        }
    }

    /// Returns whether the listing ends within a line.
    pub fn is_cut_off(&self) -> bool {
        self.skipping || self.used < self.input.len()
    }

    /// Drops the received part of a line that is longer than [`MAX_LINE`], and reports the line once.
    fn skip_long_line(&mut self) -> Option<Result<ListingEntry, FactsError>> {
        let rest = &self.input[self.used..];
        if rest.len() <= MAX_LINE && !self.skipping {
            return None;
        }
        let error = FactsError::Line(shown(rest));
        (self.used, self.searched) = (self.input.len(), 0);
        (!std::mem::replace(&mut self.skipping, true)).then_some(Err(error))
    }
}

/// Parses a line; `None` if it is empty, or is the directory itself or its parent.
fn entry(line: &[u8]) -> Result<Option<ListingEntry>, FactsError> {
    if line.is_empty() {
        return Ok(None);
    }
    let (facts, name) = split_line(line)?;
    if facts.kind == FileKind::ListedOrParent {
        return Ok(None);
    }
    Ok(Some(ListingEntry { name: EntryName::new(name)?, facts }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn read(pieces: &[&[u8]]) -> (Vec<Result<ListingEntry, FactsError>>, bool) {
        let (mut reader, mut entries) = (ListingReader::default(), Vec::new());
        for piece in pieces {
            reader.feed(piece);
            entries.extend(std::iter::from_fn(|| reader.next_entry()));
        }
        (entries, reader.is_cut_off())
    }

    const LISTING: &[u8] =
        b"Type=cdir;Modify=20261123213641; .\r\nType=pdir; /d\r\nType=file;Size=3; a b\r\n\
        \nType=dir; ../x\r\nno facts\r\ntype=dir;unique=1; sub\nType=file;size=7; caf\xe9\r\n";

    #[test]
    fn hostile_lines_are_refused_and_the_others_parsed() {
        let (entries, cut_off) = read(&[LISTING]);
        let names: Vec<_> =
            entries.iter().map(|entry| entry.as_ref().map(|entry| entry.name.as_bytes())).collect();
        let outside = FactsError::Name("../x".into());
        assert!(!cut_off);
        assert_eq!(names[..2], [Ok(b"a b".as_slice()), Err(&outside)]);
        assert!(matches!(names[2], Err(FactsError::Line(_))));
        assert_eq!(names[3..], [Ok(b"sub".as_slice()), Ok(b"caf\xe9")]);
        assert_eq!(entries[0].as_ref().unwrap().facts.size, Some(Bytes::new(3)));
    }

    #[test]
    fn truncated_listing_and_endless_lines_are_detected() {
        assert!(read(&[b"type=file; a\r\ntype=file; b"]).1);
        assert!(!read(&[b"type=file; a\r\n"]).1 && !read(&[]).1);
        // A line without an end is refused once, and skipped.
        let long = vec![b'x'; MAX_LINE];
        let (entries, cut_off) = read(&[b"type=file; a\n", &long, &long, &long, b"\ntype=file; b\n"]);
        assert!(entries.len() == 3 && entries[1].is_err() && entries[2].is_ok() && !cut_off);
        assert!(read(&[&long, &long]).1);
    }
}
