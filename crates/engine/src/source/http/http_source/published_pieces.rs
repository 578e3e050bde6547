//! The digests of a file's pieces, from a metalink that the server links to (RFC 6249, section 4).

use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::metalink::{MAX_DOCUMENT, Metalink, Pieces};
use longhaul_core::retry::{Backoff, Retry};
use url::Url;

use crate::cancel::Cancel;
use crate::retry_loop::Retries;
use crate::source::http::SafeUrl;
use crate::source::http::http_source::HttpSource;

/// The maximum number of metalinks to try.
const MAX_METALINKS: usize = 4;
/// The timeout for the digests of a file: 4 TB at 1 GB/s. The server requests retries meanwhile.
const DIGEST_PATIENCE: Duration = Duration::from_secs(4000);
/// The longest accepted Retry-After; a longer one means that the server is busy with other work.
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(10);
/// The maximum time to wait for a server that is busy with other files.
const BUSY_PATIENCE: Duration = Duration::from_secs(120);
/// An answer that takes this long shows progress: `longhaul serve` hashes for 5 s, or reports at
/// once that it is busy.
const PROGRESS: Duration = Duration::from_secs(2);

/// Limits the wait for a server's digests, over all metalinks of a file.
struct DigestWait {
    began: Instant,
    /// The time of the server's last progress.
    progressed: Instant,
}

impl DigestWait {
    fn new(now: Instant) -> Self {
        Self { began: now, progressed: now }
    }

    /// Returns whether to retry after `wait`, given an answer at `now` to a request sent at
    /// `requested`.
    fn allows(&mut self, wait: Duration, requested: Instant, now: Instant) -> bool {
        if now.duration_since(requested) >= PROGRESS {
            self.progressed = now;
        }
        wait <= MAX_REQUESTED_WAIT
            && now.duration_since(self.began) < DIGEST_PATIENCE
            && now.duration_since(self.progressed) < BUSY_PATIENCE
    }
}

impl HttpSource<'_> {
    /// Fetches the piece digests of the described file; `None` if no metalink of the file has any.
    pub(crate) fn pieces_of_metalinks(&self, cancel: &Cancel) -> Result<Option<Pieces>, Failure> {
        let described = self.described()?;
        let mut limit = DigestWait::new(Instant::now());
        for url in described.metalinks.iter().take(MAX_METALINKS) {
            let metalink =
                Metalink::parse(&self.fetch_metalink(url, &mut limit, cancel)?).map_err(|error| {
                    let message = format!("cannot use the metalink {}: {error}", SafeUrl::of(url));
                    Failure::new(FailureKind::Protocol, message)
                })?;
            let mut files = metalink.files.into_iter();
            // Among several files, the described one cannot be identified.
            let only = files.next().filter(|_| files.next().is_none());
            let same = only.filter(|file| file.size.is_some() && file.size == described.file.size);
            if let Some(pieces) = same.and_then(|file| file.pieces) {
                return Ok(Some(pieces));
            }
        }
        Ok(None)
    }

    /// Fetches a document; retries while the server requests a short wait.
    fn fetch_metalink(&self, url: &Url, limit: &mut DigestWait, cancel: &Cancel) -> Result<Vec<u8>, Failure> {
        // A login is for the first origin only.
        let secrets = url.origin() == self.url.origin();
        let config = &self.options.transfer.client;
        let client = self.clients.get(&if secrets { config.clone() } else { config.without_secrets() })?;
        let emit = |event: &_| tracing::info!(?event, "waiting for the digests of pieces");
        let retries = Retries { most: 1, stream: 0, emit: &emit, rest: cancel };
        let attempt = |requested: &mut Instant, backoff: &mut Backoff| {
            *requested = Instant::now();
            // The number of retries has no limit but `limit`, and none lengthens the server's wait.
            backoff.received(Backoff::PROGRESS);
            Ok(client.open_uncoded(url, cancel)?)
        };
        let mut opened =
            retries.repeat(&mut Instant::now(), attempt, |requested, error: &Failure| match error.retry {
                Retry::After(wait) if limit.allows(wait, *requested, Instant::now()) => error.retry,
                _ => Retry::Never,
            })?;
        let (document, is_whole) = opened.connection.read_all(MAX_DOCUMENT, config.timeouts.head)?;
        if is_whole {
            return Ok(document);
        }
        let why = if document.len() > MAX_DOCUMENT.as_usize() { "is too large" } else { "takes too long" };
        let message = format!("the metalink {} {why}", SafeUrl::of(url));
        Err(Failure::new(FailureKind::Protocol, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long a server is queried that answers each request after `answer` with a wait of
    /// 1 s.
    fn asked_for(answer: Duration) -> Duration {
        let began = Instant::now();
        let (mut limit, mut now) = (DigestWait::new(began), began);
        while limit.allows(Duration::from_secs(1), now, now + answer) {
            now += answer + Duration::from_secs(1);
        }
        now - began
    }

    #[test]
    fn wait_for_a_busy_server_is_shorter_than_for_a_hashing_one() {
        assert_eq!(asked_for(Duration::ZERO), BUSY_PATIENCE);
        assert!(asked_for(Duration::from_secs(5)) > DIGEST_PATIENCE - Duration::from_secs(6));
        let (mut limit, now) = (DigestWait::new(Instant::now()), Instant::now());
        assert!(!limit.allows(MAX_REQUESTED_WAIT + Duration::from_secs(1), now, now));
    }
}
