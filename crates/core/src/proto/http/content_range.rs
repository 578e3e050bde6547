//! The Content-Range field (RFC 9110, section 14.4).

use std::fmt;

use crate::proto::number;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The blanks of HTTP.
const BLANKS: [char; 2] = [' ', '\t'];

/// The part of a file in a response, or the file's length if the requested part does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-99/1000` or `bytes 0-99/*`.
    Part {
        /// The part, never empty.
        range: ByteRange,
        /// The length of the whole file, if the server states it.
        total: Option<Bytes>,
    },
    /// `bytes */1000`: the requested range lies outside the file.
    Unsatisfied {
        /// The length of the whole file.
        total: Bytes,
    },
}

/// How closely a value has to follow its grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// As the RFC has it.
    Strict,
    /// As servers send it and curl reads it: without the unit, with `bytes:` or `bytes=`, and with
    /// blanks around the numbers.
    Lenient,
}

impl ContentRange {
    /// Parses the field's value; `None` for other units and for contradictory ranges.
    pub fn parse(text: &str, syntax: Syntax) -> Option<Self> {
        let text = text.trim_matches(BLANKS);
        let unit = text.get(..5).filter(|unit| unit.eq_ignore_ascii_case("bytes"));
        let rest = &text[unit.map_or(0, str::len)..];
        let (rest, trimmed) = match syntax {
            Syntax::Strict => (rest.strip_prefix(' ').filter(|_| unit.is_some())?, &[][..]),
            Syntax::Lenient => (rest.trim_start_matches([':', '=', ' ', '\t']), &BLANKS[..]),
        };
        let part = |text: &'_ str| number::<u64>(text.trim_matches(trimmed));
        let (range, total) = rest.trim_matches(BLANKS).split_once('/')?;
        let (range, total) = (range.trim_matches(trimmed), total.trim_matches(trimmed));
        if range == "*" {
            return Some(Self::Unsatisfied { total: Bytes::new(number(total)?) });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (part(first)?, part(last)?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        let end = last.checked_add(1)?;
        if last < first || total.is_some_and(|total| end > total) {
            return None;
        }
        Some(Self::Part { range: ByteRange::new(first, end), total: total.map(Bytes::new) })
    }
}

impl fmt::Display for ContentRange {
    /// Formats the field's value, which follows the grammar.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { range, total } => {
                write!(f, "bytes {}-{}/", range.start(), range.end().saturating_sub(1))?;
                match total {
                    Some(total) => write!(f, "{}", total.get()),
                    None => f.write_str("*"),
                }
            }
            Self::Unsatisfied { total } => write!(f, "bytes */{}", total.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_unsatisfied_ranges_are_parsed_and_contradictions_refused() {
        let part = |start, end, total: Option<u64>| ContentRange::Part {
            range: ByteRange::new(start, end),
            total: total.map(Bytes::new),
        };
        let whole = Some(part(0, 100, Some(1000)));
        let unsatisfied = Some(ContentRange::Unsatisfied { total: Bytes::new(7) });
        for (text, strict, lenient) in [
            ("bytes 0-99/1000", whole, whole),
            ("Bytes 5-5/*", Some(part(5, 6, None)), Some(part(5, 6, None))),
            ("bytes */7", unsatisfied, unsatisfied),
            ("bytes: 0-99/1000", None, whole),
            ("0-99/1000", None, whole),
            ("bytes=0-99/1000", None, whole),
            ("Bytes  0 - 99 / 1000", None, whole),
        ] {
            assert_eq!(ContentRange::parse(text, Syntax::Strict), strict, "{text}");
            assert_eq!(ContentRange::parse(text, Syntax::Lenient), lenient, "{text}");
        }
        for text in "|bytes|bytes 1-0/5|bytes 0-5/5|bytes */*|items 0-1/2|bytes +0-1/2|\
            bytes 0-18446744073709551615/*|bytes 0-1|bytes -1/5"
            .split('|')
        {
            assert_eq!(ContentRange::parse(text, Syntax::Strict), None, "{text}");
            assert_eq!(ContentRange::parse(text, Syntax::Lenient), None, "{text}");
        }
    }
}
