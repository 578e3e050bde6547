//! Listings of directories.

use std::io::BufReader;

use longhaul_core::proto::listing::{HtmlLinks, JsonEntries, MAX_NAME, XmlEntries, check_name};

/// Reads a listing as JSON and as an index page: the entries do not depend on how the bytes arrive,
/// and accepted names lead nowhere.
pub fn listing(bytes: &[u8]) {
    let whole: Vec<_> = JsonEntries::new(bytes).map(Result::ok).collect();
    let in_pieces: Vec<_> = JsonEntries::new(BufReader::with_capacity(3, bytes)).map(Result::ok).collect();
    assert_eq!(whole, in_pieces);
    // The first error is the last item.
    let errors = whole.iter().filter(|entry| entry.is_none()).count();
    assert!(errors <= 1 && (errors == 0 || whole.last() == Some(&None)));
    for entry in whole.into_iter().flatten().filter(|entry| check_name(&entry.name).is_ok()) {
        assert!(
            !entry.name.is_empty()
                && entry.name.len() <= MAX_NAME
                && !entry.name.iter().any(|b| matches!(b, 0 | b'/'))
        );
        assert!(entry.name != b"." && entry.name != b"..");
    }
    let links: Vec<_> = HtmlLinks::new(bytes, "/").map(Result::ok).collect();
    assert!(links.iter().rev().skip(1).all(Option::is_some));
    assert!(
        XmlEntries::new(bytes).map(Result::ok).collect::<Vec<_>>().iter().rev().skip(1).all(Option::is_some)
    );
}
