//! What an interrupted transfer leaves behind so that the next run can go on.

use std::io;

use longhaul_core::proto::http::Validator;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};

/// The journal of a partial file: which file it is a part of, and which of its bytes are on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    version: u32,
    /// Where the file came from, without secrets: for people.
    pub url: String,
    /// The whole URL's BLAKE3 digest, query and all: for the program.
    url_digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// What identifies this state of it, as in If-Range.
    pub validator: String,
    /// Committed ranges, `[start, end)`.
    committed: Vec<(u64, u64)>,
}

const VERSION: u32 = 1;

impl Journal {
    /// Makes the journal of a file of which nothing is there yet; `shown` is `url` without secrets.
    pub fn new(url: &str, shown: String, size: Bytes, validator: &Validator) -> Self {
        Self {
            version: VERSION,
            url: shown,
            url_digest: blake3::hash(url.as_bytes()).to_hex().to_string(),
            size: size.get(),
            validator: validator.to_string(),
            committed: Vec::new(),
        }
    }

    /// Returns what the server must still say of the file.
    pub fn validator(&self) -> Option<Validator> {
        Validator::parse(&self.validator)
    }

    /// Returns the committed ranges.
    pub fn committed(&self) -> RangeSet {
        self.committed.iter().map(|&(start, end)| ByteRange::new(start, end)).collect()
    }

    /// Returns whether `other` is of the same file in the same state.
    ///
    /// Validators tell states of one URL apart, and nothing more (RFC 9110, section 8.8.3): two files of one size
    /// and time have the same ETag on some servers.
    pub fn same_file(&self, other: &Self) -> bool {
        let identity = |j: &Self| (j.url_digest.clone(), j.size, j.validator.clone());
        identity(self) == identity(other)
    }

    /// Reads a journal; `None` where it is of another version, damaged, or claims bytes past the file's
    /// end: the transfer then starts over.
    pub fn decode(text: &[u8]) -> Option<Self> {
        let journal: Self = serde_json::from_slice(text).ok()?;
        let sound = journal.version == VERSION
            && journal.validator().is_some()
            && journal.committed.iter().all(|&(start, end)| start < end && end <= journal.size);
        sound.then_some(journal)
    }

    /// Writes the journal as text, with these committed ranges.
    ///
    /// # Errors
    /// None that is known: every journal can be written.
    pub fn encode(&self, committed: &RangeSet) -> io::Result<Vec<u8>> {
        let committed = committed.iter().map(|r| (r.start(), r.end())).collect();
        Ok(serde_json::to_vec(&Self { committed, ..self.clone() })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(validator: &str) -> Journal {
        Journal::new(
            "http://h/f?id=1",
            "http://h/f".into(),
            Bytes::new(100),
            &Validator::parse(validator).unwrap(),
        )
    }

    #[test]
    fn comes_back_as_written() {
        let ranges: RangeSet = [ByteRange::new(0, 10), ByteRange::new(50, 100)].into_iter().collect();
        let text = journal("\"a\"").encode(&ranges).unwrap();
        assert_eq!(Journal::decode(&text).unwrap().committed(), ranges);
    }

    #[test]
    fn a_damaged_journal_is_no_journal() {
        let good =
            r#"{"version":1,"url":"u","url_digest":"d","size":9,"validator":"\"a\"","committed":[[0,9]]}"#;
        for (text, sound) in [
            (good.to_owned(), true),
            (good[..40].to_owned(), false),
            (good.replace(":1,", ":2,"), false),
            (good.replace("[0,9]", "[0,10]"), false),
            (good.replace("[0,9]", "[9,3]"), false),
            (String::new(), false),
        ] {
            assert_eq!(Journal::decode(text.as_bytes()).is_some(), sound, "{text}");
        }
    }

    #[test]
    fn another_url_size_or_validator_is_another_file() {
        let mine = journal("\"a\"");
        assert!(mine.same_file(&journal("\"a\"")));
        assert!(!mine.same_file(&journal("\"b\"")));
        assert!(!mine.same_file(&Journal { size: 99, ..mine.clone() }));
        let tag = Validator::parse("\"a\"").unwrap();
        assert!(!mine.same_file(&Journal::new("http://h/f?id=2", mine.url.clone(), Bytes::new(100), &tag)));
    }
}
