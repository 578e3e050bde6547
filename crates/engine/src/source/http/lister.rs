//! Directories over HTTP: JSON listings of `longhaul serve` and nginx, index pages of Apache and nginx.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::proto::http::{Ask, HeaderField, ResponseHead, UPLOAD_MTIME};
use longhaul_core::proto::listing::{HtmlLinks, JsonEntries, ListedEntry, ListedKind, ListingError};
use longhaul_core::units::Bytes;
use percent_encoding::percent_decode_str;
use url::{Position, Url};

use super::client::{Client, OpenedUrl};
use super::clients::Clients;
use super::error::HttpError;
use super::short_exchange::{ShortAnswer, retrying};
use super::{Read, SafeUrl};
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::source::listing::{
    Entries, FileFacts, ListerOptions, MadeDirectory, OpenListing, RemoteDirectories, RemoteEntry, Spool,
    child_url, make_with_parents,
};
use crate::transfer::error::{Cause, Retry, SourceError};

/// The requested types: `longhaul serve` answers with JSON; other servers send their configured type.
const ACCEPT: &str = "application/json, text/html;q=0.5";
/// The number of concurrent listings: on a long path each takes a round trip.
const LISTINGS_AT_ONCE: usize = 16;
/// The maximum size of a listing, about 8 million entries.
const LONGEST: Bytes = Bytes::gib(1);
/// The maximum number of consecutive empty pages: `longhaul serve` sends one if 10,000 consecutive names are those of
/// sockets and pipes.
const MOST_EMPTY_PAGES: usize = 100;

/// Lists the directories of an HTTP server.
#[derive(Clone)]
pub(crate) struct HttpLister {
    client: Arc<Client>,
    options: ListerOptions,
}

impl HttpLister {
    /// Creates a lister for the server of `url`.
    pub(crate) fn new(clients: &Clients, url: &Url, mut options: ListerOptions) -> Result<Self, HttpError> {
        options.config.headers.retain(|header| !header.is("accept"));
        options.config.headers.push(accept()?);
        let client = clients.get(&options.config)?;
        client.target(url)?;
        Ok(Self { client, options })
    }

    fn open(&self, directory: &Url, cancel: &Cancel) -> Result<(OpenedUrl, Spool), SourceError> {
        let log = |event: &_| tracing::debug!(?event, "listing {}", SafeUrl::of(directory));
        let (opened, listing) = retrying(self.options.retries, cancel, &log, || {
            let mut opened = self.client.open_uncoded(directory, cancel)?;
            let listing = self.receive(&mut opened)?;
            Ok((opened, listing))
        })?;
        Ok((opened, listing?))
    }

    /// Sends a request without a body; retries if the server is busy.
    fn ask(&self, url: &Url, ask: Ask<'_>, cancel: &Cancel) -> Result<ShortAnswer, HttpError> {
        let log = |event: &_| tracing::debug!(?event, "asking for {}", SafeUrl::of(url));
        retrying(self.options.retries, cancel, &log, || {
            let answer = self.client.exchange(url, ask, cancel)?;
            if matches!(answer.head.status(), 408 | 425 | 429 | 500 | 502..=504) {
                answer.check()?;
            }
            Ok(answer)
        })
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

fn accept() -> Result<HeaderField, HttpError> {
    Ok(HeaderField::new("Accept", ACCEPT)?)
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
            "application/json" => Box::new(JsonEntries::new(reader).map(move |entry| {
                let entry = entry.map_err(&unusable)?;
                let url = child_url(&base, &entry.name, entry.kind == ListedKind::Directory);
                Ok(RemoteEntry { entry, url })
            })),
            "text/html" | "application/xhtml+xml" => {
                let links = HtmlLinks::new(reader).map(move |link| link.map_err(&unusable));
                Box::new(links.filter_map(move |link| link.map(|link| linked(&base, &link)).transpose()))
            }
            _ => {
                let why = format!(
                    "{} lists no files: it sent {}; a directory needs longhaul serve, nginx with autoindex, or an index page of Apache",
                    SafeUrl::of(&directory),
                    head.describe_content()
                );
                return Err(failed(FailureKind::Data, why));
            }
        };
        Ok(Self { directory, entries, next })
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
    let path = |url: &Url| url[Position::BeforeHost..Position::AfterPath].to_owned();
    let same = url.filter(|url| path(url) == path(directory) && url.query() != directory.query());
    same.map(Some).ok_or_else(|| {
        let message = format!(
            "the listing of {} goes on at '{}', which is not its next page",
            SafeUrl::of(directory),
            next.escape_debug()
        );
        failed(FailureKind::Data, message)
    })
}

/// Returns the entry that a link of an index page refers to; `None` for other links, such as to the parent directory or
/// for sorting.
fn linked(directory: &Url, link: &str) -> Option<RemoteEntry> {
    let mut url = directory.join(link).ok()?;
    url.set_fragment(None);
    if url.origin() != directory.origin() || url.query().is_some() {
        return None;
    }
    let below = url.path().strip_prefix(directory.path())?;
    let (segment, kind) = match below.strip_suffix('/') {
        Some(segment) => (segment, ListedKind::Directory),
        None => (below, ListedKind::File),
    };
    if segment.is_empty() || segment.contains('/') {
        return None;
    }
    let name = percent_decode_str(segment).collect();
    // Index pages show sizes in rounded units and times without a zone.
    let entry = ListedEntry { name, kind, size: None, modified: None, unique: None };
    Some(RemoteEntry { entry, url })
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
        let entry = |link: &str| linked(&directory, link).map(|found| (found.entry.name, found.entry.kind));
        assert_eq!(entry("x%2Fy"), Some((b"x/y".to_vec(), ListedKind::File)));
        assert_eq!(entry("./c/"), Some((b"c".to_vec(), ListedKind::Directory)));
        assert_eq!(entry("/a%20b/%ff"), Some((b"\xff".to_vec(), ListedKind::File)));
        assert_eq!(entry("..%2f"), Some((b"../".to_vec(), ListedKind::File)));
        let outside = ["../", "/", "http://other/a%20b/x", "/a%20bc", "mailto:x", "%2e%2e/x", "//"];
        for link in outside.into_iter().chain(["", "./", "?C=N;O=D", "c/d"]) {
            assert_eq!(entry(link), None, "{link}");
        }
    }
}
