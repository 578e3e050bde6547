//! An upload to an HTTP server, by the protocol that the server accepts.

use std::thread::Scope;
use std::time::Duration;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::Event;
use longhaul_core::proto::http::{Ask, ResponseHead, UPLOAD_LIMIT, parse_concurrent_ranges};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::{Backoff, Retry};
use longhaul_core::units::Bytes;

use super::answer::UploadAnswer;
use super::error::UploadError;
use super::hashing::Hashing;
use super::ranges::{self, RangeSupport};
use super::resumable::{self, Completion, PartOutcome, UploadResource};
use super::session::{UploadSession, UploadStep};
use super::{dav, mismatch, plain, progress};
use crate::retry_loop::Retries;
use crate::source::http::HttpError;
use crate::streams::CountControl;

/// A connection idle for longer is closed: the server may close it at any moment (Apache after 5
/// s).
const IDLE: Duration = Duration::from_secs(4);

/// The timeout of requests whose answer an upload does not need: some servers never answer OPTIONS or HEAD, but accept PUT.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// An HTTP upload, over all attempts.
pub(super) struct HttpUpload<'scope, 'env> {
    session: UploadSession<'scope>,
    threads: &'scope Scope<'scope, 'env>,
    protocol: Option<UploadProtocol>,
    /// The highest offset that the server has reported.
    furthest: Option<Bytes>,
    /// Whether the server has a part of this upload: a 423 then means an earlier connection of this
    /// client.
    began: bool,
    /// The answer to the first `HEAD` of the upload resource, which was sent in one flight with
    /// `OPTIONS` or `DELETE`.
    early_status: Option<UploadAnswer>,
    /// The number of rounds in which wrong ranges were sent again.
    repairs: u32,
    /// The ranges of a file that a server without resumable uploads may accept.
    file_ranges: RangeSupport,
    /// Whether the protocol is assumed, because the server has not answered `OPTIONS`.
    is_protocol_assumed: bool,
}

/// The protocol by which the server accepts files.
enum UploadProtocol {
    /// In parts; the server compares the digest if one is computed, which starts with the first
    /// part.
    Resumable(UploadResource, Option<Hashing>, RangeSupport),
    Plain,
}

impl<'scope, 'env> HttpUpload<'scope, 'env> {
    pub(super) fn new(session: UploadSession<'scope>, threads: &'scope Scope<'scope, 'env>) -> Self {
        Self {
            session,
            threads,
            protocol: None,
            furthest: None,
            began: false,
            early_status: None,
            repairs: 0,
            file_ranges: RangeSupport::default(),
            is_protocol_assumed: false,
        }
    }

    /// Repeats attempts until the server has the file or an error is final; returns the digest
    /// compared by both ends.
    pub(super) fn run(mut self) -> Result<Option<Checksum>, UploadError> {
        let progress = self.session.context.progress;
        let emit = |event: &_| progress.emit(event);
        let most = self.session.context.request.transfer.retries;
        let retries = Retries { most, stream: 0, emit: &emit, rest: &progress.cancel };
        retries.repeat(&mut self, Self::attempt, Self::after)
    }

    /// Prepares the next attempt; returns whether it can help.
    fn after(&mut self, error: &UploadError) -> Retry {
        if !self.session.has_connected && error.is_before_connection() {
            return Retry::Never;
        }
        self.session.has_connected |= !error.is_before_connection();
        self.session.close();
        self.session.return_to_original();
        self.session.asks_first = true;
        if std::mem::take(&mut self.is_protocol_assumed) {
            self.protocol = None;
        }
        match error {
            UploadError::Refused { status: 423, retry_after, .. } if self.began => {
                retry_after.map_or(Retry::Backoff, Retry::After)
            }
            error => error.retry(),
        }
    }

    fn attempt(&mut self, backoff: &mut Backoff) -> Result<Option<Checksum>, UploadError> {
        if self.protocol.is_none() {
            self.protocol = Some(self.choose_protocol()?);
        }
        let session = &mut self.session;
        let Some(UploadProtocol::Resumable(resource, hashing, support)) = &mut self.protocol else {
            plain::send(session, &mut self.file_ranges)?;
            return Ok(None);
        };
        let mut completing = None;
        loop {
            let there = resource.held(session, self.early_status.take())?;
            let held = there.clone().unwrap_or_default();
            let brought = self.furthest.map_or(Bytes::ZERO, |furthest| held.total() - furthest);
            backoff.received(brought);
            self.furthest = self.furthest.max(Some(held.total()));
            let control = ranges::control(session, support, &held);
            if control.is_some() {
                session.context.read_for_several();
            }
            session.context.found(&held);
            if session.context.request.verify.is_some() && hashing.is_none() {
                *hashing = Some(Hashing::start(self.threads, &session.context, Algorithm::Blake3)?);
            }
            if held.total() == session.context.progress.size && there.is_some() {
                break;
            }
            self.began |= there.is_some();
            if let Some(control) = control {
                let began = std::mem::replace(&mut self.began, true);
                ranges::send(session, &resource.ranges(session, began), &held, control)?;
                break;
            }
            let offset = progress::prefix(&held, session.context.progress.size);
            let sent = resource.send(session, offset, hashing);
            // A refused request starts no upload, even if bytes were sent before the refusal
            // arrived.
            let refused = matches!(sent, Err(UploadError::Refused { .. }));
            self.began |= !refused && session.context.progress.snapshot().0.written > Bytes::ZERO;
            match sent? {
                PartOutcome::Redirected => {}
                PartOutcome::Whole => break,
                PartOutcome::Completing(answer) => {
                    completing = Some(answer);
                    break;
                }
            }
        }
        complete(session, (resource, hashing, support), completing, &mut self.repairs)
    }

