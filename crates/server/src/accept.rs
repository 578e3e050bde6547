//! From a listening socket to sessions, never more than the limit.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::Limits;
use crate::census::Census;
use crate::pace::{PacePolicy, PacedConnection};
use crate::routes::Served;
use crate::server::Phase;
use crate::session::Session;
use crate::site::Site;
use crate::transport::Transport;
use crate::upload::Uploads;
use crate::waiting::Waiting;

/// How long to wait where the process or the host has no descriptor left: one must be closed first.
const STARVED: Duration = Duration::from_millis(200);

/// How long to wait for the room that an idle connection was told to make, before the next is told.
const ROOM: Duration = Duration::from_millis(50);

/// What every connection to an address shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) served: Served,
    pub(crate) census: Arc<Census>,
    pub(crate) site: Arc<Site>,
    /// Where files are taken too.
    pub(crate) uploads: Option<Arc<Uploads>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) pace: PacePolicy,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) waiting: Arc<Waiting>,
    /// Connections that the server's end has cut.
    pub(crate) cut: Arc<AtomicUsize>,
    pub(crate) phase: watch::Receiver<Phase>,
}

impl Shared {
    /// Waits until no connection is left.
    pub(crate) async fn empty(&self) {
        let all = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.slots.acquire_many(all).await;
    }
}

/// Accepts connections until the server is told to finish.
///
/// At the limit one more is accepted, and further ones wait in the kernel's queue: connections that
/// wait for a request make room for it, the longest idle first. Replies under way never do.
pub(crate) async fn accept(listener: TcpListener, shared: Shared) {
    let mut phase = shared.phase.clone();
    let mut starved = false;
    loop {
        let next = async {
            let (stream, peer) = listener.accept().await?;
            Ok::<_, std::io::Error>((stream, peer, slot(&shared).await))
        };
        let next = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase != Phase::Running) => return,
        };
        match next {
            Ok((stream, peer, slot)) => {
                starved = false;
                tokio::spawn(connection(stream, peer, shared.clone(), slot));
            }
            Err(error) if is_starvation(&error) => {
                if !std::mem::replace(&mut starved, true) {
                    tracing::warn!(%error, "no connection can be accepted; raise the limit of open files (ulimit -n)");
                }
                tokio::time::sleep(STARVED).await;
            }
            // The peer gave up before it was accepted: accept(2) says to try again.
            Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

/// Takes a slot, making room where there is none.
async fn slot(shared: &Shared) -> Option<OwnedSemaphorePermit> {
    let mut slot = pin!(Arc::clone(&shared.slots).acquire_owned());
    loop {
        if shared.slots.available_permits() == 0 {
            shared.waiting.make_room();
        }
        if let Ok(slot) = timeout(ROOM, &mut slot).await {
            // The semaphore is never closed.
            return slot.ok();
        }
    }
}

fn is_starvation(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Runs one connection, unless the server ends first; `slot` is free again afterwards.
async fn connection(stream: TcpStream, peer: SocketAddr, shared: Shared, slot: Option<OwnedSemaphorePermit>) {
    let (mut phase, cut) = (shared.phase.clone(), Arc::clone(&shared.cut));
    tokio::select! {
        biased;
        () = serve(stream, peer, shared) => {}
        _ = phase.wait_for(|phase| *phase == Phase::Ended) => {
            cut.fetch_add(1, Ordering::Relaxed);
        }
    }
    drop(slot);
}

async fn serve(stream: TcpStream, peer: SocketAddr, shared: Shared) {
    let greeting = shared.pace.greet(&stream);
    // Without a descriptor of its own to look at, the pace stays.
    let lifted =
        greeting.clone().and_then(|greeting| Some((greeting, stream.as_fd().try_clone_to_owned().ok()?)));
    // A connection that only asks for metrics is no part of them.
    let seat = (shared.served != Served::Metrics).then(|| shared.census.enter(peer, &stream));
    let transport = match &shared.tls {
        None => Transport::Plain(Arc::new(stream)),
        Some(tls) => match shared.waiting.wait(timeout(shared.limits.head, tls.accept(stream))).await {
            Some(Ok(Ok(stream))) => Transport::Tls(Box::new(stream)),
            Some(Ok(Err(error))) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
            Some(Err(_)) => return tracing::debug!(%peer, "the TLS handshake took too long"),
            None => return tracing::debug!(%peer, "the TLS handshake made room for another connection"),
        },
    };
    let paced = PacedConnection::greeted(greeting);
    let session = Session { transport, peer, shared, seat, paced, inbox: Vec::new() }.run();
    match lifted {
        None => session.await,
        Some((greeting, socket)) => tokio::select! {
            () = session => {}
            () = greeting.lift(socket) => {}
        },
    }
}
