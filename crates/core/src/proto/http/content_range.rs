//! The Content-Range field (RFC 9110, section 14.4).

use std::fmt;

use crate::ranges::ByteRange;
use crate::units::Bytes;

/// Which part of a file a response carries, or how long the file is that has no such part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-99/1000` or `bytes 0-99/*`.
    Part {
        /// The part; never empty.
        range: ByteRange,
        /// The length of the whole file, where the server knows it.
        total: Option<Bytes>,
    },
    /// `bytes */1000`: the range asked for lies outside.
    Unsatisfied {
        /// The length of the whole file.
        total: Bytes,
    },
}

impl ContentRange {
    /// Reads the field's value; `None` for other units and for ranges that contradict themselves.
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

impl fmt::Display for ContentRange {
    /// Writes the field's value, which [`ContentRange::parse`] reads back.
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

/// Reads digits only: `parse` alone would take a plus sign.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_parts_and_refusals() {
        let part = |start, end, total: Option<u64>| ContentRange::Part {
            range: ByteRange::new(start, end),
            total: total.map(Bytes::new),
        };
        assert_eq!(ContentRange::parse("bytes 0-99/1000"), Some(part(0, 100, Some(1000))));
        assert_eq!(ContentRange::parse("Bytes 5-5/*"), Some(part(5, 6, None)));
        let unsatisfied = ContentRange::Unsatisfied { total: Bytes::new(7) };
        assert_eq!(ContentRange::parse("bytes */7"), Some(unsatisfied));
    }

    #[test]
    fn refuses_contradictions() {
        for text in [
            "",
            "bytes",
            "bytes 1-0/5",
            "bytes 0-5/5",
            "bytes */*",
            "items 0-1/2",
            "bytes +0-1/2",
            "bytes 0-18446744073709551615/*",
            "bytes 0-1",
            "bytes -1/5",
        ] {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_nor_contradicts_itself(text in "(bytes )?[0-9*/ -]{0,40}") {
            if let Some(ContentRange::Part { range, total }) = ContentRange::parse(&text) {
                prop_assert!(!range.is_empty() && total.is_none_or(|total| range.end() <= total.get()));
            }
        }

        #[test]
        fn reads_any_part(first: u32, more: u32, beyond: u32) {
            let (first, last) = (u64::from(first), u64::from(first) + u64::from(more));
            let total = last + 1 + u64::from(beyond);
            let parsed = ContentRange::parse(&format!("bytes {first}-{last}/{total}"));
            let expected = ContentRange::Part {
                range: ByteRange::new(first, last + 1),
                total: Some(Bytes::new(total)),
            };
            prop_assert_eq!(parsed, Some(expected));
        }
    }
}
