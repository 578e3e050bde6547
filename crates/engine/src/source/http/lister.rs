//! Directories over HTTP: listings in JSON or XML, and index pages.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use longhaul_core::proto::http::{Ask, HeaderField, ResponseHead, UPLOAD_MTIME};
use longhaul_core::proto::listing::{
    HtmlLinks, JsonEntries, ListedEntry, ListedKind, ListingError, XmlEntries,
};
use longhaul_core::units::Bytes;
use percent_encoding::percent_decode_str;
use url::{Position, Url};

use super::client::{Client, OpenedUrl};
use super::clients::Clients;
use super::error::HttpError;
use super::short_exchange::ShortAnswer;
use super::{Read, SafeUrl};
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::retry::{Retries, Retry};
use crate::source::listing::{
    Entries, FileFacts, ListerOptions, MadeDirectory, OpenListing, RemoteDirectories, RemoteEntry, Spool,
    below, child_url, make_with_parents,
};
use crate::transfer::error::{Cause, SourceError};

/// The requested types: `longhaul serve` answers with JSON; other servers send their configured type.
const ACCEPT: &str = "application/json, text/html;q=0.5";
/// The type requested from a server whose JSON is of another form, as that of serve.
const ACCEPT_HTML: &str = "text/html";
/// The number of concurrent listings: on a long path each takes a round trip.
const LISTINGS_AT_ONCE: usize = 16;
/// The maximum size of a listing, about 8 million entries.
const LONGEST: Bytes = Bytes::gib(1);
/// The maximum number of consecutive empty pages: `longhaul serve` sends one if 10,000 consecutive names are those of
/// sockets and pipes.
const MOST_EMPTY_PAGES: usize = 100;
/// The most names of a page that are kept because only links with a query lead to them.
const MAX_QUERIED: usize = 100_000;

/// Lists the directories of an HTTP server.
#[derive(Clone)]
pub(crate) struct HttpLister {
    client: Arc<Client>,
    options: ListerOptions,
    /// The first directory that has links, but none to an entry of it.
    unmatched: Arc<OnceLock<SafeUrl>>,
}

impl HttpLister {
    /// Creates a lister for the server of `url`.
    pub(crate) fn new(clients: &Clients, url: &Url, mut options: ListerOptions) -> Result<Self, HttpError> {
        options.config.headers.retain(|header| !header.is("accept"));
        options.config.headers.push(HeaderField::new("Accept", ACCEPT)?);
        let client = clients.get(&options.config)?;
        client.target(url)?;
        Ok(Self { client, options, unmatched: Arc::default() })
    }

    /// Returns a lister that requests index pages only; `None` if this one does.
    fn in_html(&self) -> Result<Option<Self>, HttpError> {
        let mut config = self.client.config().clone();
        let is_accept = |header: &HeaderField| header.is("accept");
        if config.headers.iter().any(|header| is_accept(header) && header.value() == ACCEPT_HTML) {
            return Ok(None);
        }
        config.headers.retain(|header| !is_accept(header));
        config.headers.push(HeaderField::new("Accept", ACCEPT_HTML)?);
        Ok(Some(Self { client: Arc::new(self.client.with_config(config)?), ..self.clone() }))
    }

    fn open(&self, directory: &Url, cancel: &Cancel) -> Result<(OpenedUrl, Spool), SourceError> {
        let (opened, listing) = self.retrying(directory, cancel, || {
            let mut opened = self.client.open_uncoded(directory, cancel)?;
            let listing = self.receive(&mut opened)?;
            Ok((opened, listing))
        })?;
        Ok((opened, listing?))
    }

    /// Sends a request without a body; retries if the server is busy.
    fn ask(&self, url: &Url, ask: Ask<'_>, cancel: &Cancel) -> Result<ShortAnswer, HttpError> {
        self.retrying(url, cancel, || {
            let answer = self.client.exchange(url, ask, cancel)?;
            if Retry::of_status(answer.head.status(), None) != Retry::Never {
                answer.check()?;
            }
            Ok(answer)
        })
    }

