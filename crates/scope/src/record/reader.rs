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
