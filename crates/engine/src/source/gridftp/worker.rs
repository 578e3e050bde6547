//! The worker of an FTP stream: in MODE E the only one, over all data connections; in MODE S one of
//! several.

use std::sync::atomic::Ordering;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::retry::Retry;

use super::chunk_pace::ChunkPace;
use super::error::FtpError;
use super::extended_mode;
use super::gridftp_source::{GridFtpSource, LoginResult};
use super::login::ServerAccess;
use super::sessions::Session;
use super::stream_mode;
use super::unproved::{Unproved, compare};
use crate::retry_loop::Retries;
use crate::source::{StreamPeer, StreamWorker};
use crate::transfer::Stream;

/// The number of retries of the login that proves bytes after a broken connection: over 4 to 8 s.
const PROOF_RETRIES: u32 = 5;

/// The worker of one stream.
pub(super) struct GridFtpWorker<'s> {
    pub(super) source: &'s GridFtpSource<'s>,
    pub(super) unproved: Unproved,
    pub(super) pace: ChunkPace,
    /// The numbers of the worker's data connections in events and samples.
    pub(super) numbers: Vec<usize>,
    /// Whether chunks of MODE E are requested while earlier ones are being sent.
    pub(super) requests_ahead: bool,
    /// Whether a file that is sent by one RETR only has been started.
    pub(super) is_begun: bool,
}

/// The context of a fetch, beside its session and stream.
pub(super) struct FetchContext<'a, 's> {
    pub(super) worker: &'a mut GridFtpWorker<'s>,
    pub(super) access: &'a ServerAccess<'s>,
    pub(super) described: &'a LoginResult,
}

impl<'s> GridFtpWorker<'s> {
    pub(super) fn new(source: &'s GridFtpSource<'_>) -> Self {
        Self {
            source,
            unproved: Unproved::default(),
            pace: ChunkPace::default(),
            numbers: Vec::new(),
            requests_ahead: true,
            is_begun: false,
        }
    }

    /// Takes the session that described the file, or waits for work and logs in; `None` if no work
    /// is left.
    fn session(
        &mut self,
        access: &ServerAccess<'_>,
        described: &LoginResult,
        stream: &mut Stream<'_>,
    ) -> Result<Option<Session>, Failure> {
        if let Some((session, range)) = self.source.take_first() {
            stream.lease_requested(range);
            if described.by_ranges {
                // The file is empty.
                stream.drop_received();
            }
            return Ok(Some(session));
        }
        let has_work = stream.wait_for_work();
        if !has_work && (self.unproved.is_empty() || stream.stop().is_cancelled()) {
            return Ok(None);
        }
        // A login also returns the state of the file, which proves earlier bytes even if nothing is
        // left to lease.
        let opened = if has_work { access.open(&stream.renew_cancel()) } else { access.open(stream.stop()) };
        let (session, state) = opened.map_err(|error| match error {
            // This login has succeeded before, so the refusal means that the server accepts no
            // further one.
            FtpError::Login { at, reply, .. } => FtpError::Busy { at, reply },
            error => error,
        })?;
        compare(&described.state, &state, access.at())?;
        self.unproved.prove_all();
        Ok(Some(session))
    }

    fn serve(&mut self, stream: &mut Stream<'_>) -> Result<(), Failure> {
        let source = self.source;
        let (described, access) = (source.described()?, source.access()?);
        let Some(mut session) = self.session(&access, &described, stream)? else { return Ok(()) };
        let mut context = FetchContext { worker: self, access: &access, described: &described };
        let reusable = if source.uses_extended_mode() {
            extended_mode::fetch(&mut context, &mut session, stream)?
        } else {
            stream_mode::fetch(&mut context, &mut session, stream)?
        };
        if reusable {
            source.keep(session);
        }
        Ok(())
    }
}

impl GridFtpWorker<'_> {
    /// Proves bytes written to a pipe, which cannot be taken back, by the file's state from further
    /// logins; returns whether all of the file arrived before the connection broke, and is proved.
    fn prove_complete(&mut self, stream: &mut Stream<'_>) -> bool {
        stream.drop_received();
        let Ok((described, access)) = self.source.described().and_then(|d| Ok((d, self.source.access()?)))
        else {
            return false;
        };
        if !stream.is_complete() {
            return false;
        }
        let emit = |event: &_| tracing::debug!(?event, "the last bytes are not proved yet");
        let retries = Retries { most: PROOF_RETRIES, stream: stream.id(), emit: &emit, rest: stream.stop() };
        let attempt = |(): &mut (), _: &mut _| {
            let (session, state) = access.open(stream.stop())?;
            compare(&described.state, &state, access.at())?;
            Ok(session)
        };
        // The server has accepted this login before.
        let classify = |(): &mut (), error: &Failure| Retry::Backoff.unless(error.cause == Cause::OtherFile);
        let Ok(session) = retries.repeat(&mut (), attempt, classify) else { return false };
        self.unproved.prove_all();
        self.source.keep(session);
        true
    }
}

impl StreamWorker for GridFtpWorker<'_> {
    fn work(&mut self, stream: &mut Stream<'_>) -> Result<(), Failure> {
        let served = self.serve(stream);
        stream.flush();
        let Err(error) = served else { return Ok(()) };
        if error.cause == Cause::OtherFile {
            // Before the transfer stops, so that the other workers take back their bytes.
            self.source.has_changed.store(true, Ordering::Release);
            self.unproved.take_back(stream)?;
        } else if stream.is_to_stdout() && self.prove_complete(stream) {
            return Ok(());
        } else {
            self.unproved.withhold(stream)?;
        }
        Err(error)
    }

    fn restarts(&self) -> bool {
        self.is_begun
    }

    fn leave(&mut self, stream: &mut Stream<'_>) {
        // Bytes kept by a transfer that ends here are proved by the file's state in the next run;
        // another source must not complete the file. After a change of the file, a later run might
        // find the described state again, with bytes of the changed file in between.
        let is_proved_later = stream.stop().is_cancelled() || !stream.has_other_source();
        if is_proved_later && !self.source.has_changed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.unproved.take_back(stream) {
            tracing::warn!("{}: {error}", self.source.shown());
        }
    }
}

/// Creates the error of a server whose MODE E does not reach this host: the next attempt uses MODE
/// S.
pub(super) fn fall_back_to_stream_mode(source: &GridFtpSource<'_>, error: &FtpError) -> Failure {
    source.is_stream_mode_only.store(true, Ordering::Relaxed);
    let message = format!("{error}; connections to the server are used instead");
    tracing::warn!("{message}");
    Failure::new(FailureKind::Temporary, message).with_retry(Retry::AtOnce)
}