    fn retrying<T>(
        &self,
        url: &Url,
        cancel: &Cancel,
        mut attempt: impl FnMut() -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let emit = |event: &_| tracing::debug!(?event, "asking {}", SafeUrl::of(url));
        let retries = Retries { most: self.options.retries, stream: 0, emit: &emit, rest: cancel };
        retries.repeat(&mut (), |(), _| attempt(), |(), error| error.first_retry())
    }

    /// Receives a complete listing, so that no connection idles during the transfer of its files. The outer error
    /// permits a retry.
    fn receive(&self, opened: &mut OpenedUrl) -> Result<Result<Spool, SourceError>, HttpError> {
        let (mut spool, mut buffer, mut last) =
            (Spool::new(&self.options.spool), vec![0; 64 << 10], Instant::now());
        let shown = opened.target.safe_url().to_string();
        loop {
            match opened.connection.read_body(&mut buffer)? {
                Read::Data(length) => {
                    last = Instant::now();
                    if let Err(error) = spool.add(&buffer[..length]) {
                        let message = format!("cannot keep the listing of {shown}: {error}");
                        return Ok(Err(failed(FailureKind::Disk, message)));
                    }
                }
                Read::Idle if last.elapsed() > self.options.stall => {
                    return Ok(Err(SourceError::stalled(&shown, Bytes::new(1), self.options.stall)));
                }
                Read::Idle => {}
                Read::End => return Ok(Ok(spool)),
            }
            if spool.length() > LONGEST {
                return Ok(Err(failed(
                    FailureKind::Data,
                    format!("the listing of {shown} is longer than {LONGEST}"),
                )));
            }
        }
    }
}

fn failed(class: FailureKind, message: String) -> SourceError {
    SourceError::new(class, Retry::Never, Cause::Connection, message)
}

impl RemoteDirectories for HttpLister {
    fn list(&self, directory: &Url, cancel: &Cancel) -> Result<OpenListing, SourceError> {
        let page = ListingPage::request(self, directory, cancel)?;
        let directory = page.directory.clone();
        let (lister, cancel) = (self.clone(), cancel.clone());
        let pages = Pages { lister, cancel, page: Some(page), requested: HashSet::new(), empty: 0 };
        Ok(OpenListing { directory, entries: Box::new(pages) })
    }

    fn look(&self, file: &Url, cancel: &Cancel) -> Result<FileFacts, SourceError> {
        let answer = self.ask(file, Ask::Head, cancel)?;
        answer.check()?;
        let head = answer.head;
        Ok(FileFacts { size: head.content_length(), modified: head.last_modified() })
    }

    fn make(&self, directory: &Url, cancel: &Cancel) -> Result<bool, SourceError> {
        make_with_parents(directory, |directory| {
            let answer = self.ask(directory, Ask::MakeCollection, cancel)?;
            match answer.head.status() {
                200..=299 => Ok(MadeDirectory::New),
                // The directory exists (RFC 4918, section 9.3.1), or the server creates directories when files are
                // uploaded into them.
                405 | 501 => Ok(MadeDirectory::Exists),
                409 => answer.check().map_or_else(
                    |error| Ok(MadeDirectory::LacksParent(error.into())),
                    |()| Ok(MadeDirectory::New),
                ),
                _ => Ok(answer.check().map(|()| MadeDirectory::New)?),
            }
        })
    }

    fn keeps_times(&self, directory: &Url, cancel: &Cancel) -> bool {
        let answer = self.ask(directory, Ask::Options, cancel);
        answer.is_ok_and(|answer| answer.head.text(UPLOAD_MTIME) == Some("accepted"))
    }

    fn at_once(&self) -> usize {
        LISTINGS_AT_ONCE
    }

    fn unmatched(&self) -> Option<SafeUrl> {
        self.unmatched.get().cloned()
    }
}

/// One page of a listing; most listings have one.
struct ListingPage {
    directory: Url,
    entries: Entries,
    next: Option<Url>,
}

