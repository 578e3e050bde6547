//! Accepts connections and runs each in a task of its own.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::context::{ServerContext, ServerPhase};
use crate::http_connection::HttpConnection;
use crate::reply_pacing::PacedConnection;
use crate::routes::Served;
use crate::transport::ServerTransport;

/// Pause after accept(2) failed for lack of descriptors or memory: another connection must close first.
const RESOURCE_RETRY: Duration = Duration::from_millis(200);

/// Accepts connections until the server finishes.
///
/// At the limit of connections one more is accepted and waits for its slot; further ones stay in the
/// kernel's backlog.
pub(crate) async fn accept(listener: TcpListener, context: ServerContext) {
    let mut phase = context.phase.clone();
    let mut exhausted = false;
    loop {
        let next = async {
            let (stream, peer) = listener.accept().await?;
            Ok::<_, std::io::Error>((stream, peer, context.connection_limit.acquire().await))
        };
        let next = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase != ServerPhase::Running) => return,
        };
        match next {
            Ok((stream, peer, slot)) => {
                exhausted = false;
                tokio::spawn(run_connection(stream, peer, context.clone(), slot));
            }
            Err(error) if is_resource_exhaustion(&error) => {
                if !std::mem::replace(&mut exhausted, true) {
                    tracing::warn!(%error, "no connection can be accepted; raise the limit of open files (ulimit -n)");
                }
                tokio::time::sleep(RESOURCE_RETRY).await;
            }
            // Errors of the accepted connection itself: accept(2) says to retry.
            Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

fn is_resource_exhaustion(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Runs one connection until it closes or the server ends, then frees `slot`.
async fn run_connection(
    stream: TcpStream,
    peer: SocketAddr,
    context: ServerContext,
    slot: Option<OwnedSemaphorePermit>,
) {
    let (mut phase, cut) = (context.phase.clone(), Arc::clone(&context.cut));
    tokio::select! {
        biased;
        () = serve(stream, peer, context) => {}
        _ = phase.wait_for(|phase| *phase == ServerPhase::Ended) => {
            cut.fetch_add(1, Ordering::Relaxed);
        }
    }
    drop(slot);
}

async fn serve(stream: TcpStream, peer: SocketAddr, context: ServerContext) {
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
            match context.connection_limit.while_idle(handshake).await {
                Some(Ok(Ok(stream))) => ServerTransport::Tls(Box::new(stream)),
                Some(Ok(Err(error))) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
                Some(Err(_)) => return tracing::debug!(%peer, "the TLS handshake took too long"),
                None => return tracing::debug!(%peer, "the TLS handshake made room for another connection"),
            }
        }
    };
    let paced = PacedConnection::after_initial_window(window_pacing);
    let connection = HttpConnection { transport, peer, context, entry, paced, inbox: Vec::new() }.run();
    match watched {
        None => connection.await,
        Some((pacing, socket)) => tokio::select! {
            () = connection => {}
            () = pacing.end_when_delivered(socket) => {}
        },
    }
}
