//! The lines of a record as they are read: one by one, of bounded length, and perhaps damaged.

use std::io::{self, BufRead, Read};

use longhaul_core::event::{JobEvent, JobId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::{End, Sample};

/// The longest line: a sample of ten thousand streams is 15 MB.
pub(super) const LONGEST_LINE: u64 = 64 << 20;
/// The longest line that is no sample: an unknown one takes many times its length of memory.
const LONGEST_EVENT: usize = 1 << 20;

/// The longest sums over the connections in a sample: unknown ones among them take many times their length of memory.
const LONGEST_SUMS: usize = 64 << 10;
/// The latest time in seconds, ten years: on the axis of a time far off nothing else could be seen.
const LATEST: f64 = 10.0 * 365.0 * 86400.0;

/// Lines of bounded length.
pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Makes them of what `from` yields.
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    /// Reads the next line, its end included, or as much of it as may be; nothing at the end.
    pub(super) fn next(&mut self, longest: u64) -> io::Result<&[u8]> {
        self.line.clear();
        self.from.by_ref().take(longest).read_until(b'\n', &mut self.line)?;
        Ok(&self.line)
    }
}

/// What is wrong with a line.
pub(super) enum Damage {
    Cut,
    Garbage,
    Disorder,
    Late,
    Long,
}

impl Damage {
    /// Says so in a phrase.
    pub(super) fn in_line(self, number: usize) -> String {
        let why = match self {
            Self::Cut => return format!("cut off in line {number}"),
            Self::Garbage => "is no line of a record",
            Self::Disorder => "is older than what precedes it",
            Self::Late => "is more than ten years after the start",
            Self::Long => "is longer than any line of a record",
        };
        format!("line {number} {why}; it and what follows were left out")
    }
}

/// A line after the first.
pub(super) enum Line {
    Sample { at: f64, job: JobId, sample: Box<Sample> },
    Event(JobEvent<'static>),
    End(End),
}

/// Reads a line; a sample, which nearly all are, without the detour that an unknown kind takes.
pub(super) fn parse(text: &[u8]) -> Result<Line, Damage> {
    #[derive(Deserialize)]
    struct Kind {
        at: f64,
        #[serde(default)]
        job: JobId,
        event: String,
    }
    let whole = text.ends_with(b"\n");
    if !whole && text.len() as u64 >= LONGEST_LINE {
        return Err(Damage::Long);
    }
    let wrong = |_| if whole { Damage::Garbage } else { Damage::Cut };
    let Kind { at, job, event } = serde_json::from_slice(text).map_err(wrong)?;
    if at.is_nan() || at < 0.0 {
        return Err(Damage::Garbage);
    }
    if at > LATEST {
        return Err(Damage::Late);
    }
    if event == "sample" {
        if text.len() > LONGEST_EVENT && length_of_sums(text).map_err(wrong)? > LONGEST_SUMS {
            return Err(Damage::Long);
        }
        return Ok(Line::Sample { at, job, sample: serde_json::from_slice(text).map_err(wrong)? });
    }
    if text.len() > LONGEST_EVENT {
        return Err(Damage::Long);
    }
    if event == "end" {
        return serde_json::from_slice(text).map(Line::End).map_err(wrong);
    }
    serde_json::from_slice(text).map(Line::Event).map_err(wrong)
}

/// Returns the length of what a sample says of all connections together.
fn length_of_sums(text: &[u8]) -> serde_json::Result<usize> {
    #[derive(Deserialize)]
    struct Sums<'a> {
        #[serde(borrow)]
        sockets: &'a RawValue,
    }
    serde_json::from_slice::<Sums<'_>>(text).map(|Sums { sockets }| sockets.get().len())
}
