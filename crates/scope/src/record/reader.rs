//! Reads a record, whole or cut off.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::RecordError;
use super::schema::{End, Header, Line, MAGIC, Sample, VERSION, What};

/// The longest first line; a header is a few hundred bytes.
const LONGEST_HEADER: u64 = 64 << 10;
/// The longest line of any other kind: a sample of ten thousand streams is 15 MB.
const LONGEST_LINE: u64 = 64 << 20;

/// A record that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its first line.
    pub header: Header,
    /// The samples, each with its time in seconds since the start, in that order.
    ///
    /// From the first count on, each has the latest count of the page cache.
    pub samples: Vec<(f64, Sample)>,
    /// Everything else that happened.
    pub events: Vec<Line>,
    /// How it ended; `None` where that was not recorded.
    pub end: Option<End>,
    /// What is wrong with it, in a phrase such as "cut off in line 812"; `None` where nothing is.
    pub damage: Option<String>,
}

impl Record {
    /// Reads the record at `path`: all of it, or all before its first damage.
    ///
    /// # Errors
    /// [`RecordError`]: it cannot be read, is empty, no record at all, or of a newer version.
    pub fn load(path: &Path) -> Result<Self, RecordError> {
        let fail = |source| RecordError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        Self::read(BufReader::with_capacity(256 << 10, file), path)
    }

    /// Reads a record; `path` is for errors.
    fn read(from: impl BufRead, path: &Path) -> Result<Self, RecordError> {
        let fail = |source| RecordError::Read { path: path.to_owned(), source };
        let mut lines = Lines { from, line: Vec::new(), number: 0 };
        let first = lines.next(LONGEST_HEADER).map_err(fail)?;
        let header = header(first, path.to_owned())?;
        let mut record = Self { header, samples: Vec::new(), events: Vec::new(), end: None, damage: None };
        while record.damage.is_none() {
            let ended = record.end.is_some();
            match lines.next(LONGEST_LINE).map_err(fail)? {
                [] if ended => break,
                [] => record.damage = Some("without an end: its writer was killed, or still writes".into()),
                _ if ended => {
                    record.damage = Some(format!("goes on after its end, in line {}", lines.number))
                }
                text => record.damage = record.add(text).map(|damage| damage.in_line(lines.number)),
            }
        }
        Ok(record)
    }

    /// Adds a line; says what is wrong with it.
    fn add(&mut self, text: &[u8]) -> Option<Damage> {
        let Ok(line) = parse(text) else {
            return Some(if text.ends_with(b"\n") { Damage::Garbage } else { Damage::Cut });
        };
        if !(line.at >= 0.0 && line.at.is_finite()) {
            return Some(Damage::Garbage);
        }
        match line.what {
            What::Sample(mut sample) => {
                if let Some((at, before)) = self.samples.last() {
                    if line.at < *at {
                        return Some(Damage::Disorder);
                    }
                    sample.page_cache = sample.page_cache.or(before.page_cache);
                }
                self.samples.push((line.at, sample));
            }
            What::End(end) => self.end = Some(end),
            What::Unknown => {}
            what => self.events.push(Line { at: line.at, what }),
        }
        None
    }
}

/// What is wrong with a line.
enum Damage {
    Cut,
    Garbage,
    Disorder,
}

impl Damage {
    fn in_line(self, number: usize) -> String {
        match self {
            Self::Cut => format!("cut off in line {number}"),
            Self::Garbage => {
                format!("line {number} is no line of a record; it and what follows were left out")
            }
            Self::Disorder => {
                format!("line {number} is older than what precedes it; it and what follows were left out")
            }
        }
    }
}

/// Reads a line; a sample, which nearly all are, without the detour that an unknown kind takes.
fn parse(text: &[u8]) -> serde_json::Result<Line> {
    #[derive(Deserialize)]
    struct Kind {
        at: f64,
        event: String,
    }
    let kind: Kind = serde_json::from_slice(text)?;
    if kind.event == "sample" {
        return Ok(Line { at: kind.at, what: What::Sample(serde_json::from_slice(text)?) });
    }
    serde_json::from_slice(text)
}

