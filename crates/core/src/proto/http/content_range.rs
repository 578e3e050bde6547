//! The Content-Range field (RFC 9110, section 14.4).

use std::fmt;

use crate::ranges::ByteRange;
use crate::units::Bytes;

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

impl ContentRange {
    /// Parses the field's value; `None` for other units and for contradictory ranges.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, total) = rest.trim().split_once('/')?;
        if range == "*" {
            return Some(Self::Unsatisfied { total: Bytes::new(number(total)?) });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        let end = last.checked_add(1)?;
        if last < first || total.is_some_and(|total| end > total) {
            return None;
        }
        Some(Self::Part { range: ByteRange::new(first, end), total: total.map(Bytes::new) })
    }
}

impl ContentRange {
    /// Parses the field of an answer in the forms that servers send, as curl does: without the unit, with `bytes:` or
    /// `bytes=`, and with spaces around the numbers.
    pub fn parse_leniently(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        let unit = text.get(..5).filter(|unit| unit.eq_ignore_ascii_case("bytes")).unwrap_or_default();
        let (range, total) = text[unit.len()..].trim_start_matches([' ', ':', '=']).split_once('/')?;
        let (range, total) = (range.trim_matches(' '), total.trim_matches(' '));
        match range.split_once('-') {
            Some((first, last)) => {
                Self::parse(&format!("bytes {}-{}/{total}", first.trim_matches(' '), last.trim_matches(' ')))
            }
            None => Self::parse(&format!("bytes {range}/{total}")),
        }
    }
}

impl fmt::Display for ContentRange {
    /// Formats the field's value, which [`ContentRange::parse`] accepts.
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

/// Parses digits only: `parse` alone would accept a plus sign.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
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
        assert_eq!(ContentRange::parse("bytes 0-99/1000"), Some(part(0, 100, Some(1000))));
        assert_eq!(ContentRange::parse("Bytes 5-5/*"), Some(part(5, 6, None)));
        let unsatisfied = ContentRange::Unsatisfied { total: Bytes::new(7) };
        assert_eq!(ContentRange::parse("bytes */7"), Some(unsatisfied));
        for text in ["bytes: 0-99/1000", "0-99/1000", "bytes=0-99/1000", "Bytes  0 - 99 / 1000"] {
            assert_eq!(ContentRange::parse_leniently(text), Some(part(0, 100, Some(1000))), "{text}");
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
        assert_eq!(ContentRange::parse_leniently("bytes */7"), Some(unsatisfied));
        for text in "|bytes|bytes 1-0/5|bytes 0-5/5|bytes */*|items 0-1/2|bytes +0-1/2|\
            bytes 0-18446744073709551615/*|bytes 0-1|bytes -1/5"
            .split('|')
        {
            assert_eq!(ContentRange::parse(text), None, "{text}");
            assert_eq!(ContentRange::parse_leniently(text), None, "{text}");
        }
    }
}
