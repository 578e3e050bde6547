//! The server as a whole: started, running, finishing, ended.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::units::Rate;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::accept::{Shared, accept};
use crate::listen::listen;
use crate::root::Root;
use crate::site::Site;
use crate::waiting::Waiting;
use crate::{Config, Limits, ServeError, tls};

/// How far the server is in its life; it only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Connections are accepted.
    Running,
    /// Replies under way are finished; nothing new begins.
    Finishing,
    /// Connections end where they are.
    Ended,
}

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    site: Arc<Site>,
    tls: Option<TlsAcceptor>,
    limits: Arc<Limits>,
    phase: watch::Sender<Phase>,
}

/// Tells a running server to stop; clones tell the same one.
#[derive(Debug, Clone)]
pub struct Stopper {
    phase: watch::Sender<Phase>,
}

impl Stopper {
    /// Stops accepting, closes idle connections and lets replies under way finish within the grace.
    pub fn finish(&self) {
        self.raise(Phase::Finishing);
    }

    /// Ends every connection at once.
    pub fn end(&self) {
        self.raise(Phase::Ended);
    }

    fn raise(&self, to: Phase) {
        self.phase.send_if_modified(|phase| std::mem::replace(phase, to.max(*phase)) < to);
    }
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How many connections were cut because the grace was over or the server was told to end.
    pub cut: usize,
}

impl Server {
    /// Opens the directory, the certificate and the listening sockets.
    pub fn bind(config: Config) -> Result<Self, ServeError> {
        let root = Root::open(&config.root)?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &address in &config.listen {
            let listener = listen(address, &config)?;
            addresses.push(listener.local_addr().map_err(|source| ServeError::Listen { address, source })?);
            listeners.push(listener);
        }
        let mut limits = config.limits;
        if let Some(pace) = config.pace {
            // Whoever takes all that the pace allows is not slow.
            limits.slowest = limits.slowest.min(Rate::bits_per_sec(pace.as_bits_per_sec() / 2));
        }
        let pages = Arc::new(Semaphore::new(limits.pages));
        let site = Site { root, hidden: config.hidden, listing: limits.listing, pages };
        Ok(Self {
            listeners,
            addresses,
            site: Arc::new(site),
            tls,
            limits: Arc::new(limits),
            phase: watch::Sender::new(Phase::Running),
        })
    }

    /// Returns the addresses listened on, with the ports that the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns what stops this server.
    pub fn stopper(&self) -> Stopper {
        Stopper { phase: self.phase.clone() }
    }

    /// Answers until told to stop; must run on a Tokio runtime with I/O and time enabled.
    pub async fn run(self) -> Result<Ended, ServeError> {
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let waiting = Arc::new(Waiting::default());
        let mut phase = self.phase.subscribe();
        let cut = Arc::new(AtomicUsize::new(0));
        for (listener, &address) in self.listeners.into_iter().zip(&self.addresses) {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(|source| ServeError::Listen { address, source })?;
            let shared = Shared {
                site: Arc::clone(&self.site),
                limits: Arc::clone(&self.limits),
                tls: self.tls.clone(),
                slots: Arc::clone(&slots),
                waiting: Arc::clone(&waiting),
                cut: Arc::clone(&cut),
                phase: phase.clone(),
            };
            tokio::spawn(accept(listener, shared));
        }
        // `self.phase` lives until this returns, so waiting for it cannot fail.
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
        let all = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        tokio::select! {
            _ = slots.acquire_many(all) => {}
            () = tokio::time::sleep(self.limits.grace) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Ended) => {}
        }
        self.phase.send_replace(Phase::Ended);
        // Lets every task see the end and drop its connection before the runtime goes.
        let _ = slots.acquire_many(all).await;
        Ok(Ended { cut: cut.load(Ordering::Relaxed) })
    }
}
