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
/// How long a server may be busy with other files before it is given up.
const BUSY_PATIENCE: Duration = Duration::from_secs(120);
/// An answer that takes this long shows progress: `longhaul serve` hashes for 5 s, or answers at once that it is busy.
const PROGRESS: Duration = Duration::from_secs(2);

/// Limits the time that a server's digests are waited for, over all metalinks of a file.
struct DigestWait {
    began: Instant,
    /// When the server last showed progress.
    progressed: Instant,
}

impl DigestWait {
    fn new(now: Instant) -> Self {
        Self { began: now, progressed: now }
    }

    /// Returns whether to ask again after `wait`, where the server answered at `now` a request sent at `asked`.
    fn allows(&mut self, wait: Duration, asked: Instant, now: Instant) -> bool {
        if now.duration_since(asked) >= PROGRESS {
            self.progressed = now;
        }
        wait <= LONGEST_WAIT
            && now.duration_since(self.began) < PATIENCE
            && now.duration_since(self.progressed) < BUSY_PATIENCE
    }
}

impl HttpSource<'_> {
    /// Fetches the digests of the described file's pieces; `None` where no metalink of the file has any.
    pub(super) fn pieces_of_metalinks(&self, cancel: &Cancel) -> Result<Option<Pieces>, SourceError> {
        let described = self.described()?;
        let mut limit = DigestWait::new(Instant::now());
        for url in described.metalinks.iter().take(MOST_METALINKS) {
            let metalink =
                Metalink::parse(&self.fetch_metalink(url, &mut limit, cancel)?).map_err(|error| {
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
    fn fetch_metalink(
        &self,
        url: &Url,
        limit: &mut DigestWait,
        cancel: &Cancel,
    ) -> Result<Vec<u8>, SourceError> {
        // A login is for the first origin only.
        let secrets = url.origin() == self.url.origin();
        let config = &self.options.client;
        let client = self.clients.get(&if secrets { config.clone() } else { config.without_secrets() })?;
        loop {
            let asked = Instant::now();
            let error = match client.open(url, None, cancel).map_err(SourceError::from) {
                Ok(opened) => return self.read_document(opened.connection, url),
                Err(error) => error,
            };
            match error.retry {
                Retry::After(wait) if limit.allows(wait, asked, Instant::now()) => {
                    tracing::info!("waiting for the digests of pieces: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long a server is asked that answers each request after `answer` with a wait of 1 s.
    fn asked_for(answer: Duration) -> Duration {
        let began = Instant::now();
        let (mut limit, mut now) = (DigestWait::new(began), began);
        while limit.allows(Duration::from_secs(1), now, now + answer) {
            now += answer + Duration::from_secs(1);
        }
        now - began
    }

    #[test]
    fn busy_server_is_given_up_before_one_that_hashes() {
        assert_eq!(asked_for(Duration::ZERO), BUSY_PATIENCE);
        assert!(asked_for(Duration::from_secs(5)) > PATIENCE - Duration::from_secs(6));
        let (mut limit, now) = (DigestWait::new(Instant::now()), Instant::now());
        assert!(!limit.allows(LONGEST_WAIT + Duration::from_secs(1), now, now));
    }
}
