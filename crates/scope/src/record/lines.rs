//! Reads the lines of a record, bounded in length and possibly damaged.

use std::io::{self, BufRead, Read};

use longhaul_core::event::{JobEvent, JobId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::schema::{End, Sample};

/// Maximum bytes of a line; a sample of ten thousand streams has 15 MB.
pub(super) const LONGEST_LINE: u64 = 64 << 20;
/// Maximum bytes of a line other than a sample; an unknown event takes many times its length in
/// memory.
const LONGEST_EVENT: usize = 1 << 20;

/// Maximum bytes of the sums over connections in a sample; unknown fields take many times their
/// length in memory.
const LONGEST_SUMS: usize = 64 << 10;
/// Maximum time in seconds, ten years: an absurd time would stretch the axis of a chart.
const LATEST: f64 = 10.0 * 365.0 * 86400.0;

/// Lines of bounded length.
pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines from `from`.
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Vec::new() }
    }

    /// Reads the next line with its newline, truncated to `longest` bytes; empty at the end.
    pub(super) fn next(&mut self, longest: u64) -> io::Result<&[u8]> {
        self.line.clear();
        self.from.by_ref().take(longest).read_until(b'\n', &mut self.line)?;
        Ok(&self.line)
    }
}

/// Damage of a line.
pub(super) enum Damage {
    Cut,
    Garbage,
    Disorder,
    Late,
    Long,
}

impl Damage {
    /// Describes the damage in a phrase.
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

/// A line after the header.
pub(super) enum Line {
    Sample { at: f64, job: JobId, sample: Box<Sample> },
    Event(JobEvent<'static>),
    End(End),
}

/// Parses a line; samples, the most frequent kind, take the direct path.
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

/// Returns the length of a sample's sums over connections.
fn length_of_sums(text: &[u8]) -> serde_json::Result<usize> {
    #[derive(Deserialize)]
    struct Sums<'a> {
        #[serde(borrow)]
        sockets: &'a RawValue,
    }
    serde_json::from_slice::<Sums<'_>>(text).map(|Sums { sockets }| sockets.get().len())
}
