//! Accepts connections and runs each in a task of its own.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::connection_limit::ConnectionSlot;
use crate::context::ServerContext;
use crate::continuation::Continuation;
use crate::http_connection::HttpConnection;
use crate::reply_pacing::PacedConnection;
use crate::routes::Served;
use crate::server_phase::ServerPhase;
use crate::transport::ServerTransport;

/// Pause after accept(2) failed for lack of descriptors or memory: another connection must close first.
const RESOURCE_RETRY: Duration = Duration::from_millis(200);

/// The interval at which a finishing server looks whether uploads are in progress.
const UPLOADS_CHECK: Duration = Duration::from_millis(100);

/// Connections that are answered 503 at once; each has a descriptor. Further ones are closed without an answer.
pub(crate) const REFUSALS: usize = 16;

/// How long a connection that gets no slot may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to a connection that gets no slot.
const NO_SLOT: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 68\r\nConnection: close\r\n\r\n503 Service Unavailable: too many connections from here; try again.\n";

/// Accepts connections until the server finishes.
///
/// At the limit of connections some more are accepted and wait for a slot; further ones are answered 503 and closed, so that no client
/// can fill the kernel's backlog.
pub(crate) async fn accept(listener: TcpListener, context: ServerContext) {
    let mut phase = context.phase.clone();
    let mut exhausted = false;
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = finished(&mut phase, &context) => return,
        };
        match next {
            Ok((stream, peer)) => {
                exhausted = false;
                match context.connection_limit.arrive(peer.ip()) {
                    Some(slot) => {
                        tokio::spawn(run_connection(stream, peer, context.clone(), slot));
                    }
                    None => {
                        tracing::debug!(%peer, "refused: its client has as many connections as it may");
                        if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                            tokio::spawn(refuse(permit, stream, context.tls.is_some()));
                        }
                    }
                }
            }
            Err(error) if is_resource_exhaustion(&error) => {
                if std::mem::replace(&mut exhausted, true) {
                    tracing::debug!(%error, "still no connection can be accepted");
                } else {
                    tracing::warn!(%error, "no connection can be accepted; raise the limit of open files (ulimit -n)");
                }
                tokio::time::sleep(RESOURCE_RETRY).await;
            }
            // Errors of the accepted connection itself: accept(2) says to retry.
            Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

/// Waits until the server finishes and no upload is in progress, which may need further connections.
async fn finished(phase: &mut watch::Receiver<ServerPhase>, context: &ServerContext) {
    let _ = phase.wait_for(|phase| *phase != ServerPhase::Running).await;
    let in_progress = || context.uploads.as_ref().is_some_and(|uploads| uploads.active.usage().uploads > 0);
    while in_progress() && *phase.borrow() < ServerPhase::Ended {
        tokio::time::sleep(UPLOADS_CHECK).await;
    }
}

/// Answers 503 to a connection that gets no slot; one that expects TLS is closed.
///
/// The permit is dropped last, once the descriptor is closed.
async fn refuse(_permit: OwnedSemaphorePermit, mut stream: TcpStream, encrypted: bool) {
    if encrypted {
        return;
    }
    let refusal = async {
        stream.write_all(NO_SLOT).await?;
        stream.shutdown().await?;
        // Closing a socket with unread bytes would reset the connection before the peer has read the answer.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // Fails where the peer has closed the connection, which needs no answer then.
    let _ = timeout(REFUSAL_TIMEOUT, refusal).await;
}

fn is_resource_exhaustion(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Runs one connection until it closes or the server ends.
async fn run_connection(stream: TcpStream, peer: SocketAddr, context: ServerContext, slot: ConnectionSlot) {
    let (mut phase, cut, slot) = (context.phase.clone(), Arc::clone(&context.cut), Arc::new(slot));
    let admitted = tokio::select! {
        biased;
        admitted = timeout(context.limits.idle, slot.admitted()) => admitted.is_ok(),
        _ = phase.wait_for(|phase| *phase != ServerPhase::Running) => false,
    };
    if !admitted {
        // Before another connection gets the slot and a descriptor.
        drop(stream);
        return;
    }
    tokio::select! {
        biased;
        () = serve(stream, peer, context, Arc::clone(&slot)) => {}
        _ = phase.wait_for(|phase| *phase >= ServerPhase::Ended) => {
            cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, context: ServerContext, slot: Arc<ConnectionSlot>) {
    let window_pacing = context.pace.pace_initial_window(&stream);
    // Without a duplicate descriptor the delivery cannot be observed, and the pace remains.
    let watched =
        window_pacing.clone().and_then(|pacing| Some((pacing, stream.as_fd().try_clone_to_owned().ok()?)));
    // Connections to an address of its own for metrics do not count in the metrics.
    let entry = (context.served != Served::Metrics).then(|| context.stats.open(peer, &stream));
    let transport = match &context.tls {
        None => ServerTransport::Plain(Arc::new(stream)),
        Some(tls) => {
            let handshake = timeout(context.limits.head, tls.accept(stream));
            let handshake = tokio::select! {
                handshake = handshake => handshake,
                () = slot.evicted() => {
                    return tracing::debug!(%peer, "the TLS handshake made room for another connection");
                }
            };
            match handshake {
                Ok(Ok(stream)) => ServerTransport::Tls(Box::new(stream)),
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
                Err(_) => return tracing::debug!(%peer, "the TLS handshake took too long"),
            }
        }
    };
    let paced = PacedConnection::after_initial_window(window_pacing);
    let is_late = *context.phase.borrow() != ServerPhase::Running;
    let connection = HttpConnection {
        transport,
        peer,
        context,
        entry,
        paced,
        inbox: Vec::new(),
        slot,
        sending: None,
        continuation: if is_late { Continuation::AnyUpload } else { Continuation::Nothing },
        is_late,
    }
    .run();
    match watched {
        None => connection.await,
        Some((pacing, socket)) => tokio::select! {
            () = connection => {}
            () = pacing.end_when_delivered(socket) => {}
        },
    }
}
