//! From a listening socket to sessions, never more than the limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::Limits;
use crate::routes::Site;
use crate::server::Phase;
use crate::session::Session;
use crate::transport::Transport;

/// How long to wait where the process or the host has no descriptor left: one must be closed first.
const STARVED: Duration = Duration::from_millis(200);

/// What every connection shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) site: Arc<Site>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) slots: Arc<Semaphore>,
    /// Connections that the server's end has cut.
    pub(crate) cut: Arc<AtomicUsize>,
    pub(crate) phase: watch::Receiver<Phase>,
}

/// Accepts connections until the server is told to finish.
///
/// A slot is taken before a connection is: at the limit, further ones wait in the kernel's queue.
pub(crate) async fn accept(listener: TcpListener, shared: Shared) {
    let mut phase = shared.phase.clone();
    let mut starved = false;
    loop {
        let next = async {
            // The semaphore is never closed.
            let slot = Arc::clone(&shared.slots).acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        let next = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase != Phase::Running) => return,
        };
        match next {
            None => return,
            Some((slot, Ok((stream, peer)))) => {
                starved = false;
                tokio::spawn(connection(stream, peer, shared.clone(), slot));
            }
            Some((_, Err(error))) if is_starvation(&error) => {
                if !std::mem::replace(&mut starved, true) {
                    tracing::warn!(%error, "no connection can be accepted; raise the limit of open files (ulimit -n)");
                }
                tokio::time::sleep(STARVED).await;
            }
            // The peer gave up before it was accepted: accept(2) says to try again.
            Some((_, Err(error))) => tracing::debug!(%error, "a connection was lost before it was accepted"),
        }
    }
}

fn is_starvation(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Runs one connection, unless the server ends first; `slot` is free again afterwards.
async fn connection(stream: TcpStream, peer: SocketAddr, shared: Shared, slot: OwnedSemaphorePermit) {
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
    let Shared { site, limits, tls, phase, .. } = shared;
    let transport = match tls {
        None => Transport::Plain(Arc::new(stream)),
        Some(tls) => match tokio::time::timeout(limits.head, tls.accept(stream)).await {
            Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "the TLS handshake failed"),
            Err(_) => return tracing::debug!(%peer, "the TLS handshake took too long"),
        },
    };
    Session { transport, peer, site, limits, phase, inbox: Vec::new() }.run().await;
}
