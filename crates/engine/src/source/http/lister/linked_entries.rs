//! The entries that an index page links to.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use longhaul_core::failure::Failure;
use longhaul_core::proto::listing::{ListedEntry, ListedKind};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::source::http::SafeUrl;
use crate::source::listing::{RemoteEntry, below};

/// The most names of a page that are kept because only links with a query lead to them.
const MAX_QUERIED: usize = 100_000;

/// The entries that an index page links to.
pub(crate) struct LinkedEntries<I> {
    links: I,
    directory: Url,
    /// Hashes of entries, 16 bytes each: Apache's IconsAreLinks links to each entry twice.
    seen: HashSet<[u8; 16]>,
    /// The entries to which links with a query lead, by name, and whether several do: they are no
    /// files of this name then, but the pages of a program.
    queried: BTreeMap<Vec<u8>, (RemoteEntry, bool)>,
    /// The number of such names that are left out, and the first of them.
    left_out: Option<(usize, SafeUrl)>,
    /// The first link to another place of the server.
    elsewhere: Option<String>,
    unmatched: Arc<OnceLock<SafeUrl>>,
}

impl<I> LinkedEntries<I> {
    /// Lists the entries of `directory` to which `links` lead; stores the directory in `unmatched`
    /// if none does.
    pub(crate) fn new(links: I, directory: Url, unmatched: Arc<OnceLock<SafeUrl>>) -> Self {
        let (seen, queried) = (HashSet::new(), BTreeMap::new());
        Self { links, directory, seen, queried, left_out: None, elsewhere: None, unmatched }
    }

    /// Returns whether the entry is the first of its name and kind.
    fn is_first(&mut self, kind: ListedKind, name: &[u8]) -> bool {
        self.seen.insert(hash_of(kind, name))
    }

    /// Keeps an entry to which a link with a query leads until all links are known.
    fn keep_queried(&mut self, found: RemoteEntry) {
        if let Some((first, several)) = self.queried.get_mut(&found.entry.name) {
            *several |= first.url != found.url;
        } else if self.queried.len() < MAX_QUERIED {
            self.queried.insert(found.entry.name.clone(), (found, false));
        } else {
            self.leave_out(&found);
        }
    }

    /// Returns the next entry to which one link with a query leads, and none without.
    fn next_queried(&mut self) -> Option<RemoteEntry> {
        while let Some((name, (found, several))) = self.queried.pop_first() {
            let kinds = [ListedKind::File, ListedKind::Directory];
            if kinds.into_iter().any(|kind| self.seen.contains(&hash_of(kind, &name))) {
                continue;
            }
            if !several {
                self.is_first(found.entry.kind, &name);
                return Some(found);
            }
            self.leave_out(&found);
        }
        None
    }

    fn leave_out(&mut self, found: &RemoteEntry) {
        self.left_out.get_or_insert_with(|| (0, SafeUrl::of(&found.url))).0 += 1;
    }
}

fn hash_of(kind: ListedKind, name: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[u8::from(kind == ListedKind::File)]).update(name);
    let mut hash = [0; 16];
    hasher.finalize_xof().fill(&mut hash);
    hash
}

impl<I: Iterator<Item = Result<String, Failure>>> Iterator for LinkedEntries<I> {
    type Item = Result<RemoteEntry, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(link) = self.links.next() {
            let link = match link {
                Ok(link) => link,
                Err(error) => return Some(Err(error)),
            };
            match LinkTarget::of(&self.directory, &link) {
                LinkTarget::Entry(found) if found.url.query().is_some() => self.keep_queried(*found),
                LinkTarget::Entry(found) => {
                    if self.is_first(found.entry.kind, &found.entry.name) {
                        return Some(Ok(*found));
                    }
                }
                LinkTarget::Elsewhere => {
                    self.elsewhere.get_or_insert(link);
                }
                LinkTarget::Navigation => {}
            }
        }
        if let Some(found) = self.next_queried() {
            return Some(Ok(found));
        }
        let shown = || SafeUrl::of(&self.directory);
        if let Some((names, first)) = self.left_out.take() {
            tracing::warn!(
                "{} links to some names by several URLs with different queries, which are left out ({names} names, such as \
                 {first}); fetch the URLs of files by -i FILE",
                shown()
            );
            if self.seen.is_empty() {
                let _ = self.unmatched.set(shown());
            }
        }
        if self.seen.is_empty()
            && let Some(link) = self.elsewhere.take()
        {
            let shown = shown();
            tracing::warn!("{shown} links to '{}', but to no entry of this directory", link.escape_debug());
            let _ = self.unmatched.set(shown);
        }
        None
    }
}

/// The target of a link of an index page.
enum LinkTarget {
    /// An entry, by a URL that may have a query.
    Entry(Box<RemoteEntry>),
    /// The directory itself in another order, a directory above it, or another server.
    Navigation,
    /// Another place of the server.
    Elsewhere,
}

impl LinkTarget {
    fn of(directory: &Url, link: &str) -> Self {
        let Ok(mut url) = directory.join(link) else { return Self::Navigation };
        url.set_fragment(None);
        let found = below(directory, &url).unwrap_or_default();
        let (segment, kind) = match found.strip_suffix('/') {
            Some(segment) => (segment, ListedKind::Directory),
            None => (found, ListedKind::File),
        };
        let is_same_server = url.origin() == directory.origin();
        let is_name = !segment.is_empty() && !segment.contains('/');
        if !is_same_server || !is_name {
            // Of other servers, only that behind a proxy has such paths.
            let is_navigation =
                if is_same_server { below(&url, directory).is_some() } else { segment.is_empty() };
            return if is_navigation { Self::Navigation } else { Self::Elsewhere };
        }
        let name = percent_decode_str(segment).collect();
        // Index pages show sizes in rounded units and times without a zone.
        let entry = ListedEntry { name, kind, size: None, modified: None, unique: None };
        Self::Entry(Box::new(RemoteEntry { entry, url }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_entries_of_the_directory_are_listed() {
        let directory: Url = "http://h/a%20b/".parse().unwrap();
        let entry = |link: &str| match LinkTarget::of(&directory, link) {
            LinkTarget::Entry(found) => Some((found.entry.name, found.entry.kind)),
            LinkTarget::Navigation | LinkTarget::Elsewhere => None,
        };
        assert_eq!(entry("x%2Fy"), Some((b"x/y".to_vec(), ListedKind::File)));
        assert_eq!(entry("./c/"), Some((b"c".to_vec(), ListedKind::Directory)));
        assert_eq!(entry("/a%20b/%ff"), Some((b"\xff".to_vec(), ListedKind::File)));
        assert_eq!(entry("..%2f"), Some((b"../".to_vec(), ListedKind::File)));
        let elsewhere = ["/a%20bc", "c/d", "%2e%2e/x", "http://other/a%20b/x"];
        let outside = ["../", "/", "http://other/a%20b/x", "/a%20bc", "mailto:x", "%2e%2e/x", "//"];
        for link in outside.into_iter().chain(["", "./", "?C=N;O=D", "c/d"]) {
            assert_eq!(entry(link), None, "{link}");
            let is_elsewhere = matches!(LinkTarget::of(&directory, link), LinkTarget::Elsewhere);
            assert_eq!(is_elsewhere, elsewhere.contains(&link), "{link}");
        }
    }
}
