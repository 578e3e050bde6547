//! One upload over all its attempts, whatever the protocol.
//!
//! ```text
//!   open --> held --> send --> digest --> complete --> conclude
//!     ^       ^        |                   |    ^
//!     |       '--------' redirected        '----' repair: the server has other bytes
//!     '-- backoff, after an error
//! ```

use std::thread::Scope;
use std::time::Duration;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::{Event, Warning};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::{Backoff, Retry};
use longhaul_core::units::Bytes;

use super::context::UploadContext;
use super::error::UploadError;
use super::hashing::Hashing;
use crate::retry_loop::Retries;
use crate::source::http::UrlAndPeer;

/// A connection idle for longer is closed: the server may close it at any moment (Apache after 5
/// s).
const MAX_CONNECTION_IDLE: Duration = Duration::from_secs(4);

/// The maximum number of rounds in which wrong ranges are sent again.
const MAX_REPAIRS: u32 = 4;

/// The protocol by which a server takes one file.
pub(super) trait UploadProtocol<'a> {
    /// The session of one attempt.
    type Session;

    fn context(&mut self) -> &mut UploadContext<'a>;

    /// Connects to the server, as far as the first request does not.
    fn open(&mut self) -> Result<Self::Session, UploadError>;

    /// Requests what the server holds.
    fn held(&mut self, session: &mut Self::Session) -> Result<ServerPart, UploadError>;

    /// Sends what the server lacks; returns whether the server has all then. If not, it is asked
    /// again what it holds.
    fn send(&mut self, session: &mut Self::Session, held: &RangeSet) -> Result<bool, UploadError>;

    /// Closes a connection that the server may close during a long wait.
    fn idle(&mut self) {}

    /// Compares the server's file with `digest`, if there is one.
    fn complete(
        &mut self,
        session: &mut Self::Session,
        digest: Option<&Checksum>,
    ) -> Result<Completion, UploadError>;

    /// Sends the ranges again that are not among those that the server `held`.
    fn repair(&mut self, session: &mut Self::Session, held: &RangeSet) -> Result<(), UploadError>;

    /// Gives the file its name, if the comparison did not.
    fn conclude(&mut self, _session: Self::Session) -> Result<(), UploadError> {
        Ok(())
    }

    /// Returns whether a connection was established.
    fn has_connected(&self) -> bool {
        false
    }

    /// Prepares the next attempt after an error; returns whether it can help.
    fn recover(&mut self, error: &UploadError) -> Retry {
        error.retry()
    }
}

/// The part of the file on the server.
#[derive(Default)]
pub(super) struct ServerPart {
    pub(super) held: RangeSet,
    /// Whether nothing is left to send.
    pub(super) is_whole: bool,
    /// The algorithm of the digest that the server compares; `None` compares none.
    pub(super) algorithm: Option<Algorithm>,
}

/// The result of the comparison.
pub(super) enum Completion {
    /// The server has the file, with this digest if digests were compared.
    Done(Option<Checksum>),
    Differs(Difference),
}

/// Bytes on the server that differ from the source.
pub(super) struct Difference {
    pub(super) at: UrlAndPeer,
    /// Empty if all pieces agree, although the digest does not.
    pub(super) wrong: RangeSet,
    /// Whether the server takes the ranges again.
    pub(super) is_repairable: bool,
    /// The digest of the source, if it was read again.
    pub(super) digest: Option<Checksum>,
}

/// The state of an upload over all its attempts.
struct Upload<'scope, 'env> {
    threads: &'scope Scope<'scope, 'env>,
    /// The highest number of bytes that the server has reported.
    furthest: Option<Bytes>,
    /// The number of rounds in which wrong ranges were sent again.
    repairs: u32,
    has_connected: bool,
}

