//! The digests of a file's pieces, from a metalink that its server names (RFC 6249, section 4).

use std::time::{Duration, Instant};

use longhaul_core::proto::metalink::{MAX_DOCUMENT, Metalink, Pieces};
use url::Url;

use super::connection::Connection;
use super::http_source::HttpSource;
use super::{Read, SafeUrl};
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::transfer::error::{Cause, Retry, SourceError};

/// The most metalinks that are tried.
const MOST_METALINKS: usize = 4;
/// How long a server may take for the digests of a file: 4 TB at 1 GB/s. It asks to be asked again meanwhile.
const PATIENCE: Duration = Duration::from_secs(4000);
/// The longest wait that a server may ask for; what asks for more is busy with something else.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl HttpSource<'_> {
    /// Fetches the digests of the described file's pieces; `None` where no metalink of the file has any.
    pub(super) fn pieces_of_metalinks(&self, cancel: &Cancel) -> Result<Option<Pieces>, SourceError> {
        let described = self.described()?;
        for url in described.metalinks.iter().take(MOST_METALINKS) {
            let metalink = Metalink::parse(&self.fetch_metalink(url, cancel)?).map_err(|error| {
                let message = format!("cannot use the metalink {}: {error}", SafeUrl::of(url));
                SourceError::new(FailureKind::Protocol, Retry::Never, Cause::Connection, message)
            })?;
            let mut files = metalink.files.into_iter();
            // Which one of several is the described file is not certain.
            let only = files.next().filter(|_| files.next().is_none());
            let same = only.filter(|file| file.size.is_some() && file.size == described.file.size);
            if let Some(pieces) = same.and_then(|file| file.pieces) {
                return Ok(Some(pieces));
            }
        }
        Ok(None)
    }

    /// Fetches a document; asks again as long as the server asks for a little more time.
    fn fetch_metalink(&self, url: &Url, cancel: &Cancel) -> Result<Vec<u8>, SourceError> {
        // A login is for the first origin only.
        let secrets = url.origin() == self.url.origin();
        let config = &self.options.client;
        let client = self.clients.get(&if secrets { config.clone() } else { config.without_secrets() })?;
        let began = Instant::now();
        loop {
            let error = match client.open(url, None, cancel).map_err(SourceError::from) {
                Ok(opened) => return self.read_document(opened.connection, url),
                Err(error) => error,
            };
            match error.retry {
                Retry::After(wait) if wait <= LONGEST_WAIT && began.elapsed() < PATIENCE => {
                    if cancel.sleep(wait) {
                        return Err(SourceError::interrupted());
                    }
                }
                _ => return Err(error),
            }
        }
    }

    fn read_document(&self, mut connection: Connection, url: &Url) -> Result<Vec<u8>, SourceError> {
        let limit = self.options.client.timeouts.head;
        let (began, most) = (Instant::now(), MAX_DOCUMENT.as_usize());
        let (mut document, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match connection.read_body(&mut buffer)? {
                Read::Data(n) => document.extend_from_slice(&buffer[..n]),
                Read::Idle => {}
                Read::End => return Ok(document),
            }
            if document.len() > most || began.elapsed() > limit {
                let why = if document.len() > most { "is too large" } else { "takes too long" };
                let message = format!("the metalink {} {why}", SafeUrl::of(url));
                return Err(SourceError::new(
                    FailureKind::Protocol,
                    Retry::Never,
                    Cause::Connection,
                    message,
                ));
            }
        }
    }
}
