//! Accepts connections and runs each in a task of its own.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::units::Rate;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::admission::connection_slots::ConnectionSlot;
use crate::connection::http_connection::{DRAIN_LIMIT, HttpConnection};
use crate::connection::late_requests::LateRequests;
use crate::connection::routes::Served;
use crate::connection::transport::ServerTransport;
use crate::context::ServerContext;
use crate::pacing::reply_pacing::PacedConnection;
use crate::shutdown::ServerPhase;
use crate::tls::lacks_revocations;

/// Pause after accept(2) failed for lack of descriptors or memory: another connection must close
/// first.
const RESOURCE_RETRY: Duration = Duration::from_millis(200);

/// The interval at which a finishing server looks whether uploads are in progress.
const UPLOADS_CHECK: Duration = Duration::from_millis(100);

/// How long a connection that gets no slot may take to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to a connection that gets no slot, or has to make room.
const NO_SLOT: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 68\r\nConnection: close\r\n\r\n503 Service Unavailable: too many connections from here; try again.\n";

/// Accepts connections until the server finishes.
///
/// At the limit of connections some more are accepted and wait for a slot; further ones are
/// answered 503 and closed, so that no client can fill the kernel's backlog. Those that find no
/// place to wait for the client's acknowledgement are closed at once.
pub(crate) async fn accept(listener: TcpListener, context: ServerContext) {
    let mut phase = context.phase.clone();
    let mut exhausted = false;
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = finished(&mut phase, &context) => return,
        };
        match next {
            Ok((stream, peer)) => {
                exhausted = false;
                match context.connection_slots.arrive(peer.ip()) {
                    Some(slot) => {
                        tokio::spawn(run_connection(stream, peer, context.clone(), slot));
                    }
                    None => {
                        tracing::debug!(%peer, "refused: its client has as many connections as it may");
                        turn_away(stream, &context);
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

/// Waits until the server finishes and no upload is in progress, which may need further
/// connections.
async fn finished(phase: &mut watch::Receiver<ServerPhase>, context: &ServerContext) {
    let _ = phase.wait_for(|phase| *phase != ServerPhase::Running).await;
    let in_progress =
        || context.services.uploads.as_ref().is_some_and(|uploads| uploads.active.usage().uploads > 0);
    while in_progress() && *phase.borrow() < ServerPhase::Ended {
        tokio::time::sleep(UPLOADS_CHECK).await;
    }
}

/// Answers 503 to a new connection that gets no slot; one that expects TLS is closed.
fn turn_away(stream: TcpStream, context: &ServerContext) {
    if context.services.tls.is_some() {
        return;
    }
    let Ok(permit) = Arc::clone(&context.refusals).try_acquire_owned() else {
        return refuse_at_once(&stream);
    };
    let slowest = context.timeouts.slowest;
    tokio::spawn(async move {
        refuse(&mut ServerTransport::Plain(Arc::new(stream)), slowest).await;
        // After the descriptor is closed.
        drop(permit);
    });
}

/// Answers 503 to a connection that has to make room.
pub(crate) async fn make_room(transport: &mut ServerTransport, context: &ServerContext) {
    match (context.refusals.try_acquire(), &*transport) {
        (Ok(_permit), _) => refuse(transport, context.timeouts.slowest).await,
        (Err(_), ServerTransport::Plain(stream)) => refuse_at_once(stream),
        (Err(_), ServerTransport::Tls(_)) => {}
    }
}

/// Answers 503, and waits until the peer has read that.
async fn refuse(transport: &mut ServerTransport, slowest: Rate) {
    // Fails where the peer has closed the connection, which needs no answer then.
    if let Ok(Ok(())) = timeout(REFUSAL_TIMEOUT, transport.write_interim(NO_SLOT)).await {
        transport.close(REFUSAL_TIMEOUT, slowest, DRAIN_LIMIT).await;
    }
}

/// Answers 503 without waiting, where there is no place for that: the socket is to be closed at
/// once.
fn refuse_at_once(stream: &TcpStream) {
    // Not by way of the runtime, which may not know yet that the socket is writable.
    let _ = send(stream, NO_SLOT, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    // Unread bytes would reset the connection before the peer has read the answer.
    let _ = recv(stream, vec![0; 64 << 10].as_mut_slice(), RecvFlags::TRUNC | RecvFlags::DONTWAIT);
}

fn is_resource_exhaustion(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Runs one connection until it closes or the server ends.
async fn run_connection(stream: TcpStream, peer: SocketAddr, context: ServerContext, slot: ConnectionSlot) {
    let (mut phase, cut, slot) = (context.phase.clone(), Arc::clone(&context.cut), Arc::new(slot));
    let admitted = tokio::select! {
        biased;
        admitted = timeout(context.timeouts.head, slot.admitted()) => admitted.is_ok(),
        _ = phase.wait_for(|phase| *phase != ServerPhase::Running) => false,
    };
    if !admitted {
        match &context.services.tls {
            None => refuse(&mut ServerTransport::Plain(Arc::new(stream)), context.timeouts.slowest).await,
            Some(_) => drop(stream),
        }
        // After the descriptor is closed: another connection gets the place.
        drop(slot);
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
    let entry = (context.services.served != Served::Metrics).then(|| context.stats.open(peer, &stream));
    let transport = match &context.services.tls {
        None => ServerTransport::Plain(Arc::new(stream)),
        Some(tls) => {
            let Some(_share) = context.handshakes.take(&peer.ip().into()) else {
                return tracing::debug!(%peer, "its client has as many TLS handshakes in progress as it may");
            };
            let handshake = timeout(context.timeouts.head, tls.acceptor().accept(stream));
            let handshake = tokio::select! {
                handshake = handshake => handshake,
                () = slot.evicted() => {
                    return tracing::debug!(%peer, "the TLS handshake made room for another connection");
                }
            };
            match handshake {
                Ok(Ok(stream)) => ServerTransport::Tls(Box::new(stream)),
                Ok(Err(error)) if lacks_revocations(&error) => {
                    return tracing::warn!(
                        %peer,
                        %error,
                        "a client is refused: the list of revoked certificates (--client-crl) is out of date, or of other authorities"
                    );
                }
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
        is_answered: false,
        late: LateRequests::new(is_late),
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
