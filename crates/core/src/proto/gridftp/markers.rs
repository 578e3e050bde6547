//! Markers that a server sends while it stores in MODE E: 111 range markers, 112 performance markers (GFD.20).

use super::{Reply, number};
use crate::ranges::{ByteRange, RangeSet};
use crate::units::Bytes;

/// The most ranges of one marker; Globus merges what touches, so there are about as many as connections.
const MAX_MARKED: usize = 4096;

/// How much one stripe of the server has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerformanceMarker {
    /// The stripe, from 0.
    pub stripe: u64,
    /// The number of stripes.
    pub stripes: u64,
    /// Bytes moved by the stripe.
    pub bytes: Bytes,
}

/// Reads the reply 111: ranges that the server has stored since the marker before; Globus writes exclusive ends
/// (measured 2026-11: 600 bytes at 0 are `0-600`).
///
/// `None` for any other reply, and for one that cannot be read as a whole.
pub fn parse_range_marker(reply: &Reply) -> Option<RangeSet> {
    if reply.code != 111 {
        return None;
    }
    // "Range Marker 0-29,30-89"
    let (_, list) = reply.last_line().trim().rsplit_once(' ')?;
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        let (start, end) = (filled(start)?, filled(end)?);
        (start <= end).then(|| ByteRange::new(start, end))
    };
    let ranges: Option<Vec<_>> = list.split(',').take(MAX_MARKED + 1).map(range).collect();
    ranges.filter(|ranges| ranges.len() <= MAX_MARKED).map(|ranges| ranges.into_iter().collect())
}

/// Reads the reply 112; `None` for any other reply and where a field is missing.
pub fn parse_performance_marker(reply: &Reply) -> Option<PerformanceMarker> {
    if reply.code != 112 {
        return None;
    }
    let field = |name: &str| {
        let mut pairs = reply.lines.iter().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(keyword, _)| keyword.trim().eq_ignore_ascii_case(name))?;
        filled(value.trim())
    };
    Some(PerformanceMarker {
        stripe: field("Stripe Index")?,
        stripes: field("Total Stripe Count")?,
        bytes: Bytes::new(field("Stripe Bytes Transferred")?),
    })
}

fn filled(text: &str) -> Option<u64> {
    Some(text).filter(|text| !text.is_empty()).and_then(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply { code, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn reads_range_markers() {
        let marked = parse_range_marker(&reply(111, &["Range Marker 0-600,700-1000"])).unwrap();
        let ranges: Vec<_> = marked.iter().collect();
        assert_eq!(ranges, [ByteRange::new(0, 600), ByteRange::new(700, 1000)]);
        for text in ["Range Marker", "Range Marker 5-1", "Range Marker 1-", "Range Marker 0-1,", "x +0-1", ""]
        {
            assert_eq!(parse_range_marker(&reply(111, &[text])), None, "{text}");
        }
        assert_eq!(parse_range_marker(&reply(112, &["Range Marker 0-1"])), None);
        let many = format!("Range Marker {}0-1", "0-1,".repeat(MAX_MARKED));
        assert_eq!(parse_range_marker(&reply(111, &[&many])), None);
    }

    #[test]
    fn reads_performance_markers() {
        let lines = [
            "Perf Marker",
            " Timestamp:  1795469806.2",
            " Stripe Index: 0",
            " Stripe Bytes Transferred: 900",
            " Total Stripe Count: 1",
            "End.",
        ];
        let expected = PerformanceMarker { stripe: 0, stripes: 1, bytes: Bytes::new(900) };
        assert_eq!(parse_performance_marker(&reply(112, &lines)), Some(expected));
        assert_eq!(parse_performance_marker(&reply(112, &lines[..3])), None);
        assert_eq!(parse_performance_marker(&reply(111, &lines)), None);
    }

    proptest! {
        #[test]
        fn never_panics(text in "Range Marker [0-9,-]{0,40}") {
            let _ = parse_range_marker(&reply(111, &[&text]));
        }
    }
}
