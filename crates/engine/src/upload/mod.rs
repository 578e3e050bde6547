//! Sends a file to a server, so that it stands there whole or not at all.
//!
//! ```text
//!   source --> send::Supply --> socket --> server
//!     |        (sendfile, or a ring past the page cache)
//!     '------> hashing, in the sender's wake --> digest --> compared by the server
//!
//!   OPTIONS --> resumable: HEAD (what is there?) --> PATCH (the rest) --> PATCH (complete, verified)
//!           '-> plain:     PUT --> HEAD (is it all there?)
//! ```
//!
//! The caller's thread talks and sends; one thread hashes, one watches, and one takes samples when asked.

mod answer;
mod body;
mod error;
mod hashing;
mod monitor;
mod plain;
mod request;
mod resumable;
mod session;
mod shared;

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use longhaul_core::advice;
use longhaul_core::event::{Event, JobObserver};
use longhaul_core::proto::http::Ask;
use longhaul_core::retry::Backoff;
use longhaul_core::units::Bytes;

pub use error::UploadError;
pub use request::{PutOutcome, PutRequest, destination};

use crate::cancel::Cancel;
use crate::pacing::CongestionPlan;
use crate::send::{Reader, SourceFile};
use crate::source::http::{Client, ClientConfig, HttpError, Retry};
use crate::threads::named;
use hashing::Hashing;
use longhaul_core::checksum::{Algorithm, Checksum};
use resumable::Resource;
use session::{Session, Step};
use shared::Shared;

/// A server may close a connection on which nothing was said for longer.
const IDLE: Duration = Duration::from_secs(4);

/// Sends a file; returns once the server has it, whole, under its name.
///
/// # Errors
/// [`UploadError`]. What a server that can resume has got stays there for the next run; under the file's
/// name never stands half of it.
pub fn put(
    request: &PutRequest,
    observer: JobObserver<'_>,
    cancel: &Cancel,
) -> Result<PutOutcome, UploadError> {
    let start = Instant::now();
    let source = Arc::new(open(&request.path)?);
    let reader =
        Reader::choose(request.reader, &source).map_err(|_| UploadError::NoDirectIo(request.path.clone()))?;
    if let Some(name) = &request.congestion {
        CongestionPlan::check(name)
            .map_err(|source| UploadError::Congestion { name: name.clone(), source })?;
    }
    let congestion = CongestionPlan::plan(request.congestion.as_deref(), request.pace);
    let client = Client::new(ClientConfig { congestion: congestion.initial, ..request.client.clone() })?;
    let size = Bytes::new(source.metadata().len());
    let shared = Shared::new(request, start, observer, cancel, size);
    let (facts, result) = thread::scope(|threads| {
        let shared = &shared;
        let (alive, ended) = crossbeam_channel::bounded::<()>(0);
        let sampled = ended.clone();
        if let Some(interval) = request.sample {
            let sample = move || monitor::sample(shared, interval, &sampled);
            if let Err(error) = named("sampler").spawn_scoped(threads, sample) {
                tracing::warn!("no samples are taken: cannot start a thread: {error}");
            }
        }
        let watch = move || monitor::watch(shared, &ended);
        let watcher = named("monitor").spawn_scoped(threads, watch);
        let session = Session::new(request, shared, &source, reader, &client, congestion.paced);
        let result = session.and_then(|session| Upload::new(session, threads).run());
        shared.cancel.cancel();
        drop(alive);
        (watcher.ok().and_then(|watcher| watcher.join().ok()), result)
    });
    let digest = match result {
        // Whatever else went wrong then, did because of that.
        Err(UploadError::Http(HttpError::Cancelled) | UploadError::NoDigest) if cancel.is_cancelled() => {
            return Err(UploadError::Interrupted { resumable: shared.resumable() });
        }
        result => result?,
    };
    let (time, facts) = (start.elapsed(), facts.unwrap_or_default());
    Ok(PutOutcome {
        path: request.path.clone(),
        size,
        resumed: shared.resumed(),
        time,
        goodput: shared.goodput(time),
        retransmits: facts.retransmits,
        digest: digest.as_ref().and_then(|hash| Checksum::new(Algorithm::Blake3, hash.as_bytes())),
        finding: advice::diagnose_sender(&facts),
    })
}

/// Opens the source; whatever is no file is refused before it can block or surprise.
fn open(path: &Path) -> Result<SourceFile, UploadError> {
    let fail = |source| UploadError::Source { operation: "open", path: path.to_owned(), source };
    // A FIFO without a writer would be waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
    let kind = file.metadata().map_err(fail)?.file_type();
    if kind.is_file() {
        return SourceFile::new(file, path.to_owned()).map_err(fail);
    }
    let what = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        _ => "a device",
    };
    Err(UploadError::NotAFile { path: path.to_owned(), what })
}