    /// Requests how the server accepts files; deletes the remains of an earlier run if not to be
    /// resumed.
    fn choose_protocol(&mut self) -> Result<UploadProtocol, UploadError> {
        let session = &mut self.session;
        let (request, progress) = (session.context.request, session.context.progress);
        let step =
            UploadStep { name: "to report its capabilities", query: None, ask: Ask::Options, body: None };
        let resource = UploadResource::new(resumable::id(
            session.context.source,
            &request.url,
            request.verify.is_some(),
        ));
        session.patience = Some(PATIENCE);
        let alone = |session: &mut UploadSession<'_>| session.exchange(step).map(|answer| (answer, None));
        let answers = if request.transfer.resume {
            let status = resource.status_step();
            session.exchange_both(step, status, ResponseHead::accepts_partial_uploads)
        } else {
            alone(session)
        };
        // Some servers do not support pipelining; some close the connection on OPTIONS, and accept PUT. Another address may
        // answer in place of a silent one.
        let answers = answers.or_else(|error| {
            let is_slow = matches!(error, UploadError::Http(HttpError::Timeout(..)))
                && session.target.addresses.usable() < 2;
            if is_unanswered(&error) && !is_slow { alone(session) } else { Err(error) }
        });
        session.patience = None;
        let head = match answers {
            Ok((answer, ahead)) => {
                self.early_status = ahead;
                answer.head
            }
            Err(error) if is_unanswered(&error) && session.has_connected => {
                tracing::debug!("plain PUT is assumed: {error}");
                self.is_protocol_assumed = true;
                progress.set_resumable(false);
                progress.skip_hashing();
                return Ok(UploadProtocol::Plain);
            }
            Err(error) => return Err(error),
        };
        let resumable = head.accepts_partial_uploads();
        let support = RangeSupport { concurrent: head.text(UPLOAD_LIMIT).and_then(parse_concurrent_ranges) };
        self.file_ranges = RangeSupport { concurrent: dav::most_ranges(&head, request) };
        progress.set_resumable(resumable);
        if !resumable || request.verify.is_none() {
            progress.skip_hashing();
        }
        if !resumable {
            return Ok(UploadProtocol::Plain);
        }
        if !request.transfer.resume {
            self.early_status = resource.start_over(session)?;
        }
        Ok(UploadProtocol::Resumable(resource, None, support))
    }
}

/// Returns whether the server was reached, and has not said how it accepts files.
fn is_unanswered(error: &UploadError) -> bool {
    matches!(error, UploadError::Http(HttpError::RedirectRefused(..)))
        || matches!(error, UploadError::Http(error) if error.is_unanswered())
}

/// Has the server compare the digest and give the file its name; sends wrong ranges again. The answer to the first completing request may
/// have arrived already.
fn complete(
    session: &mut UploadSession<'_>,
    (resource, hashing, support): (&UploadResource, &mut Option<Hashing>, &RangeSupport),
    mut completing: Option<UploadAnswer>,
    repairs: &mut u32,
) -> Result<Option<Checksum>, UploadError> {
    let mut digest = hashing.as_mut().map(|hashing| wait_for_digest(session, hashing)).transpose()?;
    loop {
        if completing.is_none() {
            session.context.check_source()?;
            session.context.progress.emit(&Event::Verifying);
        }
        match resource.complete(session, digest.as_ref(), completing.take())? {
            Completion::Done => {
                if digest.is_none() {
                    // The completing request may have been sent while bytes waited in the socket; only a digest tells of changes to them.
                    session.context.check_source()?;
                }
                return Ok(digest);
            }
            Completion::Mismatch(pieces) => {
                let hash = send_again(session, resource, support, &pieces, repairs)?;
                if let Some(hashing) = hashing {
                    hashing.replace(hash.clone());
                    digest = Some(hash);
                }
            }
        }
    }
}

/// Sends the ranges again that differ on the server; returns the digest of the source, read again. Fails after too many rounds, or if
/// ranges cannot be sent.
fn send_again(
    session: &mut UploadSession<'_>,
    resource: &UploadResource,
    support: &RangeSupport,
    pieces: &Pieces,
    repairs: &mut u32,
) -> Result<Checksum, UploadError> {
    let at = session.at();
    // The server may close the connection while the source is read.
    session.close();
    let (ranges, digest) = mismatch::differing(session, pieces)?;
    let is_repairable = support.concurrent.is_some() || ranges.total() == Bytes::ZERO;
    session.context.begin_repair(&at, &ranges, repairs, is_repairable)?;
    if ranges.total() == Bytes::ZERO {
        // One side hashed other bytes than it wrote or sent: both have hashed the file again.
        return Ok(digest);
    }
    let mut held = RangeSet::new();
    held.insert(ByteRange::with_len(0, session.context.progress.size));
    ranges.iter().for_each(|range| held.remove(range));
    let control = ranges::control(session, support, &held).unwrap_or(CountControl::Fixed(1));
    ranges::send(session, &resource.ranges(session, true), &held, control)?;
    Ok(digest)
}

/// Waits for the hasher; closes the connection if that takes long.
fn wait_for_digest(session: &mut UploadSession<'_>, hashing: &mut Hashing) -> Result<Checksum, UploadError> {
    if let Some(digest) = hashing.within(IDLE)? {
        return Ok(digest);
    }
    session.close();
    loop {
        if let Some(digest) = hashing.within(IDLE)? {
            return Ok(digest);
        }
    }
}
