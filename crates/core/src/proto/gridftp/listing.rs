//! Incremental parser of a listing by MLSD (RFC 3659, section 7.2) or LIST.

use std::io::{BufRead, Read};

use super::facts::{entry_name, split_line, without_facts};
use super::list_line::parse_list_line;
use super::{Facts, FileKind};
use crate::proto::Malformed;
use crate::proto::listing::ListingError;

/// The longest accepted line: a name has up to 255 bytes, facts some hundred.
const MAX_LINE: u64 = 16 << 10;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// The name of the entry.
    pub name: Vec<u8>,
    /// The facts of the entry.
    pub facts: Facts,
}

/// The form of a listing's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingForm {
    /// Facts and a name: MLSD.
    Facts,
    /// Columns as of `ls -l` or of DOS: LIST.
    Columns,
}

/// Parses the entries of a listing in order; the directory itself and its parent are omitted.
///
/// A line that cannot be used is an error, after which the next line follows.
#[derive(Debug)]
pub struct ListingEntries<R> {
    reader: R,
    form: ListingForm,
    has_ended: bool,
}

impl<R: BufRead> ListingEntries<R> {
    /// Creates a parser of `reader`, which ends at the end of the listing; its lines are of this
    /// form.
    pub fn new(reader: R, form: ListingForm) -> Self {
        Self { reader, form, has_ended: false }
    }

    /// Parses a line; `None` if it is no entry.
    fn next_line(&mut self) -> Result<Option<ListingEntry>, ListingError> {
        let mut line = Vec::new();
        let mut limited = self.reader.by_ref().take(MAX_LINE);
        limited.read_until(b'\n', &mut line)?;
        let is_too_long = limited.limit() == 0;
        if line.pop_if(|last| *last == b'\n').is_none() {
            if is_too_long {
                self.reader.skip_until(b'\n')?;
                return Err(without_facts(&line).into());
            }
            self.has_ended = true;
            let cut_off = || Malformed::new("the listing ends within a line").into();
            return if line.is_empty() { Ok(None) } else { Err(cut_off()) };
        }
        line.pop_if(|last| *last == b'\r');
        Ok(match self.form {
            ListingForm::Facts => entry(&line),
            ListingForm::Columns => parse_list_line(&line),
        }?)
    }
}

impl<R: BufRead> Iterator for ListingEntries<R> {
    type Item = Result<ListingEntry, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_ended {
            let entry = self.next_line();
            self.has_ended |= matches!(entry, Err(ListingError::Read(_)));
            if let Some(entry) = entry.transpose() {
                return Some(entry);
            }
        }
        None
    }
}

/// Parses a line; `None` if it is empty, or is the directory itself or its parent.
fn entry(line: &[u8]) -> Result<Option<ListingEntry>, Malformed> {
    if line.is_empty() {
        return Ok(None);
    }
    let (facts, name) = split_line(line)?;
    if facts.kind == FileKind::ListedOrParent {
        return Ok(None);
    }
    Ok(Some(ListingEntry { name: entry_name(name)?, facts }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn read(text: &[u8]) -> Vec<Result<ListingEntry, ListingError>> {
        ListingEntries::new(text, ListingForm::Facts).collect()
    }

    const LISTING: &[u8] =
        b"Type=cdir;Modify=20261123213641; .\r\nType=pdir; /d\r\nType=file;Size=3; a b\r\n\
        \nType=dir; ../x\r\nno facts\r\ntype=dir;unique=1; sub\nType=file;size=7; caf\xe9\r\n";

    #[test]
    fn hostile_lines_are_refused_and_the_others_parsed() {
        let entries = read(LISTING);
        let names: Vec<_> =
            entries.iter().map(|entry| entry.as_ref().ok().map(|entry| entry.name.as_slice())).collect();
        assert_eq!(names, [Some(b"a b".as_slice()), None, None, Some(b"sub"), Some(b"caf\xe9")]);
        for (index, why) in [(1, "the name '../x'"), (2, "no facts before a name")] {
            assert!(entries[index].as_ref().unwrap_err().to_string().contains(why), "{why}");
        }
        assert_eq!(entries[0].as_ref().unwrap().facts.size, Some(Bytes::new(3)));
    }

    #[test]
    fn truncated_listing_and_endless_lines_are_detected() {
        let cut_off = read(b"type=file; a\r\ntype=file; b");
        assert!(cut_off.len() == 2 && cut_off[1].as_ref().unwrap_err().to_string().contains("within a line"));
        assert!(read(b"type=file; a\r\n").len() == 1 && read(b"").is_empty());
        // A line without an end is refused once, and skipped.
        let long = "x".repeat(48 << 10);
        let entries = read(format!("type=file; a\n{long}\ntype=file; b\n").as_bytes());
        assert!(entries.len() == 3 && entries[1].is_err() && entries[2].is_ok());
        assert!(read(long.as_bytes())[0].is_err());
    }
}
