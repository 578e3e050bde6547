//! What an interrupted transfer leaves behind so that the next run can go on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};

/// The journal of a partial file: which file it is a part of, and which of its bytes are on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    version: u32,
    /// Where the file came from, without credentials.
    pub url: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its entity tag, as the server wrote it.
    pub etag: Option<String>,
    /// Its Last-Modified date, as the server wrote it.
    pub last_modified: Option<String>,
    /// Committed ranges, `[start, end)`.
    committed: Vec<(u64, u64)>,
}

const VERSION: u32 = 1;

impl Journal {
    /// Makes the journal of a file of which nothing is there yet.
    pub fn new(url: String, size: Bytes, etag: Option<String>, last_modified: Option<String>) -> Self {
        Self { version: VERSION, url, size: size.get(), etag, last_modified, committed: Vec::new() }
    }

    /// Returns the committed ranges.
    pub fn committed(&self) -> RangeSet {
        self.committed.iter().map(|&(start, end)| ByteRange::new(start, end)).collect()
    }

    /// Returns whether `other` is of the same file: a strong ETag says so, a date only with the same URL.
    pub fn same_file(&self, other: &Self) -> bool {
        let strong = |etag: &Option<String>| etag.clone().filter(|etag| !etag.starts_with("W/"));
        let same = match (strong(&self.etag), strong(&other.etag)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => {
                self.url == other.url
                    && self.last_modified.is_some()
                    && self.last_modified == other.last_modified
            }
            _ => false,
        };
        same && self.size == other.size
    }

    /// Reads a journal; `None` where there is none, or it is of another version, damaged, or claims
    /// bytes past the file's end: the transfer then starts over.
    pub fn load(path: &Path) -> Option<Self> {
        let journal: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let sound = journal.version == VERSION
            && journal.committed.iter().all(|&(start, end)| start < end && end <= journal.size);
        sound.then_some(journal)
    }

    /// Writes the journal with these committed ranges, replacing the last one atomically.
    ///
    /// # Errors
    /// What the kernel says of the directory.
    pub fn store(&self, path: &Path, committed: &RangeSet) -> io::Result<()> {
        let committed = committed.iter().map(|r| (r.start(), r.end())).collect();
        let text = serde_json::to_vec(&Self { committed, ..self.clone() })?;
        let mut fresh = path.as_os_str().to_owned();
        fresh.push("~");
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&fresh, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(etag: Option<&str>, date: Option<&str>) -> Journal {
        Journal::new("http://h/f".into(), Bytes::new(100), etag.map(Into::into), date.map(Into::into))
    }

    #[test]
    fn comes_back_as_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let ranges: RangeSet = [ByteRange::new(0, 10), ByteRange::new(50, 100)].into_iter().collect();
        journal(Some("\"a\""), None).store(&path, &ranges).unwrap();
        assert_eq!(Journal::load(&path).unwrap().committed(), ranges);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_journal_is_no_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let good = r#"{"version":1,"url":"u","size":9,"etag":null,"last_modified":null,"committed":[[0,9]]}"#;
        for (text, sound) in [
            (good.to_owned(), true),
            (good[..40].to_owned(), false),
            (good.replace(":1,", ":2,"), false),
            (good.replace("[0,9]", "[0,10]"), false),
            (good.replace("[0,9]", "[9,3]"), false),
            (String::new(), false),
        ] {
            fs::write(&path, &text).unwrap();
            assert_eq!(Journal::load(&path).is_some(), sound, "{text}");
        }
        assert_eq!(Journal::load(&dir.path().join("none")), None);
    }

    #[test]
    fn only_a_validator_makes_two_files_the_same() {
        let elsewhere = |j: Journal| Journal { url: "http://mirror/f".into(), ..j };
        let date = Some("Sat, 21 Nov 2026 20:36:28 GMT");
        assert!(journal(Some("\"a\""), None).same_file(&elsewhere(journal(Some("\"a\""), date))));
        assert!(!journal(Some("\"a\""), date).same_file(&journal(Some("\"b\""), date)));
        assert!(journal(Some("W/\"a\""), date).same_file(&journal(None, date)));
        assert!(!journal(None, date).same_file(&elsewhere(journal(None, date))));
        assert!(!journal(None, None).same_file(&journal(None, None)));
        assert!(
            !journal(Some("\"a\""), None).same_file(&Journal { size: 99, ..journal(Some("\"a\""), None) })
        );
    }
}