/// Repeats attempts until the server has the file or an error is final; returns the digest compared
/// by both ends.
pub(super) fn run<'scope, P: UploadProtocol<'scope>>(
    protocol: &mut P,
    threads: &'scope Scope<'scope, '_>,
) -> Result<Option<Checksum>, UploadError> {
    let UploadContext { request, progress, .. } = *protocol.context();
    let emit = |event: &_| progress.emit(event);
    let retries = Retries { most: request.transfer.retries, stream: 0, emit: &emit, rest: &progress.cancel };
    let upload = Upload { threads, furthest: None, repairs: 0, has_connected: false };
    retries.repeat(
        &mut (upload, protocol),
        |(upload, protocol), backoff| upload.attempt(*protocol, backoff),
        |(upload, protocol), error| upload.recover(*protocol, error),
    )
}

impl<'scope> Upload<'scope, '_> {
    fn recover(&mut self, protocol: &mut impl UploadProtocol<'scope>, error: &UploadError) -> Retry {
        let has_connected = self.has_connected || protocol.has_connected();
        if !has_connected && error.is_before_connection() {
            return Retry::Never;
        }
        self.has_connected = true;
        protocol.recover(error)
    }

    fn attempt(
        &mut self,
        protocol: &mut impl UploadProtocol<'scope>,
        backoff: &mut Backoff,
    ) -> Result<Option<Checksum>, UploadError> {
        let mut session = protocol.open()?;
        loop {
            let ServerPart { held, is_whole, algorithm } = protocol.held(&mut session)?;
            self.has_connected = true;
            backoff.received(self.furthest.map_or(Bytes::ZERO, |furthest| held.total() - furthest));
            self.furthest = self.furthest.max(Some(held.total()));
            let context = *protocol.context();
            context.progress.found(&held, context.source, context.reader);
            if let Some(algorithm) = algorithm {
                Hashing::start(self.threads, &context, algorithm)?;
            }
            if is_whole || protocol.send(&mut session, &held)? {
                break;
            }
        }
        let mut digest = wait_for_digest(protocol)?;
        loop {
            match protocol.complete(&mut session, digest.as_ref())? {
                Completion::Done(digest) => {
                    protocol.conclude(session)?;
                    return Ok(digest);
                }
                Completion::Differs(difference) => {
                    self.repair(protocol, &mut session, &difference)?;
                    digest = digest.map(|own| difference.digest.unwrap_or(own));
                }
            }
        }
    }

    /// Sends wrong ranges again, and warns of them. Fails after too many rounds, or if ranges
    /// cannot be sent.
    fn repair<P: UploadProtocol<'scope>>(
        &mut self,
        protocol: &mut P,
        session: &mut P::Session,
        difference: &Difference,
    ) -> Result<(), UploadError> {
        let Difference { at, wrong, is_repairable, digest } = difference;
        let context = *protocol.context();
        if self.repairs == MAX_REPAIRS || !is_repairable {
            return Err(UploadError::corrupted(at, wrong, self.repairs));
        }
        self.repairs += 1;
        // If all pieces agree, one side hashed other bytes than it wrote or sent: both hash the
        // file again.
        if wrong.total() > Bytes::ZERO {
            let (ranges, server) = (wrong.clone(), at.to_string());
            context.progress.emit(&Event::Warning(Warning::WrongOnServer { ranges, server }));
            let whole = ByteRange::with_len(0, context.progress.size);
            let held = wrong.gaps(whole).into_iter().collect();
            protocol.repair(session, &held)?;
        }
        if let (Some(hashing), Some(digest)) = (&mut *context.progress.hashing.lock(), digest) {
            hashing.replace(digest.clone());
        }
        Ok(())
    }
}

/// Waits for the digest of the source.
fn wait_for_digest<'a>(protocol: &mut impl UploadProtocol<'a>) -> Result<Option<Checksum>, UploadError> {
    let progress = protocol.context().progress;
    let Some(hashing) = &mut *progress.hashing.lock() else { return Ok(None) };
    loop {
        if let Some(digest) = hashing.within(MAX_CONNECTION_IDLE)? {
            return Ok(Some(digest));
        }
        protocol.idle();
    }
}
