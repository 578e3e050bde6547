//! Uploads to FTP and GridFTP servers: stored under a temporary name, verified by checksums, then
//! renamed.
//!
//! ```text
//!   StoreTarget::open --> what is held (CKSM of pieces) --> extended_store (MODE E, several streams) --> CKSM --> MFMT, RNFR, RNTO
//!                                                     '-> stream_store   (MODE S, one stream)      --> SIZE --> RNFR, RNTO
//!                                       both send over data_sender, bare or within TLS
//! ```
//!
//! After a wrong checksum, the pieces that differ are stored again.

mod block_peer;
mod block_worker;
mod data_sender;
mod extended_store;
mod remote_pieces;
mod stream_store;
mod temporary_name;

use std::io;
use std::thread::Scope;
use std::time::{Duration, Instant};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::{Event, Warning};
use longhaul_core::pace::Pace;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::Backoff;
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;

use super::context::UploadContext;
use super::error::UploadError;
use super::hashing::Hashing;
use super::progress::UploadProgress;
use super::ranges;
use super::shared_pace::SharedPace;
use crate::cancel::Cancel;
use crate::pacing::PacingThread;
use crate::retry_loop::Retries;
use crate::source::gridftp::{StoreSession, StoreTarget};
use crate::source::http::{SafeUrl, UrlAndPeer};
use temporary_name::TemporaryName;

/// The interval at which the wait for the source's digest checks for cancellation.
const CANCEL_TICK: Duration = Duration::from_millis(100);

/// The timeout for the server's reply after a failed store: the reply explains more than a closed
/// data connection.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
/// The timeout for acknowledgements after the server has reported the file as stored. Only lost
/// acknowledgements can be missing; retransmissions follow after 200 ms, 400 ms and so on.
const ACKNOWLEDGEMENT_PATIENCE: Duration = Duration::from_secs(5);
/// The interval at which acknowledgements are read.
const ACKNOWLEDGEMENT_TICK: Duration = Duration::from_millis(5);

/// The URL and the progress of a store, for its last waits.
struct StoreContext<'a> {
    at: &'a UrlAndPeer,
    progress: &'a UploadProgress<'a>,
}

impl StoreContext<'_> {
    /// Fails if bytes remain `in_flight` after the server has reported success: the server cannot
    /// have stored them, and may have taken a broken connection for the end of the file.
    fn await_acknowledgement(&self, in_flight: impl Fn() -> u64) -> Result<(), UploadError> {
        let reported = Instant::now();
        loop {
            let left = in_flight();
            if left == 0 {
                return Ok(());
            }
            self.progress.check_cancel()?;
            if reported.elapsed() > ACKNOWLEDGEMENT_PATIENCE {
                let why =
                    format!("the server reports that it is stored, and has not received {left} bytes of it");
                let source = io::Error::new(io::ErrorKind::ConnectionAborted, why);
                return Err(UploadError::Send(self.at.clone(), source));
            }
            self.progress.cancel.sleep(ACKNOWLEDGEMENT_TICK);
        }
    }
}

/// An FTP upload, over all attempts.
pub(super) struct FtpUpload<'scope, 'env> {
    context: UploadContext<'scope>,
    pacing: PacingThread,
    threads: &'scope Scope<'scope, 'env>,
    hashing: Option<Hashing>,
    /// The ranges that the server has reported as stored in this run.
    stored: RangeSet,
    /// Whether this run has started to store.
    began: bool,
    /// The highest number of bytes that the server was found to hold.
    furthest: Option<Bytes>,
    /// The number of rounds in which wrong ranges were sent again.
    repairs: u32,
}

impl<'scope, 'env> FtpUpload<'scope, 'env> {
    pub(super) fn new(context: UploadContext<'scope>, threads: &'scope Scope<'scope, 'env>) -> Self {
        Self {
            context,
            pacing: PacingThread::default(),
            threads,
            hashing: None,
            stored: RangeSet::new(),
            began: false,
            furthest: None,
            repairs: 0,
        }
    }

