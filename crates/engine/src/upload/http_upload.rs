//! An upload to an HTTP server: in parts if the server can resume, else by PUT.

use std::time::Duration;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::{Event, Warning};
use longhaul_core::proto::http::{RequestMethod, ResponseHead, UPLOAD_LIMIT, parse_concurrent_ranges};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;

use super::answer::UploadAnswer;
use super::attempts::{Completion, Difference, ServerPart, UploadProtocol};
use super::context::UploadContext;
use super::error::UploadError;
use super::hashing::digests_of;
use super::progress::prefix;
use super::resumable::{PartOutcome, UploadResource};
use super::session::{UploadSession, UploadStep};
use super::{dav, ranges};
use crate::digest::WantedDigests;
use crate::source::http::HttpError;
use crate::streams::CountControl;

/// The timeout of requests whose answer an upload does not need: some servers never answer OPTIONS
/// or HEAD, but accept PUT.
const OPTIONAL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP upload, over all attempts.
pub(super) struct HttpUpload<'a> {
    session: UploadSession<'a>,
    /// `None` before the server has said how it takes files.
    way: Option<UploadWay>,
    /// The number of connections that may send ranges at once; `None` if ranges are not accepted.
    max_ranges: Option<usize>,
    /// Whether the server has a part of this upload: a 423 then means an earlier connection of this
    /// client.
    began: bool,
    /// The answer to the first `HEAD` of the upload resource, which was sent in one flight with
    /// `OPTIONS` or `DELETE`.
    early_status: Option<UploadAnswer>,
    /// The answer to a completing request that was sent with the last part.
    completing: Option<UploadAnswer>,
}

/// The way in which the server takes files.
enum UploadWay {
    /// In parts.
    Resumable(UploadResource),
    /// By PUT; `is_assumed` because the server has not answered `OPTIONS`.
    Plain { is_assumed: bool },
}

impl<'a> HttpUpload<'a> {
    pub(super) fn new(session: UploadSession<'a>) -> Self {
        Self { session, way: None, max_ranges: None, began: false, early_status: None, completing: None }
    }

    /// Requests how the server accepts files; deletes the remains of an earlier run if not to be
    /// resumed.
    fn choose_way(&mut self) -> Result<UploadWay, UploadError> {
        let session = &mut self.session;
        let UploadContext { request, progress, source, .. } = session.context;
        let step = UploadStep::new("to report its capabilities", RequestMethod::Options);
        let resource = UploadResource::new(source, &request.url, request.verify.is_some());
        session.patience = Some(OPTIONAL_ANSWER_TIMEOUT);
        let alone = |session: &mut UploadSession<'_>| session.exchange(step).map(|answer| (answer, None));
        let answers = if request.transfer.resume {
            let status = resource.status_step();
            session.exchange_both(step, status)
        } else {
            alone(session)
        };
        // Some servers do not support pipelining; some close the connection on OPTIONS, and accept
        // PUT. Another address may answer in place of a silent one.
        let answers = answers.or_else(|error| {
            let is_slow = matches!(error, UploadError::Http(HttpError::Timeout(..)))
                && session.target.addresses.usable() < 2;
            if is_unanswered(&error) && !is_slow { alone(session) } else { Err(error) }
        });
        session.patience = None;
        let (head, ahead) = match answers {
            Ok((answer, ahead)) => (Some(answer.head), ahead),
            Err(error) if is_unanswered(&error) && session.has_connected => {
                tracing::debug!("plain PUT is assumed: {error}");
                (None, None)
            }
            Err(error) => return Err(error),
        };
        self.early_status = ahead;
        let is_resumable = head.as_ref().is_some_and(ResponseHead::accepts_partial_uploads);
        // The first answer counts.
        let _ = progress.resumable.set(is_resumable);
        if !is_resumable || request.verify.is_none() {
            progress.skip_hashing();
        }
        if !is_resumable {
            self.max_ranges = head.as_ref().and_then(|head| dav::max_ranges(head, request));
            return Ok(UploadWay::Plain { is_assumed: head.is_none() });
        }
        self.max_ranges = head.and_then(|head| head.text(UPLOAD_LIMIT).and_then(parse_concurrent_ranges));
        if !request.transfer.resume {
            self.early_status = resource.start_over(session)?;
        }
        Ok(UploadWay::Resumable(resource))
    }

