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
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;

use super::attempts::{self, Completion, Difference, ServerPart, UploadProtocol};
use super::context::UploadContext;
use super::error::UploadError;
use super::ranges;
use crate::cancel::Cancel;
use crate::source::gridftp::{StoreSession, StoreStart, StoreTarget};
use crate::source::http::{SafeUrl, UrlAndPeer};
use temporary_name::TemporaryName;

/// The timeout for acknowledgements after the server has reported the file as stored. Only lost
/// acknowledgements can be missing; retransmissions follow after 200 ms, 400 ms and so on.
const ACKNOWLEDGEMENT_PATIENCE: Duration = Duration::from_secs(5);
/// The interval at which acknowledgements are read.
const ACKNOWLEDGEMENT_TICK: Duration = Duration::from_millis(5);

/// Sends a file to an FTP server; returns the digest compared by both ends.
pub(super) fn put<'scope>(
    context: UploadContext<'scope>,
    threads: &'scope Scope<'scope, '_>,
) -> Result<Option<Checksum>, UploadError> {
    let request = context.request;
    let name = TemporaryName::claim(context.source, &request.url);
    let sessions = &request.sessions;
    let target = StoreTarget::new(&request.url, &name.suffix, &request.transfer.client, sessions)?;
    let mut upload = FtpUpload {
        context,
        target: &target,
        is_lasting: name.is_lasting(),
        algorithm: None,
        stored: RangeSet::new(),
        began: false,
    };
    let result = attempts::run(&mut upload, threads);
    if result.is_err() && !upload.is_lasting && upload.began {
        upload.discard();
    }
    result
}

/// An FTP upload, over all attempts.
struct FtpUpload<'a, 't> {
    context: UploadContext<'a>,
    target: &'t StoreTarget<'t>,
    /// Whether a later run finds the temporary file.
    is_lasting: bool,
    /// The algorithm of the checksums that are compared; `None` compares the sizes alone.
    algorithm: Option<Algorithm>,
    /// The ranges that the server has reported as stored in this run.
    stored: RangeSet,
    /// Whether this run has started to store.
    began: bool,
}