impl ListingPage {
    fn request(lister: &HttpLister, url: &Url, cancel: &Cancel) -> Result<Self, SourceError> {
        let (OpenedUrl { head, target, connection, .. }, spool) = lister.open(url, cancel)?;
        lister.client.keep(connection);
        // The URL's login also applies to URLs below it.
        let mut directory = if target.is_redirected() { target.url().clone() } else { url.clone() };
        if !directory.path().ends_with('/') {
            directory.set_path(&format!("{}/", directory.path()));
        }
        directory.set_fragment(None);
        let next = next_page(&head, &directory)?;
        directory.set_query(None);
        let shown = SafeUrl::of(&directory).to_string();
        let unusable = move |error: ListingError| {
            let message = format!("cannot use the listing of {shown}: {error}");
            failed(
                if matches!(error, ListingError::Read(_)) { FailureKind::Disk } else { FailureKind::Data },
                message,
            )
        };
        let reader = spool.into_reader().map_err(|error| unusable(error.into()))?;
        let base = directory.clone();
        let entries: Entries = match media_type(&head).as_str() {
            "application/json" => {
                let mut entries = JsonEntries::new(reader).peekable();
                let is_other = matches!(entries.peek(), Some(Err(ListingError::Malformed(_))));
                if is_other && let Some(lister) = lister.in_html()? {
                    return Self::request(&lister, url, cancel);
                }
                Box::new(entries.map(in_directory(base, unusable)))
            }
            "text/xml" | "application/xml" => {
                Box::new(XmlEntries::new(reader).map(in_directory(base, unusable)))
            }
            "text/html" | "application/xhtml+xml" => {
                let path = percent_decode_str(base.path()).decode_utf8_lossy();
                let links = HtmlLinks::new(reader, &path).map(move |link| link.map_err(&unusable));
                let unmatched = Arc::clone(&lister.unmatched);
                Box::new(LinkedEntries {
                    links,
                    directory: base,
                    seen: HashSet::new(),
                    queried: BTreeMap::new(),
                    left_out: None,
                    elsewhere: None,
                    unmatched,
                })
            }
            _ => {
                let why = format!(
                    "{} lists no files: it sent {}; a directory needs an index page, or a listing in JSON or XML of longhaul serve, nginx or \
                     Caddy; fetch the URLs of files by -i FILE",
                    SafeUrl::of(&directory),
                    head.describe_content()
                );
                return Err(failed(FailureKind::Data, why));
            }
        };
        Ok(Self { directory, entries, next })
    }
}

/// Returns the function that adds the URLs of entries of `directory`.
fn in_directory(
    directory: Url,
    unusable: impl Fn(ListingError) -> SourceError,
) -> impl FnMut(Result<ListedEntry, ListingError>) -> Result<RemoteEntry, SourceError> {
    move |entry| {
        let entry = entry.map_err(&unusable)?;
        let url = child_url(&directory, &entry.name, entry.kind == ListedKind::Directory);
        Ok(RemoteEntry { entry, url })
    }
}