    /// Repeats attempts until the server has the file or an error is final; returns the digest
    /// compared by both ends.
    pub(super) fn run(mut self) -> Result<Option<Checksum>, UploadError> {
        let request = self.context.request;
        let name = TemporaryName::claim(self.context.source, &request.url);
        let sessions = request.sessions.get();
        let target = StoreTarget::new(&request.url, &name.suffix, &request.transfer.client, sessions)?;
        let progress = self.context.progress;
        let emit = |event: &_| progress.emit(event);
        let retries =
            Retries { most: request.transfer.retries, stream: 0, emit: &emit, rest: &progress.cancel };
        let attempt = |(upload, _): &mut (&mut Self, _), backoff: &mut Backoff| {
            upload.attempt(&target, name.is_lasting(), backoff)
        };
        let result = retries.repeat(&mut (&mut self, false), attempt, |(upload, has_failed), error| {
            let is_first = !std::mem::replace(has_failed, true) && upload.furthest.is_none();
            error.retry().unless(is_first && error.is_before_connection())
        });
        if result.is_ok() {
            return result;
        }
        if !name.is_lasting() && self.began {
            self.discard(&target);
        }
        result
    }

    /// Removes a temporary file that no later run would find.
    fn discard(&self, target: &StoreTarget<'_>) {
        // Not the upload's flag, which may be raised already; the time is limited by that of one
        // command.
        let cancel = Cancel::new();
        match target.open(&cancel) {
            Ok(mut session) => session.discard(&cancel),
            Err(error) => tracing::debug!("a temporary file was not removed: {error}"),
        }
    }

    fn attempt(
        &mut self,
        target: &StoreTarget<'_>,
        is_lasting: bool,
        backoff: &mut Backoff,
    ) -> Result<Option<Checksum>, UploadError> {
        let mut session = target.open(&self.context.progress.cancel)?;
        let algorithm = session.algorithm();
        let verified_by = algorithm.filter(|_| self.context.request.verify.is_some());
        self.context.progress.set_resumable(session.takes_blocks() && algorithm.is_some() && is_lasting);
        if verified_by.is_none() {
            self.context.progress.skip_hashing();
        }
        let resumes = self.began || (self.context.request.transfer.resume && is_lasting);
        let held = if resumes { self.held(&mut session, algorithm)? } else { RangeSet::new() };
        let brought = self.furthest.map_or(Bytes::ZERO, |furthest| held.total() - furthest);
        backoff.received(brought);
        self.furthest = self.furthest.max(Some(held.total()));
        let is_whole =
            session.held == Some(self.context.progress.size) && held.total() == self.context.progress.size;
        if session.takes_blocks() {
            self.context.read_for_several();
        }
        self.context.found(&held);
        if let (Some(algorithm), None) = (verified_by, &self.hashing) {
            self.hashing = Some(Hashing::start(self.threads, &self.context, algorithm)?);
        }
        if !is_whole {
            self.began = true;
            self.send(&mut session, &held)?;
        }
        self.context.check_source()?;
        let digest = self.verify(&mut session, verified_by)?;
        session.rename(self.context.source.metadata().modified().ok(), &self.context.progress.cancel)?;
        session.keep();
        Ok(digest)
    }

    /// Returns the ranges that the server has, as proved by its checksums or as reported in this
    /// run.
    fn held(
        &self,
        session: &mut StoreSession<'_>,
        algorithm: Option<Algorithm>,
    ) -> Result<RangeSet, UploadError> {
        let progress = self.context.progress;
        let there = session.held.filter(|there| (Bytes::new(1)..=progress.size).contains(there));
        let (Some(there), cancel) = (there, &progress.cancel) else { return Ok(RangeSet::new()) };
        let range = ByteRange::with_len(0, there);
        if let Some(algorithm) = algorithm {
            return remote_pieces::agreeing(session, self.context.source, algorithm, range, cancel);
        }
        if session.takes_blocks() {
            return Ok(self.stored.clone());
        }
        // A single stream stores bytes in order. Bytes of an earlier run cannot be verified.
        let mut held = RangeSet::new();
        if self.began && session.resumes_streams() {
            held.insert(ByteRange::with_len(0, there.min(progress.read_so_far())));
        }
        Ok(held)
    }