impl<'a, 't> UploadProtocol<'a> for FtpUpload<'a, 't> {
    type Session = StoreSession<'t>;

    fn context(&mut self) -> &mut UploadContext<'a> {
        &mut self.context
    }

    fn open(&mut self) -> Result<StoreSession<'t>, UploadError> {
        Ok(self.target.open(&self.context.progress.cancel)?)
    }

    fn held(&mut self, session: &mut StoreSession<'t>) -> Result<ServerPart, UploadError> {
        let UploadContext { request, progress, .. } = self.context;
        let algorithm = session.algorithm();
        self.algorithm = algorithm.filter(|_| request.verify.is_some());
        // The first answer counts.
        let _ = progress.resumable.set(session.takes_blocks() && algorithm.is_some() && self.is_lasting);
        if self.algorithm.is_none() {
            progress.skip_hashing();
        }
        let resumes = self.began || (request.transfer.resume && self.is_lasting);
        let held = if resumes { self.proved(session, algorithm)? } else { RangeSet::new() };
        if session.takes_blocks() {
            self.context.read_for_several();
        }
        let is_whole = session.held == Some(progress.size) && held.total() == progress.size;
        Ok(ServerPart { held, is_whole, algorithm: self.algorithm })
    }

    fn send(&mut self, session: &mut StoreSession<'t>, held: &RangeSet) -> Result<bool, UploadError> {
        self.began = true;
        self.repair(session, held).map(|()| true)
    }

    fn complete(
        &mut self,
        session: &mut StoreSession<'t>,
        digest: Option<&Checksum>,
    ) -> Result<Completion, UploadError> {
        let UploadContext { source, progress, .. } = self.context;
        let (size, cancel) = (progress.size, &progress.cancel);
        source.check()?;
        let (Some(algorithm), Some(digest)) = (self.algorithm, digest) else {
            self.compare_sizes(session)?;
            return Ok(Completion::Done(None));
        };
        progress.emit(&Event::Verifying);
        match session.checksums(algorithm, &[None], size, cancel)?.pop().flatten() {
            Some(there) if there == *digest => return Ok(Completion::Done(Some(there))),
            Some(_) => {}
            // The server lists CKSM as a feature, but does not implement it.
            None => {
                self.warn(session, "lists checksums and computes none: the size alone is compared");
                self.compare_sizes(session)?;
                return Ok(Completion::Done(None));
            }
        }
        // The server may refuse a checksum of bytes beyond the end of the file.
        let there = session.size(cancel)?.unwrap_or(size).min(size);
        let held =
            remote_pieces::agreeing(session, source, algorithm, ByteRange::with_len(0, there), cancel)?;
        let wrong = held.gaps(ByteRange::with_len(0, size)).into_iter().collect();
        let (at, is_repairable) = (self.at(session), session.takes_blocks());
        Ok(Completion::Differs(Difference { at, wrong, is_repairable, digest: None }))
    }

    fn repair(&mut self, session: &mut StoreSession<'t>, held: &RangeSet) -> Result<(), UploadError> {
        if !session.takes_blocks() {
            let offset = super::progress::prefix(held, self.context.progress.size);
            // The server may not support REST for STOR.
            let offset = if session.resumes_streams() { offset } else { Bytes::ZERO };
            return stream_store::send(self, session, offset);
        }
        // Existing bytes are kept only if blocks are stored into the file.
        let is_new = held.total() == Bytes::ZERO;
        let start = if is_new { StoreStart::Anew } else { StoreStart::Into };
        let left = self.context.progress.size - held.total();
        let control = ranges::control_of(&self.context, session.rtt(), left, MAX_STREAMS);
        let mut stored = std::mem::take(&mut self.stored);
        if is_new {
            stored = RangeSet::new();
        }
        let sent = extended_store::send(self, session, (held, start), control, &mut stored);
        self.stored = stored;
        sent
    }

    fn conclude(&mut self, mut session: StoreSession<'t>) -> Result<(), UploadError> {
        let UploadContext { source, progress, .. } = self.context;
        session.rename(source.metadata().modified().ok(), &progress.cancel)?;
        session.keep();
        Ok(())
    }
}

impl FtpUpload<'_, '_> {
    /// Removes a temporary file that no later run would find.
    fn discard(&self) {
        // Not the upload's flag, which may be raised already; the time is limited by that of one
        // command.
        let cancel = Cancel::new();
        match self.target.open(&cancel) {
            Ok(mut session) => session.discard(&cancel),
            Err(error) => tracing::debug!("a temporary file was not removed: {error}"),
        }
    }

    /// Returns the ranges that the server has, as proved by its checksums or as reported in this
    /// run.
    fn proved(
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

    /// Returns the URL and the server's address, for errors.
    fn at(&self, session: &StoreSession<'_>) -> UrlAndPeer {
        UrlAndPeer { url: SafeUrl::of(&self.context.request.url), peer: session.peer() }
    }

    /// Fails if bytes remain `in_flight` after the server has reported success: the server cannot
    /// have stored them, and may have taken a broken connection for the end of the file.
    fn await_acknowledgement(&self, at: &UrlAndPeer, in_flight: impl Fn() -> u64) -> Result<(), UploadError> {
        let (progress, reported) = (self.context.progress, Instant::now());
        loop {
            let left = in_flight();
            if left == 0 {
                return Ok(());
            }
            progress.check_cancel()?;
            if reported.elapsed() > ACKNOWLEDGEMENT_PATIENCE {
                let why =
                    format!("the server reports that it is stored, and has not received {left} bytes of it");
                let source = io::Error::new(io::ErrorKind::ConnectionAborted, why);
                return Err(UploadError::Send(at.clone(), source));
            }
            progress.cancel.sleep(ACKNOWLEDGEMENT_TICK);
        }
    }
}
