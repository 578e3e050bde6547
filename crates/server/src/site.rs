//! What lies below the root, as replies. Everything here may wait for a disk, and runs on a blocking thread.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::http::{ReplyHead, RequestHead, TargetPath};
use longhaul_engine::sink::part_names::is_partial;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::file_reply::file_reply;
use crate::listing::{Listing, Order};
use crate::page;
use crate::reply::Reply;
use crate::root::{Found, Root};

/// All but the characters that no part of a URL gives a meaning (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is served, whoever asks.
pub(crate) struct Site {
    pub(crate) root: Root,
    pub(crate) hidden: bool,
    pub(crate) listing: usize,
    pub(crate) pages: Arc<Semaphore>,
}

impl Site {
    /// Answers a GET or HEAD for what `path` leads to.
    pub(crate) fn read(&self, path: &TargetPath, request: &RequestHead, now: SystemTime) -> Reply {
        self.find(path, request, now).unwrap_or_else(|error| refuse(&error, request))
    }

    fn find(&self, path: &TargetPath, request: &RequestHead, now: SystemTime) -> io::Result<Reply> {
        let partial = path.names().last().is_some_and(is_partial);
        if partial || (path.is_hidden() && !self.hidden) {
            return Err(Errno::NOENT.into());
        }
        let directory = match self.root.find(path.names())? {
            Found::File(_) if path.has_trailing_slash() => return Err(Errno::NOENT.into()),
            Found::File(source) => return file_reply(&source, request, now),
            Found::Directory(directory) => directory,
        };
        if !path.has_trailing_slash() {
            let query = path.query().map(|query| format!("?{query}")).unwrap_or_default();
            let location = format!("{}{query}", url_of(path.names()));
            let head = ReplyHead::new(301).with("Location", &location);
            return Ok(Reply::explained(head, "a directory's name ends in a slash"));
        }
        let index: Vec<Vec<u8>> = path.names().iter().cloned().chain([b"index.html".to_vec()]).collect();
        match self.root.find(&index) {
            Ok(Found::File(source)) => return file_reply(&source, request, now),
            Ok(Found::Directory(_)) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            // One that cannot be read was meant to be shown instead of the names beside it.
            Err(error) => return Err(error),
        }
        let Ok(permit) = Arc::clone(&self.pages).try_acquire_owned() else {
            let head = ReplyHead::new(503).with("Retry-After", "1");
            return Ok(Reply::explained(head, "too many directories are being listed; try again"));
        };
        let listing = Listing::read(self, &directory, path.names(), Order::from_query(path.query()))?;
        Ok(page::reply(path.names(), &listing).holding(permit))
    }
}

/// Writes the path of a directory as a URL's path.
pub(crate) fn url_of(names: &[Vec<u8>]) -> String {
    names.iter().fold("/".to_owned(), |url, name| url + &encode(name) + "/")
}

/// Writes a name so that it stands for itself in a URL.
pub(crate) fn encode(name: &[u8]) -> String {
    percent_encode(name, RESERVED).to_string()
}

/// Tells the client what it may know: names that lead out of the root are missing, like all others.
fn refuse(error: &io::Error, request: &RequestHead) -> Reply {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO) => {
            Reply::text(404, "there is no such file")
        }
        Some(Errno::ACCESS | Errno::PERM) => Reply::text(403, "the file may not be read"),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
            tracing::warn!(target = request.target(), %error, "out of resources");
            let head = ReplyHead::new(503).with("Retry-After", "1");
            Reply::explained(head, "too many files are open; try again")
        }
        _ => {
            tracing::error!(target = request.target(), %error, "a file could not be opened");
            Reply::text(500, "the file could not be opened; the server's log says why")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_no_more_than_they_may() {
        let head = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";
        let request = RequestHead::parse(head).unwrap().unwrap().0;
        for (errno, status) in [
            (Errno::NOENT, 404),
            (Errno::XDEV, 404),
            (Errno::LOOP, 404),
            (Errno::NAMETOOLONG, 404),
            (Errno::ACCESS, 403),
            (Errno::MFILE, 503),
            (Errno::IO, 500),
        ] {
            assert_eq!(refuse(&errno.into(), &request).status(), status, "{errno}");
        }
    }
}