    /// Sends the ranges that the server lacks.
    fn send(&mut self, session: &mut StoreSession<'_>, held: &RangeSet) -> Result<(), UploadError> {
        if !session.takes_blocks() {
            let offset = super::progress::prefix(held, self.context.progress.size);
            // The server may not support REST for STOR.
            let offset = if session.resumes_streams() { offset } else { Bytes::ZERO };
            return stream_store::send(self, session, offset);
        }
        let start = extended_store::start(held);
        let control = ranges::control_of(
            &self.context,
            session.rtt(),
            self.context.progress.size - held.total(),
            MAX_STREAMS,
        );
        let mut stored = std::mem::take(&mut self.stored);
        if start == crate::source::gridftp::StoreStart::Anew {
            stored = RangeSet::new();
        }
        let sent = extended_store::send(self, session, (held, start), control, &mut stored);
        self.stored = stored;
        sent
    }

    /// Compares the server's file with the source, and sends wrong pieces again; returns the digest
    /// if equal.
    fn verify(
        &mut self,
        session: &mut StoreSession<'_>,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<Checksum>, UploadError> {
        let (progress, size) = (self.context.progress, self.context.progress.size);
        let cancel = &progress.cancel;
        let (Some(algorithm), Some(hashing)) = (algorithm, &mut self.hashing) else {
            self.compare_sizes(session)?;
            return Ok(None);
        };
        let digest = loop {
            progress.check_cancel()?;
            if let Some(digest) = hashing.within(CANCEL_TICK)? {
                break digest;
            }
        };
        progress.emit(&Event::Verifying);
        let whole = ByteRange::with_len(0, size);
        loop {
            self.context.check_source()?;
            match session.whole_checksum(algorithm, size, cancel)? {
                Some(there) if there == digest => return Ok(Some(digest)),
                Some(_) => {}
                // The server lists CKSM as a feature, but does not implement it.
                None => {
                    self.warn(session, "lists checksums and computes none: the size alone is compared");
                    self.compare_sizes(session)?;
                    return Ok(None);
                }
            }
            // The server may refuse a checksum of bytes beyond the end of the file.
            let there = session.size(cancel)?.unwrap_or(size).min(size);
            let there = ByteRange::with_len(0, there);
            let held = remote_pieces::agreeing(session, self.context.source, algorithm, there, cancel)?;
            let mut wrong = RangeSet::new();
            held.gaps(whole).into_iter().for_each(|gap| wrong.insert(gap));
            let at = self.at(session);
            self.context.begin_repair(&at, &wrong, &mut self.repairs, session.takes_blocks())?;
            // If all pieces agree now, the server read other bytes for the first checksum: compare again.
            if wrong.total() > Bytes::ZERO {
                self.send(session, &held)?;
            }
        }
    }

    /// Fails if the size on the server differs from that of the source.
    ///
    /// In stream mode a server takes a broken connection for the end of the file, and reports
    /// success. A short file therefore counts as a broken connection, which is retried.
    fn compare_sizes(&self, session: &mut StoreSession<'_>) -> Result<(), UploadError> {
        let size = self.context.progress.size;
        match session.size(&self.context.progress.cancel)? {
            Some(there) if there < size && !session.takes_blocks() => {
                Err(UploadError::Send(self.at(session), io::ErrorKind::ConnectionAborted.into()))
            }
            Some(there) if there != size => {
                let (there, size) = (there.get(), size.get());
                let why = format!("it has {there} bytes of {size}; run again with --no-resume");
                Err(UploadError::answer(&self.at(session), &why))
            }
            Some(_) => Ok(()),
            None => {
                self.warn(
                    session,
                    "does not tell the file's size: nothing shows that it has stored all of it",
                );
                Ok(())
            }
        }
    }

    /// Warns of a capability that the server lacks.
    fn warn(&self, session: &StoreSession<'_>, what: &str) {
        let reason = format!("{} {what}", self.at(session));
        self.context.progress.emit(&Event::Warning(Warning::Finished { reason }));
    }

    /// Returns the pacing of the connections of a store.
    fn shared_pace(&self, pace: Pace) -> SharedPace<'_> {
        SharedPace::new(&self.pacing, pace, self.context.congestion)
    }

    /// Returns the URL and the server's address, for errors.
    fn at(&self, session: &StoreSession<'_>) -> UrlAndPeer {
        UrlAndPeer { url: SafeUrl::of(&self.context.request.url), peer: session.peer() }
    }
}
