//! Handles an upload request on its connection: 100 Continue, the body, 102 Processing, the reply.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::proto::http::RequestBody;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::send::{Outgoing, Piece};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_rustls::server::TlsStream;

use crate::Timeouts;
use crate::admission::connection_slots::ConnectionSlot;
use crate::connection::transport::{ServerTransport, TLS_CHUNK};
use crate::reply::Reply;
use crate::upload::Uploads;
use crate::upload::body::body_reader::BodyReader;
use crate::upload::body::body_receiver::{BodyConnection, UploadOutcome};
use crate::upload::request::command::UploadCommand;
use crate::upload::request::refusal;
use crate::upload::request::start::{Inbound, NotStarted, UploadStart};

/// How long to wait until a superseded upload has synced what it received.
const SUPERSEDED_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait until another request has reserved the space of the upload.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for another upload that is between two ranges: 3 s until it ends
/// (`SILENT_AFTER`), and 1 s for its last sync.
const BETWEEN_RANGES_TIMEOUT: Duration = Duration::from_secs(4);
/// How long to wait for the lock of another upload, whose closed connection may not be noticed yet.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval between attempts to start an upload.
const START_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Receives an upload and returns its reply; `inbox` holds bytes that came with the head.
pub(crate) async fn handle(
    uploads: &Arc<Uploads>,
    (transport, slot): (&mut ServerTransport, &ConnectionSlot),
    inbox: &mut Vec<u8>,
    command: UploadCommand,
) -> UploadOutcome {
    let (request, timeouts) = (&command.request, &uploads.timeouts);
    let body = request.body();
    let expects = request.is_http_1_1()
        && body != RequestBody::None
        && request.header("expect").is_some_and(|value| value.trim().eq_ignore_ascii_case("100-continue"));
    let may_inform = request.is_http_1_1();
    let connection = request.keeps_alive().then(|| slot.watch());
    // Its client has shown a token: the connection is not evicted, not even while the upload waits
    // for its start.
    slot.receiving();
    let upload = match start(uploads, command).await {
        Ok(UploadStart::Ready(upload)) => upload,
        Ok(UploadStart::Answered(reply)) | Err(reply) => {
            return UploadOutcome::unread(reply, body == RequestBody::None);
        }
    };
    upload.add_connection(connection);
    let received = async {
        // A client that has sent part of the body with the head does not wait for 100 Continue.
        if expects && inbox.is_empty() {
            inform(transport, timeouts, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        run_worker(upload, timeouts, transport, inbox, body, may_inform).await
    };
    received.await.unwrap_or_else(|reply| UploadOutcome::unread(reply, false))
}

/// Starts an upload; waits for a superseded connection to end, and shortly for any other upload of
/// the file.
async fn start(uploads: &Arc<Uploads>, command: UploadCommand) -> Result<UploadStart, Reply> {
    let began = Instant::now();
    if command.operation.takes_quota() && !uploads.partials.await_scan(&command.grant).await {
        return Err(refusal::not_scanned());
    }
    let disk = uploads.static_files.disk_of(command.path.names()).await;
    let disk = disk.map_err(|error| Reply::disk_error(&error))?;
    let command = Arc::new(command);
    loop {
        let (uploads, command, slots) = (Arc::clone(uploads), Arc::clone(&command), disk.clone());
        match disk.run(move || uploads.start(&command, &slots)).await {
            Ok(Ok(begun)) => return Ok(begun),
            Ok(Err(NotStarted::Refused(reply))) => return Err(reply),
            Ok(Err(why)) if began.elapsed() < longest_wait(&why) => sleep(START_RETRY_INTERVAL).await,
            Ok(Err(_)) => return Err(refusal::busy()),
            Err(error) => return Err(Reply::disk_error(&error)),
        }
    }
}

/// Returns for how long an upload that has not started is tried again.
fn longest_wait(why: &NotStarted) -> Duration {
    match why {
        NotStarted::Refused(_) => Duration::ZERO,
        NotStarted::Superseding => SUPERSEDED_TIMEOUT,
        NotStarted::Opening => OPENING_TIMEOUT,
        NotStarted::BetweenRanges => BETWEEN_RANGES_TIMEOUT,
        NotStarted::Busy => BUSY_TIMEOUT,
    }
}

/// Runs an upload on a thread of its own; over TLS, passes decrypted bytes to it.
async fn run_worker(
    upload: Inbound,
    timeouts: &Timeouts,
    transport: &mut ServerTransport,
    inbox: &mut Vec<u8>,
    body: RequestBody,
    may_inform: bool,
) -> Result<UploadOutcome, Reply> {
    let exhausted = |error: io::Error| refusal::exhausted(&error);
    let socket = transport.socket().try_clone_to_owned().map_err(exhausted)?;
    let (source, mut feed) = match transport {
        ServerTransport::Plain(stream) => (stream.as_fd().try_clone_to_owned().map_err(exhausted)?, None),
        ServerTransport::Tls(_) => {
            let (near, far) = UnixStream::pair().map_err(exhausted)?;
            (OwnedFd::from(near.into_std().map_err(exhausted)?), Some(TlsFeed::new(far, body, inbox.len())))
        }
    };
    let liveness = Arc::clone(upload.liveness());
    let _cancel = CancelOnDrop(liveness.cancel.clone());
    let body_received = Arc::new(AtomicBool::new(false));
    let connection = BodyConnection {
        body: BodyReader::new(source, std::mem::take(inbox), body),
        socket,
        timeouts: *timeouts,
        body_received: Arc::clone(&body_received),
    };
    let (done, mut ended) = oneshot::channel();
    let run = move || {
        // Fails only where the connection's task has ended.
        let _ = done.send(upload.run(connection));
    };
    std::thread::Builder::new().name("upload".to_owned()).spawn(run).map_err(exhausted)?;
    let mut outcome = loop {
        let fed = async {
            match (&mut feed, &mut *transport) {
                (Some(feed), ServerTransport::Tls(stream)) => feed.run(stream).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = &mut ended => break outcome.map_err(|error| refusal::exhausted(&error))?,
            fed = fed => {
                // The end of the body or of the connection: no further bytes follow.
                tracing::trace!(?fed, "the body is fed");
                feed = None;
            }
            () = sleep(timeouts.processing) => {
                if body_received.load(Ordering::Relaxed) {
                    feed = None;
                }
                if may_inform && liveness.waits_for_disk() {
                    inform(transport, timeouts, b"HTTP/1.1 102 Processing\r\n\r\n").await?;
                }
            }
        }
    };
    *inbox = std::mem::take(&mut outcome.inbox);
    // Over TLS, bytes beyond the end of a chunked body may have been passed on, and are lost.
    outcome.body_read &= matches!(transport, ServerTransport::Plain(_)) || body != RequestBody::Chunked;
    Ok(outcome)
}

/// Passes decrypted bytes of a TLS connection to the upload's thread.
struct TlsFeed {
    far: UnixStream,
    chunk: Vec<u8>,
    /// The part of `chunk` that is not yet passed on.
    pending: Range<usize>,
    /// Bytes of the body not yet received, at most.
    left: u64,
}

impl TlsFeed {
    /// Starts with a body of which `ahead` bytes came with the head.
    fn new(far: UnixStream, body: RequestBody, ahead: usize) -> Self {
        let left = match body {
            RequestBody::None => 0,
            RequestBody::Length(length) => length.get().saturating_sub(ahead as u64),
            RequestBody::Chunked => u64::MAX,
        };
        Self { far, chunk: vec![0; TLS_CHUNK.as_usize()], pending: 0..0, left }
    }

    /// Passes decrypted bytes on until the body ends; cancel-safe.
    async fn run(&mut self, stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
        loop {
            while !self.pending.is_empty() {
                self.pending.start += self.far.write(&self.chunk[self.pending.clone()]).await?;
            }
            if self.left == 0 {
                return Ok(());
            }
            let most = self.chunk.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match stream.read(&mut self.chunk[..most]).await? {
                0 => return Ok(()),
                length => {
                    self.left -= length as u64;
                    self.pending = 0..length;
                }
            }
        }
    }
}

/// Sends an interim response (RFC 9110, section 15.2).
async fn inform(transport: &mut ServerTransport, timeouts: &Timeouts, text: &[u8]) -> Result<(), Reply> {
    let mut outgoing = Outgoing::new([Piece::Text(text.to_vec())]);
    let sent = transport.send(&mut outgoing, timeouts, (&AtomicU64::new(0), None)).await;
    // The reply cannot be sent either.
    sent.map_err(|error| Reply::text(400, &format!("the connection failed: {error}")))
}

/// Cancels an upload when its connection's task is dropped, such as at the end of the server.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
