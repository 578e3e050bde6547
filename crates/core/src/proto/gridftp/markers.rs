//! Range markers (111), sent by a server during a MODE E store (GFD.20).

use super::Reply;
use crate::proto::number;
use crate::ranges::{ByteRange, RangeSet};

/// The largest number of ranges of one marker; Globus merges adjacent ranges, so there are about as
/// many as connections.
const MAX_MARKED: usize = 4096;

/// Parses the reply 111: the ranges stored since the previous marker. Globus writes exclusive ends
/// (measured 2026-11: 600 bytes at 0 are `0-600`).
///
/// `None` for any other reply, and for one with any malformed range.
pub fn parse_range_marker(reply: &Reply) -> Option<RangeSet> {
    if reply.code != 111 {
        return None;
    }
    // "Range Marker 0-29,30-89"
    let (_, list) = reply.last_line().trim().rsplit_once(' ')?;
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        (start <= end).then(|| ByteRange::new(start, end))
    };
    let ranges: Option<Vec<_>> = list.split(',').take(MAX_MARKED + 1).map(range).collect();
    ranges.filter(|ranges| ranges.len() <= MAX_MARKED).map(|ranges| ranges.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_markers_are_parsed() {
        let marked = parse_range_marker(&Reply::of(111, &["Range Marker 0-600,700-1000"])).unwrap();
        let ranges: Vec<_> = marked.iter().collect();
        assert_eq!(ranges, [ByteRange::new(0, 600), ByteRange::new(700, 1000)]);
        for text in "Range Marker|Range Marker 5-1|Range Marker 1-|Range Marker 0-1,|x +0-1|".split('|') {
            assert_eq!(parse_range_marker(&Reply::of(111, &[text])), None, "{text}");
        }
        assert_eq!(parse_range_marker(&Reply::of(112, &["Range Marker 0-1"])), None);
        let many = format!("Range Marker {}0-1", "0-1,".repeat(MAX_MARKED));
        assert_eq!(parse_range_marker(&Reply::of(111, &[&many])), None);
    }
}
