//! Uploads of ranges over several connections: the server's limit, and the ranges received
//! (docs/uploads.md).

use std::fmt::Write;

use crate::proto::number;
use crate::ranges::{ByteRange, RangeSet};
use crate::units::Bytes;

/// A server's limits for uploads: a dictionary (RFC 9651), as in `concurrent-ranges=128`.
pub const UPLOAD_LIMIT: &str = "Upload-Limit";
/// The ranges of an upload that the server has received, as in `bytes=0-99,200-299`.
pub const UPLOAD_RANGES: &str = "Upload-Ranges";

/// The member of [`UPLOAD_LIMIT`] with the largest number of concurrent connections for the ranges
/// of one upload.
const CONCURRENT_RANGES: &str = "concurrent-ranges";
/// The largest number of listed ranges, to bound the size of the head. A client sends unlisted
/// ranges again.
const MAX_NAMED: usize = 512;

/// Formats the value of [`UPLOAD_LIMIT`].
pub fn upload_limit(concurrent_ranges: usize) -> String {
    format!("{CONCURRENT_RANGES}={concurrent_ranges}")
}

/// Parses the value of [`UPLOAD_LIMIT`]: the largest number of concurrent connections for the
/// ranges of one upload; `None` if the server does not support ranges.
pub fn parse_concurrent_ranges(text: &str) -> Option<usize> {
    // The last of several members with one key counts (RFC 9651, section 3.2).
    let mut members = text.rsplit(',').filter_map(|member| member.trim().split_once('='));
    let (_, value) = members.find(|(key, _)| *key == CONCURRENT_RANGES)?;
    let value = value.split(';').next().unwrap_or_default();
    number(value).filter(|count| *count > 0)
}

/// Formats the value of [`UPLOAD_RANGES`], limited to the first 512 ranges.
pub fn held_ranges(held: &RangeSet) -> String {
    let mut text = "bytes=".to_owned();
    for (at, range) in held.iter().take(MAX_NAMED).enumerate() {
        let comma = if at > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{}-{}", range.start(), range.end() - 1);
    }
    text
}

/// Parses the value of [`UPLOAD_RANGES`] for an upload of `whole` bytes; `None` if it is
/// contradictory or exceeds that size.
pub fn parse_held_ranges(text: &str, whole: Bytes) -> Option<RangeSet> {
    let ranges = text.trim().strip_prefix("bytes=")?;
    let range = |text: &str| {
        let (first, last) = text.trim().split_once('-')?;
        let (start, end) = (number(first)?, number::<u64>(last)?.checked_add(1)?);
        (start < end && end <= whole.get()).then(|| ByteRange::new(start, end))
    };
    if ranges.trim().is_empty() {
        return Some(RangeSet::new());
    }
    ranges.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limit_of_connections_is_read_among_other_limits() {
        assert_eq!(parse_concurrent_ranges(&upload_limit(128)), Some(128));
        assert_eq!(parse_concurrent_ranges("max-size=1000, concurrent-ranges=4;x=1"), Some(4));
        for text in "|max-size=9|concurrent-ranges|concurrent-ranges=|concurrent-ranges=0|\
            concurrent-ranges=-1|concurrent-ranges=99999999999999999999"
            .split('|')
        {
            assert_eq!(parse_concurrent_ranges(text), None, "{text}");
        }
    }

    #[test]
    fn contradicting_ranges_are_refused_and_their_number_is_bounded() {
        let set: RangeSet = [ByteRange::new(0, 100), ByteRange::new(200, 300)].into_iter().collect();
        assert_eq!(held_ranges(&set), "bytes=0-99,200-299");
        assert_eq!(parse_held_ranges("bytes=0-99, 200-299", Bytes::new(300)), Some(set));
        assert_eq!(parse_held_ranges("bytes=", Bytes::ZERO), Some(RangeSet::new()));
        for text in "|0-99|bytes=-99|bytes=5-|bytes=5-4|bytes=0-300|bytes=0-1,|\
            bytes=0-18446744073709551615|bytes=+1-2"
            .split('|')
        {
            assert_eq!(parse_held_ranges(text, Bytes::new(300)), None, "{text}");
        }
        let many: RangeSet = (0..2000).map(|n| ByteRange::new(n * 10, n * 10 + 5)).collect();
        let text = held_ranges(&many);
        assert!(text.len() < 16 << 10, "{}", text.len());
        let named = parse_held_ranges(&text, Bytes::new(1 << 20)).unwrap();
        assert!(named.iter().all(|range| many.contains(range)) && named.total() < many.total());
    }

    proptest! {
        #[test]
        fn held_ranges_are_read_as_written(cuts in proptest::collection::vec((0u64..1 << 40, 1u64..1000), 0..50)) {
            let set: RangeSet = cuts.iter().map(|&(start, len)| ByteRange::new(start, start + len)).collect();
            prop_assert_eq!(parse_held_ranges(&held_ranges(&set), Bytes::new(1 << 41)), Some(set));
        }
    }
}
