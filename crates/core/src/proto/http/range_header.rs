//! The `Range` header, applied to a file of a known size (RFC 9110, section 14).

use crate::ranges::{ByteRange, RangeSet};
use crate::units::Bytes;

/// The largest number of ranges of a request; more are refused, as RFC 9110, section 14.2, permits.
pub const MAX_RANGES: usize = 64;

/// The answer to a `Range` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeHeader {
    /// Send the whole file: the unit is not bytes, or the header is malformed.
    Whole,
    /// Send these ranges, at least one.
    Parts(Vec<ByteRange>),
    /// Answer 416: no requested range exists, or more than [`MAX_RANGES`] were requested.
    Unsatisfiable,
}

impl RangeHeader {
    /// Parses a `Range` header for a file of `size` bytes.
    ///
    /// Ranges keep the requested order; if any overlap, all are sorted and merged, so that no byte
    /// is sent twice.
    pub fn parse(header: &str, size: Bytes) -> Self {
        let Some((unit, set)) = header.split_once('=') else { return Self::Whole };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let mut parts = Vec::new();
        let mut requested = 0;
        for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
            requested += 1;
            match Spec::parse(spec) {
                None => return Self::Whole,
                // An empty file has no byte for Content-Range, but its last n bytes are the whole
                // file.
                Some(Spec::Last(n)) if size == Bytes::ZERO && n > 0 => return Self::Whole,
                Some(spec) => parts.extend(spec.within(size.get())),
            }
        }
        match (requested, parts.len()) {
            (0, _) => Self::Whole,
            (_, 0) => Self::Unsatisfiable,
            _ if requested > MAX_RANGES => Self::Unsatisfiable,
            _ => Self::Parts(without_overlaps(parts)),
        }
    }
}

/// A range as written, independent of the file's size.
#[derive(Clone, Copy)]
enum Spec {
    From(u64),
    Span(u64, u64),
    Last(u64),
}

impl Spec {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => number(first).map(Self::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Span(first, last))
            }
        }
    }

    fn within(self, size: u64) -> Option<ByteRange> {
        let (start, end) = match self {
            Self::From(first) => (first, size),
            Self::Span(first, last) => (first, size.min(last.saturating_add(1))),
            Self::Last(n) => (size.saturating_sub(n), size),
        };
        (start < end).then(|| ByteRange::new(start, end))
    }
}

/// Parses digits; a number that exceeds a `u64` is treated as its maximum, past the end of every
/// file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn without_overlaps(parts: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut sorted = parts.clone();
    sorted.sort_by_key(|part| part.start());
    if sorted.is_sorted_by(|a, b| a.end() <= b.start()) {
        return parts;
    }
    sorted.into_iter().collect::<RangeSet>().iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(header: &str, size: u64) -> Vec<(u64, u64)> {
        match RangeHeader::parse(header, Bytes::new(size)) {
            RangeHeader::Parts(parts) => parts.iter().map(|p| (p.start(), p.end())).collect(),
            other => panic!("{header}: {other:?}"),
        }
    }

    #[test]
    fn all_forms_of_ranges_are_parsed_and_overlapping_ones_merged() {
        for (header, expected) in [
            ("bytes=0-0", &[(0, 1)][..]),
            ("bytes=3-", &[(3, 10)]),
            ("Bytes = 3-99999999999999999999999", &[(3, 10)]),
            ("bytes=-4", &[(6, 10)]),
            ("bytes=-40", &[(0, 10)]),
            ("bytes=5-6, 0-1,,9-", &[(5, 7), (0, 2), (9, 10)]),
            ("bytes=0-1,20-", &[(0, 2)]),
            ("bytes=4-8,0-5", &[(0, 9)]),
            ("bytes=0-,0-,0-,7-8", &[(0, 10)]),
            ("bytes=0-1,2-3", &[(0, 2), (2, 4)]),
        ] {
            assert_eq!(parts(header, 10), expected, "{header}");
        }
    }

    #[test]
    fn malformed_headers_are_ignored_and_ranges_outside_the_file_unsatisfiable() {
        for header in "|bytes|bytes=|lines=0-1|bytes=a-b|bytes=5-4|bytes=--1|bytes=+1-2".split('|') {
            assert_eq!(RangeHeader::parse(header, Bytes::new(10)), RangeHeader::Whole, "{header}");
        }
        assert_eq!(RangeHeader::parse("bytes=-1", Bytes::ZERO), RangeHeader::Whole);
        let many = format!("bytes={}", "0-0,2-2,".repeat(40));
        for (header, size) in [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), (many.as_str(), 10)] {
            assert_eq!(RangeHeader::parse(header, Bytes::new(size)), RangeHeader::Unsatisfiable, "{header}");
        }
    }

    proptest! {
        #[test]
        fn parts_lie_inside_the_file_and_do_not_overlap(header in "bytes=([0-9]{0,3}-[0-9]{0,3}[, ]{0,2}){0,9}", size in 0u64..300) {
            if let RangeHeader::Parts(parts) = RangeHeader::parse(&header, Bytes::new(size)) {
                let mut seen = vec![false; size as usize];
                for part in parts {
                    prop_assert!(!part.is_empty() && part.end() <= size);
                    for i in part.start()..part.end() {
                        prop_assert!(!std::mem::replace(&mut seen[i as usize], true));
                    }
                }
            }
        }
    }
}
