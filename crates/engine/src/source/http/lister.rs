//! Directories over HTTP: listings in JSON or XML, and index pages.

mod linked_entries;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{HeaderField, RequestMethod, ResponseHead, UPLOAD_MTIME};
use longhaul_core::proto::listing::{
    HtmlLinks, JsonEntries, ListedEntry, ListedKind, ListingError, XmlEntries,
};
use longhaul_core::retry::Retry;
use percent_encoding::percent_decode_str;
use url::{Position, Url};

use super::SafeUrl;
use super::client::{Client, OpenedUrl, ShortAnswer};
use super::error::HttpError;
use crate::cancel::Cancel;
use crate::source::http::client::clients::Clients;
use crate::source::http::lister::linked_entries::LinkedEntries;
use crate::source::listing::{
    Entries, FileFacts, ListerOptions, MadeDirectory, OpenListing, RemoteDirectories, RemoteEntry, Spool,
    below, child_url, make_with_parents,
};

/// The requested types: `longhaul serve` answers with JSON; other servers send their configured
/// type.
const ACCEPT: &str = "application/json, text/html;q=0.5";
/// The type requested from a server whose JSON is of another form, as that of serve.
const ACCEPT_HTML: &str = "text/html";
/// The number of concurrent listings: on a long path each takes a round trip.
const LISTINGS_AT_ONCE: usize = 16;
/// The maximum number of consecutive empty pages: `longhaul serve` sends one if 10,000 consecutive
/// names are those of sockets and pipes.
const MAX_EMPTY_PAGES: usize = 100;
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
        let headers = &mut options.config.requests.headers;
        headers.retain(|header| !header.is("accept"));
        headers.push(HeaderField::new("Accept", ACCEPT)?);
        let client = clients.get(&options.config)?;
        client.target(url)?;
        Ok(Self { client, options, unmatched: Arc::default() })
    }

    /// Returns a lister that requests index pages only; `None` if this one does.
    fn in_html(&self) -> Result<Option<Self>, HttpError> {
        let mut config = self.client.config().clone();
        let is_accept = |header: &HeaderField| header.is("accept");
        let headers = &mut config.requests.headers;
        if headers.iter().any(|header| is_accept(header) && header.value() == ACCEPT_HTML) {
            return Ok(None);
        }
        headers.retain(|header| !is_accept(header));
        headers.push(HeaderField::new("Accept", ACCEPT_HTML)?);
        Ok(Some(Self { client: Arc::new(self.client.with_config(config)?), ..self.clone() }))
    }

    fn open(&self, directory: &Url, cancel: &Cancel) -> Result<(OpenedUrl, Spool), Failure> {
        let (opened, listing) = self.options.retrying(&SafeUrl::of(directory), cancel, || {
            let mut opened = self.client.open_uncoded(directory, cancel)?;
            let shown = opened.target.safe_url().to_string();
            // An error of the connection permits a retry.
            let listing = self.options.receive(&shown, |buffer, _| opened.connection.read_body(buffer))?;
            Ok((opened, listing))
        })?;
        Ok((opened, listing?))
    }

    /// Sends a request without a body; retries if the server is busy.
    fn ask(&self, url: &Url, method: RequestMethod<'_>, cancel: &Cancel) -> Result<ShortAnswer, Failure> {
        self.options.retrying(&SafeUrl::of(url), cancel, || {
            let answer = self.client.exchange(url, method, cancel)?;
            if Retry::of_status(answer.head.status(), None) != Retry::Never {
                answer.check()?;
            }
            Ok(answer)
        })
    }
}

impl RemoteDirectories for HttpLister {
    fn list(&self, directory: &Url, cancel: &Cancel) -> Result<OpenListing, Failure> {
        let page = ListingPage::request(self, directory, cancel)?;
        let directory = page.directory.clone();
        let (lister, cancel) = (self.clone(), cancel.clone());
        let pages = Pages { lister, cancel, page: Some(page), requested: HashSet::new(), empty: 0 };
        Ok(OpenListing { directory, entries: Box::new(pages) })
    }

    fn look(&self, file: &Url, cancel: &Cancel) -> Result<FileFacts, Failure> {
        let answer = self.ask(file, RequestMethod::Head, cancel)?;
        answer.check()?;
        let head = answer.head;
        Ok(FileFacts { size: head.content_length(), modified: head.last_modified() })
    }

    fn make(&self, directory: &Url, cancel: &Cancel) -> Result<bool, Failure> {
        make_with_parents(directory, &mut |directory| {
            let answer = self.ask(directory, RequestMethod::MakeCollection, cancel)?;
            match answer.head.status() {
                200..=299 => Ok(MadeDirectory::New),
                // The directory exists (RFC 4918, section 9.3.1), or the server creates directories
                // when files are uploaded into them.
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
        let answer = self.ask(directory, RequestMethod::Options, cancel);
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
    fn request(lister: &HttpLister, url: &Url, cancel: &Cancel) -> Result<Self, Failure> {
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
            Failure::new(
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
                Box::new(LinkedEntries::new(links, base, unmatched))
            }
            _ => {
                let why = format!(
                    "{} lists no files: it sent {}; a directory needs an index page, or a listing in JSON or XML of longhaul serve, nginx or \
                     Caddy; fetch the URLs of files by -i FILE",
                    SafeUrl::of(&directory),
                    head.describe_content()
                );
                return Err(Failure::new(FailureKind::Data, why));
            }
        };
        Ok(Self { directory, entries, next })
    }
}

/// Returns the function that adds the URLs of entries of `directory`.
fn in_directory(
    directory: Url,
    unusable: impl Fn(ListingError) -> Failure,
) -> impl FnMut(Result<ListedEntry, ListingError>) -> Result<RemoteEntry, Failure> {
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
fn next_page(head: &ResponseHead, directory: &Url) -> Result<Option<Url>, Failure> {
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
        Failure::new(FailureKind::Data, message)
    })
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
    /// Requests the next page; rejects an endless listing, which repeats a page or has too many
    /// empty pages.
    fn turn(&mut self, next: &Url) -> Result<ListingPage, Failure> {
        let endless = |why: &str| {
            Failure::new(FailureKind::Data, format!("the listing goes on at {}, {why}", SafeUrl::of(next)))
        };
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(next.as_str().as_bytes()).as_bytes()[..16]);
        if !self.requested.insert(hash) {
            return Err(endless("which was a page of it before"));
        }
        self.empty += 1;
        if self.empty > MAX_EMPTY_PAGES {
            return Err(endless("and its last pages had no entries"));
        }
        ListingPage::request(&self.lister, next, &self.cancel)
    }
}

impl Iterator for Pages {
    type Item = Result<RemoteEntry, Failure>;

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
