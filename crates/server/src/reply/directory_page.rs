//! The HTML page of a directory: one document without scripts or external resources.

use std::fmt::Write;

use longhaul_core::proto::http::ReplyHead;
use longhaul_core::units::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::reply::Reply;
use crate::reply::directory_entries::{DirectoryEntry, DirectoryListing, SortKey, SortOrder};

/// All characters except the unreserved ones (RFC 3986, section 2.3).
const URL_RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const STYLE: &str = include_str!("directory_page.css");

/// Allows the page's inline style only: no file name can become a script.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Makes the page of the directory at `names`, the path's components below the root.
pub(crate) fn reply(names: &[Vec<u8>], listing: &DirectoryListing) -> Reply {
    let head = ReplyHead::new(200)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("Vary", "Accept")
        .with("Cache-Control", "no-cache");
    Reply::document(head, html(names, listing))
}

/// Returns the path of a directory's URL.
pub(crate) fn directory_url(names: &[Vec<u8>]) -> String {
    names.iter().fold("/".to_owned(), |url, name| url + &url_encoded(name) + "/")
}

/// Percent-encodes a name as a component of a URL's path.
pub(crate) fn url_encoded(name: &[u8]) -> String {
    percent_encode(name, URL_RESERVED).to_string()
}

fn html(names: &[Vec<u8>], listing: &DirectoryListing) -> String {
    let title = names.last().map_or_else(|| "Files".to_owned(), |name| escape(name));
    let mut rows = String::new();
    if !names.is_empty() {
        rows.push_str(
            "<tr class=\"up\"><td><a href=\"../\">Parent directory</a></td><td></td><td></td></tr>\n",
        );
    }
    for entry in &listing.entries {
        row(&mut rows, entry);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <nav aria-label=\"Path\">{crumbs}</nav>\n\
         <table>\n<thead><tr>{name}{size}{modified}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n\
         <footer>{summary}</footer>\n</main>\n</body>\n</html>\n",
        crumbs = crumbs(names),
        name = heading("Name", "name", SortKey::Name, listing.order),
        size = heading("Size", "size", SortKey::Size, listing.order),
        modified = heading("Modified (UTC)", "modified", SortKey::Modified, listing.order),
        summary = summary(listing),
    )
}

fn crumbs(names: &[Vec<u8>]) -> String {
    let mut crumbs = String::from("<a href=\"/\">Files</a>");
    for depth in 1..=names.len() {
        let name = escape(&names[depth - 1]);
        let (url, mark) = (
            directory_url(&names[..depth]),
            if depth == names.len() { " aria-current=\"page\"" } else { "" },
        );
        // Writing to a String cannot fail.
        let _ = write!(crumbs, "<span>/</span><a href=\"{url}\"{mark}>{name}</a>");
    }
    crumbs
}

fn heading(label: &str, word: &str, key: SortKey, order: SortOrder) -> String {
    let current = order.key == key;
    let (next, aria, arrow) = match (current, order.descending) {
        (true, false) => ("desc", " aria-sort=\"ascending\"", " \u{2191}"),
        (true, true) => ("asc", " aria-sort=\"descending\"", " \u{2193}"),
        (false, _) => ("asc", "", ""),
    };
    format!("<th{aria}><a href=\"?sort={word}&amp;order={next}\">{label}{arrow}</a></th>")
}

fn row(rows: &mut String, entry: &DirectoryEntry) {
    let name = escape(&entry.name);
    // Without "./" a name with a colon would be read as a URL with a scheme.
    let href = url_encoded(&entry.name);
    let date = httpdate::fmt_http_date(entry.modified);
    // "Sun, 06 Nov 1994 08:49:37 GMT" without the weekday, the seconds and the zone.
    let date = date.get(5..22).unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = if entry.is_directory {
        writeln!(
            rows,
            "<tr class=\"dir\"><td><a href=\"./{href}/\">{name}/</a></td><td>\u{2013}</td><td>{date}</td></tr>"
        )
    } else {
        let (size, exact) = (entry.size, entry.size.get());
        writeln!(
            rows,
            "<tr><td><a href=\"./{href}\">{name}</a></td><td title=\"{exact} bytes\">{size}</td><td>{date}</td></tr>"
        )
    };
}

fn summary(listing: &DirectoryListing) -> String {
    let directories = listing.entries.iter().filter(|entry| entry.is_directory).count();
    let files = listing.entries.len() - directories;
    let total = listing
        .entries
        .iter()
        .fold(Bytes::ZERO, |sum, entry| if entry.is_directory { sum } else { sum + entry.size });
    let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let more = match listing.more {
        0 => String::new(),
        more => format!(" \u{b7} {} not shown here", count(more, "more name is", "more names are")),
    };
    format!(
        "{}, {}, {total}{more} \u{b7} served by Longhaul",
        count(directories, "directory", "directories"),
        count(files, "file", "files"),
    )
}

/// Escapes a name for HTML; bytes outside UTF-8 and control characters become U+FFFD.
fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            c if c.is_control() => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}
