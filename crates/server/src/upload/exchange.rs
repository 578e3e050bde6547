//! A request to write, from its head to its answer: the connection's side of an upload.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::proto::http::{RequestBody, RequestHead};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::send::{Outgoing, Piece};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_rustls::server::TlsStream;

use super::begin::{Begun, Unready};
use super::body::Body;
use super::receive::{Connection, Outcome, Upload};
use super::{Uploads, refusal};
use crate::accept::Shared;
use crate::reply::Reply;
use crate::transport::{ReplyError, Transport};

/// What came of a request to write.
pub(crate) struct Received {
    pub(crate) reply: Reply,
    /// Bytes of the body that were taken.
    pub(crate) bytes: Bytes,
    /// Whether nothing of the request is left to come.
    pub(crate) body_read: bool,
}

/// How much of a TLS connection is decrypted at once.
const TLS_CHUNK: usize = 64 << 10;

/// How long an upload may take to end that was told to: a sync of what it has received.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How soon it shows that the client of an upload is gone.
const GONE_WITHIN: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Takes what a client sends; `inbox` holds what has come of it with the head.
pub(crate) async fn exchange(
    uploads: &Arc<Uploads>,
    shared: &Shared,
    transport: &mut Transport,
    inbox: &mut Vec<u8>,
    request: RequestHead,
) -> Received {
    let body = request.body();
    let expects = request.is_http_1_1()
        && body != RequestBody::None
        && request.header("expect").is_some_and(|value| value.trim().eq_ignore_ascii_case("100-continue"));
    let may_inform = request.is_http_1_1();
    let upload = match begin(uploads, shared, request).await {
        Ok(Begun::Ready(upload)) => upload,
        Ok(Begun::Answered(reply)) | Err(reply) => {
            return Received { reply, bytes: Bytes::ZERO, body_read: body == RequestBody::None };
        }
    };
    let received = async {
        // What comes with the head comes without being asked for: it is not waited for.
        if expects && inbox.is_empty() {
            inform(transport, shared, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        receive(upload, shared, transport, inbox, body, may_inform).await
    };
    received.await.unwrap_or_else(|failure| Received {
        reply: failure.reply(),
        bytes: Bytes::ZERO,
        body_read: false,
    })
}

/// Begins; waits for an older connection of the same upload that is ending, and a moment for any other.
async fn begin(uploads: &Arc<Uploads>, shared: &Shared, request: RequestHead) -> Result<Begun, Reply> {
    let (until, soon) = (Instant::now() + ENDS_WITHIN, Instant::now() + GONE_WITHIN);
    let request = Arc::new(request);
    loop {
        let (uploads, request) = (Arc::clone(uploads), Arc::clone(&request));
        let (site, receiving) = (Arc::clone(&shared.site), Arc::clone(shared.census.receiving()));
        match spawn_blocking(move || uploads.begin(&site, &receiving, &request)).await {
            Ok(Ok(begun)) => return Ok(begun),
            Ok(Err(Unready::Refused(reply))) => return Err(reply),
            Ok(Err(Unready::Ending)) if Instant::now() < until => sleep(LOOK_AGAIN).await,
            Ok(Err(Unready::Busy)) if Instant::now() < soon => sleep(LOOK_AGAIN).await,
            Ok(Err(Unready::Ending | Unready::Busy)) => return Err(refusal::busy()),
            Err(error) => return Err(refusal::exhausted(&error)),
        }
    }
}

/// Runs an upload on its thread, and feeds it where the connection is encrypted.
async fn receive(
    upload: Box<Upload>,
    shared: &Shared,
    transport: &mut Transport,
    inbox: &mut Vec<u8>,
    body: RequestBody,
    may_inform: bool,
) -> Result<Received, Failure> {
    let socket = transport.socket().try_clone_to_owned()?;
    let (source, mut feed) = match transport {
        Transport::Plain(stream) => (stream.as_fd().try_clone_to_owned()?, None),
        Transport::Tls(_) => {
            let (near, far) = UnixStream::pair()?;
            (OwnedFd::from(near.into_std()?), Some(Feed::new(far, body, inbox.len())))
        }
    };
    let life = Arc::clone(&upload.life);
    let _cancel = CancelOnDrop(life.cancel.clone());
    let whole = Arc::new(AtomicBool::new(false));
    let connection = Connection {
        body: Body::new(source, std::mem::take(inbox), body),
        socket,
        limits: Arc::clone(&shared.limits),
        whole: Arc::clone(&whole),
    };
    let (done, mut outcome) = oneshot::channel();
    let run = move || {
        // Unheard only where the connection has gone.
        let _ = done.send(upload.run(connection));
    };
    std::thread::Builder::new().name("upload".to_owned()).spawn(run)?;
    let outcome = loop {
        let fed = async {
            match (&mut feed, &mut *transport) {
                (Some(feed), Transport::Tls(stream)) => feed.run(stream).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            outcome = &mut outcome => break outcome.map_err(io::Error::other)?,
            fed = fed => {
                // The body's end, or the connection's: either way nothing more comes.
                tracing::trace!(?fed, "the body is fed");
                feed = None;
            }
            () = sleep(shared.limits.processing) => {
                if whole.load(Ordering::Relaxed) {
                    feed = None;
                }
                if may_inform && life.is_the_disks() {
                    inform(transport, shared, b"HTTP/1.1 102 Processing\r\n\r\n").await?;
                }
            }
        }
    };
    let Outcome { reply, received: bytes, body_read, inbox: rest } = outcome;
    *inbox = rest;
    // How much was decrypted beyond the end of chunked coding is not known.
    let exact = matches!(transport, Transport::Plain(_)) || body != RequestBody::Chunked;
    Ok(Received { reply, bytes, body_read: body_read && exact })
}

/// What a TLS connection brings, on its way to the thread that writes it.
struct Feed {
    far: UnixStream,
    chunk: Vec<u8>,
    /// What of the chunk is still to be passed on.
    held: Range<usize>,
    /// How much of the body is still to come, at most.
    left: u64,
}

impl Feed {
    /// Feeds a body of which `ahead` has come with the head.
    fn new(far: UnixStream, body: RequestBody, ahead: usize) -> Self {
        let left = match body {
            RequestBody::None => 0,
            RequestBody::Length(length) => length.get().saturating_sub(ahead as u64),
            RequestBody::Chunked => u64::MAX,
        };
        Self { far, chunk: vec![0; TLS_CHUNK], held: 0..0, left }
    }

    /// Passes decrypted bytes on; can be given up at any await, and gone on with.
    async fn run(&mut self, stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
        loop {
            while !self.held.is_empty() {
                self.held.start += self.far.write(&self.chunk[self.held.clone()]).await?;
            }
            if self.left == 0 {
                return Ok(());
            }
            let most = self.chunk.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match stream.read(&mut self.chunk[..most]).await? {
                0 => return Ok(()),
                length => {
                    self.left -= length as u64;
                    self.held = 0..length;
                }
            }
        }
    }
}

/// Why an upload that was begun is not received.
enum Failure {
    /// Its connection: nobody hears the answer.
    Gone(ReplyError),
    /// The server has no descriptor or thread for it.
    Exhausted(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Exhausted(error)
    }
}

impl Failure {
    fn reply(&self) -> Reply {
        match self {
            Self::Gone(error) => Reply::text(400, &format!("the connection failed: {error}")),
            Self::Exhausted(error) => refusal::exhausted(error),
        }
    }
}

/// Sends an interim response (RFC 9110, section 15.2).
async fn inform(transport: &mut Transport, shared: &Shared, text: &[u8]) -> Result<(), Failure> {
    let mut outgoing = Outgoing::new([Piece::Text(text.to_vec())]);
    transport.send(&mut outgoing, &shared.limits).await.map_err(Failure::Gone)
}

/// Ends an upload whose connection has gone, as when the server ends.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