/// An upload under way, through all its tries.
struct Upload<'scope, 'env> {
    session: Session<'scope>,
    threads: &'scope Scope<'scope, 'env>,
    manner: Option<Manner>,
    backoff: Backoff,
    /// The most that the server ever had.
    furthest: Option<Bytes>,
    /// The server has something of this upload: what it is busy with is a connection of ours that broke.
    began: bool,
}

/// How the server takes files.
enum Manner {
    /// In parts; it compares digests where one is computed.
    Resumable(Resource, Option<Hashing>),
    Plain,
}

impl<'scope, 'env> Upload<'scope, 'env> {
    fn new(session: Session<'scope>, threads: &'scope Scope<'scope, 'env>) -> Self {
        let backoff = Backoff::new(session.request.retries);
        Self { session, threads, manner: None, backoff, furthest: None, began: false }
    }

    /// Tries until the server has the file, or for good reason gives up; returns the digest that both ends have.
    fn run(mut self) -> Result<Option<blake3::Hash>, UploadError> {
        loop {
            let error = match self.attempt() {
                Ok(digest) => return Ok(digest),
                Err(error) => error,
            };
            self.session.hang_up();
            self.session.return_to_original();
            let shared = self.session.shared;
            let asked_to_wait = match (&error, error.retry()) {
                (UploadError::Refused { status: 423, retry_after, .. }, _) if self.began => *retry_after,
                (_, Retry::Never) => return Err(error),
                (_, Retry::Now) => None,
                (_, Retry::After(wait)) => Some(wait),
            };
            let Some(wait) = self.backoff.failed(asked_to_wait, fastrand::f64()) else { return Err(error) };
            shared.emit(&Event::Retrying { stream: 0, reason: error.to_string(), wait });
            if shared.cancel.sleep(wait) {
                return Err(HttpError::Cancelled.into());
            }
        }
    }

    fn attempt(&mut self) -> Result<Option<blake3::Hash>, UploadError> {
        if self.manner.is_none() {
            self.manner = Some(self.ask_manner()?);
        }
        let session = &mut self.session;
        let Some(Manner::Resumable(resource, hashing)) = &mut self.manner else {
            plain::send(session)?;
            return Ok(None);
        };
        loop {
            let there = resource.offset(session)?;
            let offset = there.unwrap_or_default();
            let brought = self.furthest.map_or(Bytes::ZERO, |furthest| offset - furthest);
            self.backoff.received(brought);
            self.furthest = self.furthest.max(Some(offset));
            session.shared.found(offset, session.source, session.reader);
            if offset == session.shared.size && there.is_some() {
                break;
            }
            self.began |= there.is_some();
            let sent = resource.send(session, offset);
            self.began |= session.shared.look().0.written > Bytes::ZERO;
            if sent? {
                break;
            }
        }
        let digest = hashing.as_mut().map(|hashing| wait_for_digest(session, hashing)).transpose()?;
        session.check_source()?;
        session.shared.emit(&Event::Verifying);
        resource.complete(session, digest.as_ref())?;
        Ok(digest)
    }

    /// Asks how the server takes files; drops what an earlier run left where it is not to be resumed.
    fn ask_manner(&mut self) -> Result<Manner, UploadError> {
        let session = &mut self.session;
        let (request, shared) = (session.request, session.shared);
        let step = Step { name: "to say what it can do", query: None, ask: Ask::Options, body: None };
        let resumable = session.say(step)?.head.accepts_partial_uploads();
        shared.set_resumable(resumable);
        if !(resumable && request.verify) {
            shared.hash_nothing();
        }
        if !resumable {
            return Ok(Manner::Plain);
        }
        let resource = Resource::new(resumable::id(session.source, &request.url, request.verify));
        if !request.resume {
            resource.start_over(session)?;
        }
        let hash = || Hashing::start(self.threads, session.source, session.reader, shared);
        Ok(Manner::Resumable(resource, request.verify.then(hash).transpose()?))
    }
}

/// Waits for the hasher, who has followed the sender.
fn wait_for_digest(session: &mut Session<'_>, hashing: &mut Hashing) -> Result<blake3::Hash, UploadError> {
    if let Some(digest) = hashing.within(IDLE)? {
        return Ok(digest);
    }
    session.hang_up();
    loop {
        if let Some(digest) = hashing.within(IDLE)? {
            return Ok(digest);
        }
    }
}