fn media_type(head: &ResponseHead) -> String {
    let media_type = head.text("content-type").unwrap_or_default();
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the URL of the next page, which must belong to this directory.
fn next_page(head: &ResponseHead, directory: &Url) -> Result<Option<Url>, SourceError> {
    let Some(next) = head.next_page() else { return Ok(None) };
    let url = directory.join(&next).ok();
    let host = |url: &Url| url[Position::BeforeHost..Position::BeforePath].to_owned();
    let is_same = |url: &Url| host(url) == host(directory) && below(directory, url) == Some("");
    let same = url.filter(|url| is_same(url) && url.query() != directory.query());
    same.map(Some).ok_or_else(|| {
        let message = format!(
            "the listing of {} goes on at '{}', which is not its next page",
            SafeUrl::of(directory),
            next.escape_debug()
        );
        failed(FailureKind::Data, message)
    })
}

/// The entries that an index page links to.
struct LinkedEntries<I> {
    links: I,
    directory: Url,
    /// Hashes of entries, 16 bytes each: Apache's IconsAreLinks links to each entry twice.
    seen: HashSet<[u8; 16]>,
    /// The entries to which links with a query lead, by name, and whether several do: they are no files of this name then,
    /// but the pages of a program.
    queried: BTreeMap<Vec<u8>, (RemoteEntry, bool)>,
    /// The number of such names that are left out, and the first of them.
    left_out: Option<(usize, SafeUrl)>,
    /// The first link to another place of the server.
    elsewhere: Option<String>,
    unmatched: Arc<OnceLock<SafeUrl>>,
}

impl<I> LinkedEntries<I> {
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

impl<I: Iterator<Item = Result<String, SourceError>>> Iterator for LinkedEntries<I> {
    type Item = Result<RemoteEntry, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(link) = self.links.next() {
            let link = match link {
                Ok(link) => link,
                Err(error) => return Some(Err(error)),
            };
            match Link::of(&self.directory, &link) {
                Link::Entry(found) if found.url.query().is_some() => self.keep_queried(*found),
                Link::Entry(found) => {
                    if self.is_first(found.entry.kind, &found.entry.name) {
                        return Some(Ok(*found));
                    }
                }
                Link::Elsewhere => {
                    self.elsewhere.get_or_insert(link);
                }
                Link::Navigation => {}
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
enum Link {
    /// An entry, by a URL that may have a query.
    Entry(Box<RemoteEntry>),
    /// The directory itself in another order, a directory above it, or another server.
    Navigation,
    /// Another place of the server.
    Elsewhere,
}

impl Link {
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

/// The entries of all pages; each page is requested when the previous one is used up.
struct Pages {
    lister: HttpLister,
    cancel: Cancel,
    page: Option<ListingPage>,
    /// Hashes of the URLs of pages after the first, 16 bytes each: a directory may have many pages.
    requested: HashSet<[u8; 16]>,
    /// The number of consecutive empty pages.
    empty: usize,
}

impl Pages {
    /// Requests the next page; rejects an endless listing, which repeats a page or has too many empty pages.
    fn turn(&mut self, next: &Url) -> Result<ListingPage, SourceError> {
        let endless = |why: &str| {
            failed(FailureKind::Data, format!("the listing goes on at {}, {why}", SafeUrl::of(next)))
        };
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(next.as_str().as_bytes()).as_bytes()[..16]);
        if !self.requested.insert(hash) {
            return Err(endless("which was a page of it before"));
        }
        self.empty += 1;
        if self.empty > MOST_EMPTY_PAGES {
            return Err(endless("and its last pages had no entries"));
        }
        ListingPage::request(&self.lister, next, &self.cancel)
    }
}

impl Iterator for Pages {
    type Item = Result<RemoteEntry, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let page = self.page.as_mut()?;
            if let Some(entry) = page.entries.next() {
                self.empty = 0;
                return Some(entry);
            }
            let next = self.page.take().and_then(|page| page.next)?;
            match self.turn(&next) {
                Ok(page) => self.page = Some(page),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_entries_of_the_directory_are_listed() {
        let directory: Url = "http://h/a%20b/".parse().unwrap();
        let entry = |link: &str| match Link::of(&directory, link) {
            Link::Entry(found) => Some((found.entry.name, found.entry.kind)),
            Link::Navigation | Link::Elsewhere => None,
        };
        assert_eq!(entry("x%2Fy"), Some((b"x/y".to_vec(), ListedKind::File)));
        assert_eq!(entry("./c/"), Some((b"c".to_vec(), ListedKind::Directory)));
        assert_eq!(entry("/a%20b/%ff"), Some((b"\xff".to_vec(), ListedKind::File)));
        assert_eq!(entry("..%2f"), Some((b"../".to_vec(), ListedKind::File)));
        let elsewhere = ["/a%20bc", "c/d", "%2e%2e/x", "http://other/a%20b/x"];
        let outside = ["../", "/", "http://other/a%20b/x", "/a%20bc", "mailto:x", "%2e%2e/x", "//"];
        for link in outside.into_iter().chain(["", "./", "?C=N;O=D", "c/d"]) {
            assert_eq!(entry(link), None, "{link}");
            let is_elsewhere = matches!(Link::of(&directory, link), Link::Elsewhere);
            assert_eq!(is_elsewhere, elsewhere.contains(&link), "{link}");
        }
    }
}
