//! Uploads a file to a server, where the file gets its name only once complete.
//!
//! ```text
//!   source --> send::Supply --> socket --> server
//!     |        (sendfile, or a ring past the page cache)
//!     '------> hashing, behind the sender --> digest --> compared by the server
//!
//!   protocol: attempts, each: what is held --> send the rest --> compare the digest --> send wrong ranges again
//!
//!   OPTIONS, HEAD (what is held) --> resumable: PATCH (the rest), PATCH (complete, verified)
//!           |                       '-> ranges: Round<Sending> --> PATCH (complete, verified)
//!           |                           (a range_worker each: PATCH, PATCH, ..)
//!           '-> plain:     PUT --> HEAD (size)
//!               '-> dav:   ranges of a temporary file --> MOVE
//!
//!   ftp://, gsiftp://: gridftp/, STOR of a temporary file --> CKSM --> RNTO
//! ```
//!
//! Requests separated by a comma are sent in one flight.
//!
//! The caller's thread sends the requests and the file, unless streams send its ranges. Further
//! threads: one hashes, one monitors, one paces, an optional one takes samples; with O_DIRECT each
//! ring has a reader and a hasher.

mod ack_stall;
mod answer;
mod attempts;
mod body;
mod context;
mod dav;
mod error;
mod gridftp;
mod hashing;
mod http_upload;
mod known_path;
mod monitor;
mod progress;
mod range_worker;
mod ranges;
mod refusal;
mod request;
mod resumable;
mod session;
mod shared_pace;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use longhaul_core::event::{Done, JobObserver, LossCounts};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::Bytes;

pub use crate::source::gridftp::FtpSessions;
pub use error::UploadError;
pub use request::{PutRequest, destination};

use crate::cancel::Cancel;
use crate::pacing::{CongestionPlan, PacingThread};
use crate::send::{Reader, SourceFile};
use crate::source::http::{Client, ClientConfig};
use crate::threads::named;
use context::UploadContext;
use http_upload::HttpUpload;
use known_path::UploadPath;
use progress::UploadProgress;
use session::UploadSession;

/// Sends a file; returns once the server has all of it under its name.
///
/// # Errors
/// [`UploadError`]. A server that can resume keeps the received bytes for the next run; a partial
/// file never gets the final name.
pub fn put(request: &PutRequest, observer: JobObserver<'_>, cancel: &Cancel) -> Result<Done, UploadError> {
    put_open(request, &Arc::new(SourceFile::open(&request.path)?), observer, cancel)
}

/// Sends an open file, in its state of then, as [`put`] does; the path of the request is for
/// messages.
///
/// # Errors
/// See [`put`].
pub fn put_open(
    request: &PutRequest,
    source: &Arc<SourceFile>,
    observer: JobObserver<'_>,
    cancel: &Cancel,
) -> Result<Done, UploadError> {
    let start = Instant::now();
    let unusable = |message| Failure::new(FailureKind::Usage, message);
    let reader = Reader::choose(request.reader, source).map_err(|_| {
        let path = request.path.display();
        unusable(format!("cannot read {path} by Direct I/O: its file system has none; use --reader auto"))
    })?;
    if let Some(name) = &request.congestion {
        CongestionPlan::check(name).map_err(|error| {
            unusable(format!(
                "cannot use the congestion control '{name}': {error}; /proc/sys/net/ipv4/tcp_available_congestion_control lists those there are"
            ))
        })?;
    }
    let congestion = CongestionPlan::plan(request.congestion.as_deref(), request.transfer.pace);
    let is_ftp = matches!(request.url.scheme(), "ftp" | "ftps" | "gsiftp");
    let client =
        Client::new(ClientConfig { congestion: congestion.initial, ..request.transfer.client.clone() })?;
    let size = Bytes::new(source.metadata().len());
    let progress = UploadProgress::new(request, start, observer, cancel, size);
    let path = UploadPath::read(request, &|event| progress.emit(event));
    let pacing = PacingThread::default();
    let (finding, result) = thread::scope(|threads| {
        let (progress, path, pacing) = (&progress, &path, &pacing);
        let (alive, ended) = crossbeam_channel::bounded::<()>(0);
        let sampled = ended.clone();
        if let Some(interval) = &request.transfer.sample {
            let sample = move || monitor::sample(progress, interval, &sampled);
            if let Err(error) = named("sampler").spawn_scoped(threads, sample) {
                tracing::warn!("no samples are taken: cannot start a thread: {error}");
            }
        }
        let watch = move || monitor::watch(request, progress, path, &ended);
        let watcher = named("monitor").spawn_scoped(threads, watch);
        let congestion = congestion.paced.as_deref();
        let context = UploadContext { request, progress, source, reader, path, pacing, congestion };
        let result = progress.transfer.cpu.count(|| {
            if is_ftp {
                return gridftp::put(context, threads);
            }
            attempts::run(&mut HttpUpload::new(UploadSession::new(context, &client)?), threads)
        });
        progress.cancel.cancel();
        drop(alive);
        (watcher.ok().and_then(|watcher| watcher.join().ok()), result)
    });
    let digest = match result {
        // Any other error is a consequence of the cancellation.
        Err(error) if cancel.is_cancelled() && error.follows_a_cancellation() => {
            let fate = match progress.resumable.get() {
                Some(true) => "the server keeps what it has: run the same command to resume",
                Some(false) => "this server cannot resume",
                None => "nothing was sent yet",
            };
            return Err(Failure::new(FailureKind::Interrupted, format!("interrupted; {fate}")).into());
        }
        result => result?,
    };
    path.keep(&|event| progress.emit(event));
    let time = start.elapsed();
    let retransmits = progress.sockets().read().1.counters.retransmits;
    Ok(Done {
        path: request.path.clone(),
        bytes: size,
        unchanged: false,
        resumed: progress.resumed(),
        time,
        goodput: progress.goodput(time),
        streams: progress.streams(),
        losses: LossCounts { retransmits: Some(retransmits), out_of_order: None },
        digest,
        finding: finding.unwrap_or_default(),
    })
}
