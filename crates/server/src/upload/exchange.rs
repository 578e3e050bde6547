//! A request to write, from its head to its answer: the connection's side of an upload.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::proto::http::{RequestBody, RequestHead};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::send::{Outgoing, Piece};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio_rustls::server::TlsStream;

use super::begin::Begun;
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
    let (may_inform, receiving) = (request.is_http_1_1(), Arc::clone(shared.census.receiving()));
    let (site, uploads) = (Arc::clone(&shared.site), Arc::clone(uploads));
    let begun = spawn_blocking(move || uploads.begin(&site, &receiving, &request)).await;
    let upload = match begun {
        Ok(Ok(Begun::Ready(upload))) => upload,
        Ok(Ok(Begun::Answered(reply)) | Err(reply)) => {
            return Received { reply, bytes: Bytes::ZERO, body_read: body == RequestBody::None };
        }
        Err(error) => return failed(&error),
    };
    let received = async {
        // What comes with the head comes without being asked for: it is not waited for.
        if expects && inbox.is_empty() {
            inform(transport, shared, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        receive(upload, shared, transport, inbox, body, may_inform).await
    };
    received.await.unwrap_or_else(|error: ReplyError| failed(&error))
}

/// Runs an upload on its thread, and feeds it where the connection is encrypted.
async fn receive(
    upload: Box<Upload>,
    shared: &Shared,
    transport: &mut Transport,
    inbox: &mut Vec<u8>,
    body: RequestBody,
    may_inform: bool,
) -> Result<Received, ReplyError> {
    let socket = transport.socket().try_clone_to_owned()?;
    let (source, mut feed) = match transport {
        Transport::Plain(stream) => (stream.as_fd().try_clone_to_owned()?, None),
        Transport::Tls(_) => {
            let (near, far) = UnixStream::pair()?;
            (OwnedFd::from(near.into_std()?), Some(far))
        }
    };
    // Of the body; the head's neighbours have come already.
    let to_feed = match body {
        RequestBody::None => 0,
        RequestBody::Length(length) => length.get().saturating_sub(inbox.len() as u64),
        RequestBody::Chunked => u64::MAX,
    };
    let _cancel = CancelOnDrop(upload.life.cancel.clone());
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
        let ended = match (&mut feed, &mut *transport) {
            (Some(far), Transport::Tls(stream)) => tokio::select! {
                outcome = &mut outcome => Some(outcome),
                fed = pump(stream, far, to_feed) => {
                    // The body's end, or the connection's: either way nothing more comes.
                    tracing::trace!(?fed, "the body is fed");
                    feed = None;
                    None
                }
            },
            _ => tokio::select! {
                outcome = &mut outcome => Some(outcome),
                () = tokio::time::sleep(shared.limits.processing) => None,
            },
        };
        match ended {
            Some(Ok(outcome)) => break outcome,
            Some(Err(error)) => return Ok(failed(&error)),
            None if may_inform && whole.load(Ordering::Relaxed) => {
                inform(transport, shared, b"HTTP/1.1 102 Processing\r\n\r\n").await?;
            }
            None => {}
        }
    };
    let Outcome { reply, received: bytes, body_read, inbox: rest } = outcome;
    *inbox = rest;
    // How much was decrypted beyond the end of chunked coding is not known.
    let exact = matches!(transport, Transport::Plain(_)) || body != RequestBody::Chunked;
    Ok(Received { reply, bytes, body_read: body_read && exact })
}

/// Passes decrypted bytes on, `left` at most; returns how many.
async fn pump(stream: &mut TlsStream<TcpStream>, far: &mut UnixStream, mut left: u64) -> io::Result<u64> {
    let (mut chunk, mut passed) = (vec![0; TLS_CHUNK], 0);
    while left > 0 {
        let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let length = stream.read(&mut chunk[..most]).await?;
        if length == 0 {
            break;
        }
        far.write_all(&chunk[..length]).await?;
        left -= length as u64;
        passed += length as u64;
    }
    Ok(passed)
}

/// Sends an interim response (RFC 9110, section 15.2).
async fn inform(transport: &mut Transport, shared: &Shared, text: &[u8]) -> Result<(), ReplyError> {
    let mut outgoing = Outgoing::new([Piece::Text(text.to_vec())]);
    transport.send(&mut outgoing, &shared.limits).await
}

fn failed(error: &dyn std::fmt::Display) -> Received {
    Received { reply: refusal::crowded(error), bytes: Bytes::ZERO, body_read: false }
}

/// Ends an upload whose connection has gone, as when the server ends.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