fn header(first: &[u8], path: PathBuf) -> Result<Header, RecordError> {
    #[derive(Deserialize)]
    struct Mark {
        record: String,
        version: u32,
    }
    if first.is_empty() {
        return Err(RecordError::Empty { path });
    }
    let mark = serde_json::from_slice::<Mark>(first).ok().filter(|mark| mark.record == MAGIC);
    let Some(mark) = mark else {
        let cut = !first.ends_with(b"\n") && first.starts_with(format!(r#"{{"record":"{MAGIC}""#).as_bytes());
        let why = if cut { "it is cut off in its first line" } else { "its first line does not say so" };
        return Err(RecordError::NotARecord { path, why: why.to_owned() });
    };
    if mark.version > VERSION {
        return Err(RecordError::Newer { path, found: mark.version });
    }
    serde_json::from_slice(first)
        .map_err(|error| RecordError::NotARecord { path, why: format!("its first line is wrong: {error}") })
}

/// Lines of bounded length.
struct Lines<R> {
    from: R,
    line: Vec<u8>,
    /// The latest line's number, from 1.
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line, its end included, or as much of it as may be; nothing at the end.
    fn next(&mut self, longest: u64) -> io::Result<&[u8]> {
        self.line.clear();
        self.number += 1;
        self.from.by_ref().take(longest).read_until(b'\n', &mut self.line)?;
        Ok(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::RecordErrorKind;
    use super::*;

    const HEADER: &str = r#"{"record":"longhaul","version":1,"side":"get","what":"http://h/f","program":"longhaul 0.1.0","started":1.5,"interval":0.01,"host":{"name":"h","kernel":"6","cores":2}}"#;
    const END: &str =
        r#"{"at":9,"event":"end","outcome":null,"telemetry":{"samples":3,"dropped":0,"cpu":0.1}}"#;

    fn sample(at: f64, more: &str) -> String {
        format!(
            r#"{{"at":{at},"event":"sample","moved":7,"sockets":{{"open":1,"unread":5,"retransmits":0,"out_of_order":0,"acked":0}}{more},"streams":[{{"stream":0,"unread":5,"tcp":{{"tcpi_rtt":8,"tcpi_new":9}}}}]}}"#
        )
    }

    const PAGES: &str =
        r#","page_cache":{"cached":9,"dirty":8,"writeback":7,"evicted":0,"recently_evicted":0}"#;

    /// A header, an event, three samples and an end: six lines.
    fn whole() -> String {
        let opened = r#"{"at":0.5,"event":"opened","path":"/f","resumed":0,"writer":"direct"}"#.to_owned();
        let samples = [sample(1.0, ""), sample(2.0, PAGES), sample(3.0, "")];
        let lines = [&[HEADER.to_owned(), opened], &samples[..], &[END.to_owned()]].concat();
        lines.join("\n") + "\n"
    }

    fn read(bytes: impl AsRef<[u8]>) -> Result<Record, RecordError> {
        Record::read(bytes.as_ref(), Path::new("r.jsonl"))
    }

    #[track_caller]
    fn fails(bytes: impl AsRef<[u8]>, words: &[&str]) {
        let error = read(bytes).unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::Data, "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)) && text.contains("r.jsonl"), "{text}");
    }

    /// Reads a damaged record; returns how many samples are left of it.
    #[track_caller]
    fn damaged(bytes: impl AsRef<[u8]>, word: &str) -> usize {
        let record = read(bytes).unwrap();
        let damage = record.damage.unwrap();
        assert!(damage.contains(word), "{damage}");
        record.samples.len()
    }

    #[test]
    fn reads_a_whole_one() {
        let record = read(whole()).unwrap();
        assert_eq!((record.damage, record.samples.len(), record.events.len()), (None, 3, 1));
        assert_eq!(record.end.unwrap().telemetry.samples, 3);
        let (at, last) = &record.samples[2];
        assert_eq!((*at, last.streams[0].tcp.get("tcpi_rtt")), (3.0, Some(8)));
        // Not counted anew in the last one.
        let pages: Vec<_> = record.samples.iter().map(|(_, s)| s.page_cache.map(|p| p.dirty)).collect();
        assert_eq!(pages, [None, Some(8), Some(8)]);
    }

    #[test]
    fn ignores_what_a_later_program_adds() {
        let more = HEADER.replace("\"side\"", "\"colour\":\"red\",\"side\"");
        let later = r#"{"at":1,"event":"eclipse","of":"the sun"}"#;
        let closed = r#"{"at":1,"event":"closed","stream":0,"why":"done"}"#;
        let record =
            read(format!("{more}\n{later}\n{closed}\n{}\n{END}\n", sample(2.0, r#","heat":1"#))).unwrap();
        assert_eq!((record.damage, record.samples.len(), record.events.len()), (None, 1, 1));
    }

    #[test]
    fn says_what_is_no_record() {
        fails("", &["empty", "has written nothing"]);
        fails([0x7f, b'E', b'L', b'F', 0, 1, 2], &["no record"]);
        fails([0; 100_000], &["no record"]);
        fails("{\"event\":\"done\"}\n", &["no record"]);
        fails("{\"record\":\"of a court\",\"version\":1}\n", &["no record"]);
        fails(HEADER.replace("\"side\":\"get\",", "") + "\n", &["no record", "side"]);
        fails(&HEADER[..50], &["cut off in its first line"]);
    }

    #[test]
    fn refuses_a_newer_version_and_says_so() {
        let newer = r#"{"record":"longhaul","version":7,"all":"different"}"#;
        fails(format!("{newer}\nanything"), &["version 7", "up to version 1", "update"]);
    }

    #[test]
    fn a_line_without_an_end_is_not_read_into_memory() {
        /// Counts what is read of an endless line.
        struct Endless(u64);
        impl io::Read for Endless {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                into.fill(b'[');
                self.0 += into.len() as u64;
                Ok(into.len())
            }
        }
        let mut endless = Endless(0);
        assert!(Record::read(BufReader::new(&mut endless), Path::new("r")).is_err());
        assert!(endless.0 <= LONGEST_HEADER * 2, "{}", endless.0);
        let begin = format!("{HEADER}\n{}\n", sample(1.0, ""));
        let mut endless = Endless(0);
        let from = BufReader::new(begin.as_bytes().chain(&mut endless));
        let record = Record::read(from, Path::new("r")).unwrap();
        assert_eq!((record.samples.len(), record.damage.as_deref()), (1, Some("cut off in line 3")));
        assert!(endless.0 <= LONGEST_LINE * 2, "{}", endless.0);
    }

    #[test]
    fn reads_up_to_the_damage() {
        let whole = whole();
        let lines: Vec<_> = whole.split_inclusive('\n').collect();
        let without = |end: usize, tail: &str| lines[..end].concat() + tail;
        assert_eq!(damaged(without(4, "{\"at\":3,\"ev"), "cut off in line 5"), 2);
        assert_eq!(damaged(without(5, ""), "without an end"), 3);
        assert_eq!(damaged(without(1, ""), "without an end"), 0);
        assert_eq!(damaged(without(4, "rubbish\n") + END, "line 5 is no line"), 2);
        assert_eq!(damaged(without(4, "\n") + END, "line 5 is no line"), 2);
        assert_eq!(damaged(without(4, "{\"at\":3}\n") + END, "line 5 is no line"), 2);
        assert_eq!(
            damaged(without(4, "{\"at\":-3,\"event\":\"verifying\"}\n") + END, "line 5 is no line"),
            2
        );
        assert_eq!(damaged(without(4, &"\0".repeat(5000)), "cut off in line 5"), 2);
        assert_eq!(damaged(without(5, &(sample(1.5, "") + "\n")) + END, "line 6 is older"), 3);
        assert_eq!(damaged(whole.clone() + HEADER, "goes on after its end, in line 7"), 3);
        // Two bytes that are no UTF-8, in a name.
        let bad = [without(4, "{\"at\":3,\"event\":\"").as_bytes(), b"\xff\xfe\"}\n"].concat();
        assert_eq!(damaged(bad, "line 5 is no line"), 2);
    }

    #[test]
    fn says_which_file_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        for (path, word) in [(dir.path().join("none"), "No such file"), (dir.path().to_owned(), "directory")]
        {
            let error = Record::load(&path).unwrap_err();
            assert_eq!(error.kind(), RecordErrorKind::NoInput);
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(path.to_str().unwrap()), "{text}");
        }
        let path = dir.path().join("r");
        fs::write(&path, whole()).unwrap();
        assert_eq!(Record::load(&path).unwrap(), read(whole()).unwrap());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), after in any::<bool>()) {
            let begin = if after { format!("{HEADER}\n") } else { String::new() };
            let result = read([begin.as_bytes(), &bytes].concat());
            prop_assert!(!after || result.unwrap().damage.is_some());
        }

        #[test]
        fn any_part_of_a_record_is_read_or_refused(cut in 0usize..2000) {
            let whole = whole();
            let cut = cut % whole.len();
            match read(&whole[..cut]) {
                Err(error) => prop_assert!(cut < HEADER.len(), "{error}"),
                // Without its last newline it is whole nevertheless.
                Ok(record) => prop_assert_eq!(record.damage.is_none(), cut + 1 == whole.len()),
            }
        }

        #[test]
        fn any_changed_byte_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = whole().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = read(bytes);
        }
    }
}
