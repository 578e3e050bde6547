//! The JSON listing of a directory, for programs: what nginx writes with `autoindex_format json`,
//! and two more members.
//!
//! `href` is the percent-encoded name, as a name need not be UTF-8. `unique` tells a directory from
//! every other. A directory with many entries has several pages, in the order of the bytes of their
//! names; `Link: <?after=NAME>; rel="next"` leads from one to the next.

use longhaul_core::proto::http::{ReplyHead, RequestHead};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::reply::Reply;
use crate::reply::directory_entries::{DirectoryEntry, ListingPage};
use crate::reply::directory_page::url_encoded;

/// Entries of a page for each one of an HTML page: a page is requested by a program, one round trip
/// each.
pub(crate) const ENTRIES_PER_HTML_ENTRY: usize = 10;

#[derive(Serialize)]
struct WrittenEntry {
    name: String,
    href: String,
    #[serde(rename = "type")]
    kind: &'static str,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique: Option<String>,
}

impl From<&DirectoryEntry> for WrittenEntry {
    fn from(entry: &DirectoryEntry) -> Self {
        let (device, inode) = entry.identity;
        Self {
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            href: url_encoded(&entry.name),
            kind: if entry.is_directory { "directory" } else { "file" },
            mtime: httpdate::fmt_http_date(entry.modified),
            size: (!entry.is_directory).then_some(entry.size.get()),
            unique: entry.is_directory.then(|| format!("{device:x}-{inode:x}")),
        }
    }
}

/// Returns whether a request asks for JSON: no browser does.
pub(crate) fn is_wanted(request: &RequestHead) -> bool {
    let accepted = request.list("accept").unwrap_or_default();
    accepted.split(',').any(|range| {
        let mut parameters = range.split(';').map(str::trim);
        let is_json = parameters.next().is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
        is_json && !parameters.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Returns the name after which a page begins: that of `after=NAME` in the query.
pub(crate) fn after(query: Option<&str>) -> Vec<u8> {
    let after = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("after="));
    percent_decode_str(after.unwrap_or_default()).collect()
}

/// Makes the reply with a page of a listing.
pub(crate) fn reply(page: &ListingPage) -> Reply {
    let mut head = ReplyHead::new(200)
        .with("Content-Type", "application/json")
        .with("X-Content-Type-Options", "nosniff")
        .with("Vary", "Accept")
        .with("Cache-Control", "no-cache");
    if let Some(last) = &page.next_after {
        head.add("Link", &format!("<?after={}>; rel=\"next\"", url_encoded(last)));
    }
    let mut text = String::from("[");
    for (number, entry) in page.entries.iter().enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        // Strings and numbers can always be written.
        text.push_str(&serde_json::to_string(&WrittenEntry::from(entry)).unwrap_or_default());
    }
    text.push_str("\n]\n");
    Reply::document(head, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_sent_only_where_it_is_asked_for_and_begins_after_a_name() {
        let wanted = |accept: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\nAccept: {accept}\r\n\r\n");
            is_wanted(&RequestHead::parse(head.as_bytes()).unwrap().unwrap().0)
        };
        assert!(wanted("application/json") && wanted("text/html;q=0.5, Application/JSON ; q=1"));
        assert!(!wanted("text/html, */*;q=0.8") && !wanted("application/json;q=0") && !wanted(""));
        assert_eq!(after(Some("x=1&after=a%26%FF")), b"a&\xff");
        assert_eq!(after(None), b"");
    }
}