    /// Returns the ranges of the source whose digests differ from `pieces`, empty if all agree; and
    /// the source's BLAKE3 digest.
    fn difference(&mut self, pieces: &Pieces) -> Result<Difference, UploadError> {
        let at = self.session.at();
        // The server may close the connection while the source is read.
        self.session.close();
        let UploadContext { source, progress, .. } = self.session.context;
        let (size, pieces_of) = (progress.size, Some((pieces.algorithm, pieces.length)));
        let wanted = WantedDigests { whole: Some(Algorithm::Blake3), pieces: pieces_of };
        let digests = digests_of(source, ByteRange::with_len(0, size), wanted, &progress.cancel)?;
        source.check()?;
        let why = "the digests of its pieces are not of a file of this size";
        let wrong = pieces.differing(&digests.pieces, size);
        let wrong: RangeSet = wrong.ok_or_else(|| UploadError::answer(&at, why))?.into_iter().collect();
        let is_repairable = self.max_ranges.is_some() || wrong.total() == Bytes::ZERO;
        let digest = Some(digests.whole.ok_or_else(UploadError::no_digest)?);
        Ok(Difference { at, wrong, is_repairable, digest })
    }
}

impl<'a> UploadProtocol<'a> for HttpUpload<'a> {
    type Session = ();

    fn context(&mut self) -> &mut UploadContext<'a> {
        &mut self.session.context
    }

    fn open(&mut self) -> Result<(), UploadError> {
        self.completing = None;
        if self.way.is_none() {
            self.way = Some(self.choose_way()?);
        }
        Ok(())
    }

    fn held(&mut self, (): &mut ()) -> Result<ServerPart, UploadError> {
        let session = &mut self.session;
        let mut part = ServerPart::default();
        if let Some(UploadWay::Resumable(resource)) = &self.way {
            let there = resource.held(session, self.early_status.take())?;
            part.algorithm = session.context.request.verify.map(|_| Algorithm::Blake3);
            part.is_whole = there.as_ref().map(RangeSet::total) == Some(session.context.progress.size);
            // A lock on a whole file is another upload's, which completes it.
            self.began |= there.is_some() && !part.is_whole;
            part.held = there.unwrap_or_default();
        }
        // Neither a redirected address nor a file of one byte is sent in ranges without sessions.
        let is_single = self.way.as_ref().is_none_or(|way| matches!(way, UploadWay::Plain { .. }))
            && (session.target.is_redirected() || session.context.progress.size < Bytes::new(2));
        if !is_single && ranges::control(session, self.max_ranges, &part.held).is_some() {
            session.context.read_for_several();
        }
        Ok(part)
    }

    fn send(&mut self, (): &mut (), held: &RangeSet) -> Result<bool, UploadError> {
        let session = &mut self.session;
        let Some(UploadWay::Resumable(resource)) = &self.way else {
            return send_whole(session, &mut self.max_ranges).map(|()| true);
        };
        if let Some(control) = ranges::control(session, self.max_ranges, held) {
            let began = std::mem::replace(&mut self.began, true);
            return ranges::send(session, &resource.ranges(session, began), held, control).map(|()| true);
        }
        let sent = resource.send(session, prefix(held, session.context.progress.size));
        // A refused request starts no upload, even if bytes were sent before the refusal
        // arrived.
        let refused = matches!(sent, Err(UploadError::Refused { .. }));
        self.began |= !refused && session.context.progress.snapshot().0.written > Bytes::ZERO;
        match sent? {
            PartOutcome::Redirected => Ok(false),
            PartOutcome::Whole(answer) => {
                self.completing = answer;
                Ok(true)
            }
        }
    }

    fn idle(&mut self) {
        self.session.close();
    }

    fn complete(&mut self, (): &mut (), digest: Option<&Checksum>) -> Result<Completion, UploadError> {
        let session = &mut self.session;
        let Some(UploadWay::Resumable(resource)) = &self.way else { return Ok(Completion::Done(None)) };
        let answer = self.completing.take();
        if answer.is_none() {
            session.context.source.check()?;
            session.context.progress.emit(&Event::Verifying);
        }
        if let Some(pieces) = resource.complete(session, digest, answer)? {
            return self.difference(&pieces).map(Completion::Differs);
        }
        if digest.is_none() {
            // The completing request may have been sent while bytes waited in the socket; only a
            // digest tells of changes to them.
            session.context.source.check()?;
        }
        Ok(Completion::Done(digest.cloned()))
    }

    fn repair(&mut self, (): &mut (), held: &RangeSet) -> Result<(), UploadError> {
        let session = &mut self.session;
        let Some(UploadWay::Resumable(resource)) = &self.way else { return Ok(()) };
        let control = ranges::control(session, self.max_ranges, held).unwrap_or(CountControl::Fixed(1));
        ranges::send(session, &resource.ranges(session, true), held, control)
    }

    fn has_connected(&self) -> bool {
        self.session.has_connected
    }

    fn recover(&mut self, error: &UploadError) -> Retry {
        self.session.has_connected = true;
        self.session.close();
        self.session.return_to_original();
        self.session.asks_first = true;
        if let Some(UploadWay::Plain { is_assumed: true }) = self.way {
            self.way = None;
        }
        match error {
            UploadError::Refused { status: 423, retry_after, .. } if self.began => {
                retry_after.map_or(Retry::Backoff, Retry::After)
            }
            error => error.retry(),
        }
    }
}

/// Returns whether the server was reached, and has not said how it accepts files.
fn is_unanswered(error: &UploadError) -> bool {
    matches!(error, UploadError::Http(HttpError::RedirectRefused(..)))
        || matches!(error, UploadError::Http(error) if error.is_unanswered())
}

/// Sends the whole file, or its ranges if the server accepts them; fails if the server then reports
/// another size.
fn send_whole(session: &mut UploadSession<'_>, max_ranges: &mut Option<usize>) -> Result<(), UploadError> {
    let size = session.context.progress.size;
    if let Some(most) = *max_ranges {
        if dav::send(session, most)? {
            return Ok(());
        }
        // Ranges are not tried again.
        *max_ranges = None;
        let UploadContext { progress, source, reader, .. } = session.context;
        progress.found(&RangeSet::new(), source, reader);
    }
    let put = UploadStep::new("the upload", RequestMethod::Put { length: size, expects: true });
    let step = UploadStep { body: Some(ByteRange::with_len(0, size)), ..put };
    session.return_to_original();
    let answer = session.exchange(step)?;
    session.require_success(step.name, &answer)?;
    session.context.source.check()?;
    check_size(session)
}

/// Compares the size of the file on the server.
///
/// The server has reported success, and may permit nothing but PUT (an upload link of S3) or
/// compress answers: without a size to compare, a warning is emitted.
fn check_size(session: &mut UploadSession<'_>) -> Result<(), UploadError> {
    let size = session.context.progress.size;
    let step = UploadStep::new("to report the size of the file", RequestMethod::Head);
    // The target of a redirect may be valid for one request only.
    session.return_to_original();
    session.patience = Some(OPTIONAL_ANSWER_TIMEOUT);
    let answer = session.exchange(step).or_else(|error| match error {
        // The server may have closed the connection after the upload.
        UploadError::Http(error) if error.is_broken_connection() => session.exchange(step),
        error => Err(error),
    });
    let reason = match answer {
        Err(error) if error.is_cancelled() => return Err(error),
        Err(error) => error.to_string(),
        Ok(answer) => {
            let (head, at) = (&answer.head, session.at());
            let is_coded = |coding: &str| !matches!(coding.trim(), "" | "identity");
            match (head.status(), head.content_length()) {
                (200..=299, Some(found)) if found == size => return Ok(()),
                // Apache states no length for an empty file.
                (200..=299, None) if size == Bytes::ZERO => return Ok(()),
                (200..=299, None) => format!("{at} states no size"),
                (200..=299, Some(_)) if head.text("content-encoding").is_some_and(is_coded) => {
                    format!("{at} states the size of the file in a content coding")
                }
                (200..=299, Some(found)) => {
                    let why = format!(
                        "it has {} bytes of {}; check what the server did with them",
                        found.get(),
                        size.get()
                    );
                    return Err(UploadError::answer(&at, &why));
                }
                (status, _) => format!("{at} answers {status} to HEAD"),
            }
        }
    };
    session.context.progress.emit(&Event::Warning(Warning::NotVerified { reason }));
    Ok(())
}
