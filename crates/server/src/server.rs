//! The server as a whole: started, running, finishing, ended.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::accept::{Shared, accept};
use crate::census::Census;
use crate::initial_window::InitialWindows;
use crate::listen::listen;
use crate::pace::PacePolicy;
use crate::root::Root;
use crate::routes::Served;
use crate::site::Site;
use crate::telemetry::{Sampler, Telemetry};
use crate::upload::{Uploads, abandoned};
use crate::{Config, Limits, Metrics, ServeError, tls};
use longhaul_engine::pacing::Congestion;

/// How many connections an address that serves nothing but metrics has at once.
const METRICS_CONNECTIONS: usize = 16;

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
    served: Served,
    /// Where nothing but metrics is served.
    metrics: Option<(TcpListener, SocketAddr)>,
    telemetry: Option<Telemetry>,
    site: Arc<Site>,
    uploads: Option<Arc<Uploads>>,
    tls: Option<TlsAcceptor>,
    limits: Arc<Limits>,
    pace: Pace,
    congestion: Option<String>,
    initial_window: InitialWindow,
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
    pub fn bind(mut config: Config) -> Result<Self, ServeError> {
        if let Some(name) = &config.congestion {
            Congestion::check(name).map_err(|source| ServeError::congestion(name, source))?;
        }
        let congestion = Congestion::plan(config.congestion.as_deref(), config.pace);
        config.congestion = congestion.at_first;
        let root = Root::open(&config.root)?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &address in &config.listen {
            let listener = listen(address, &config)?;
            addresses.push(listener.local_addr().map_err(|source| ServeError::Listen { address, source })?);
            listeners.push(listener);
        }
        let metrics = match config.metrics {
            Metrics::At(address) => Some(listen_for_metrics(address, &config)?),
            Metrics::Off | Metrics::WithFiles => None,
        };
        let mut limits = config.limits;
        if let Pace::Rate(pace) = config.pace {
            // Whoever takes all that the pace allows is not slow.
            limits.slowest = limits.slowest.min(Rate::bits_per_sec(pace.as_bits_per_sec() / 2));
        }
        let pages = Arc::new(Semaphore::new(limits.pages));
        let site = Site { root, hidden: config.hidden, listing: limits.listing, pages };
        let app_buffer = config.app_buffer;
        let uploads = config.writable.map(|token| Arc::new(Uploads::new(token, app_buffer, &limits)));
        Ok(Self {
            listeners,
            addresses,
            served: if config.metrics == Metrics::WithFiles {
                Served::FilesAndMetrics
            } else {
                Served::Files
            },
            metrics,
            telemetry: None,
            site: Arc::new(site),
            uploads,
            tls,
            limits: Arc::new(limits),
            pace: config.pace,
            congestion: congestion.later,
            initial_window: config.initial_window,
            phase: watch::Sender::new(Phase::Running),
        })
    }

    /// Returns the addresses listened on, with the ports that the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address where nothing but metrics is served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// Tells an observer what happens from the start of [`Server::run`] on.
    ///
    /// It comes after [`Server::bind`], so that no record is begun, nor an older one replaced, for a
    /// server that cannot start.
    pub fn observe(&mut self, telemetry: Telemetry) {
        self.telemetry = Some(telemetry);
    }

    /// Returns what stops this server.
    pub fn stopper(&self) -> Stopper {
        Stopper { phase: self.phase.clone() }
    }

    /// Answers until told to stop; must run on a Tokio runtime with I/O and time enabled.
    pub async fn run(self) -> Result<Ended, ServeError> {
        let watched = self.served == Served::FilesAndMetrics || self.metrics.is_some();
        let census = Arc::new(Census::new(self.telemetry, watched));
        let sampler = Sampler::start(&census);
        // Dropped when the last connection has ended, or this itself is dropped.
        let (windows, teller) = InitialWindows::start(self.initial_window).unzip();
        let mut phase = self.phase.subscribe();
        if self.uploads.is_some() {
            abandoned::report(self.site.root.path());
        }
        let files = Shared {
            served: self.served,
            census,
            site: self.site,
            uploads: self.uploads,
            slots: Arc::new(Semaphore::new(self.limits.connections)),
            limits: self.limits,
            pace: PacePolicy::new(self.pace, self.congestion.as_deref(), teller),
            tls: self.tls,
            waiting: Arc::default(),
            cut: Arc::default(),
            phase: phase.clone(),
        };
        let metrics = metrics_only(&files);
        for (listener, &address) in self.listeners.into_iter().zip(&self.addresses) {
            let failed = |source| ServeError::Listen { address, source };
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            tokio::spawn(accept(listener, files.clone()));
        }
        if let Some((listener, address)) = self.metrics {
            let failed = |source| ServeError::Metrics { address, source };
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            tokio::spawn(accept(listener, metrics.clone()));
        }
        // `self.phase` lives until this returns, so waiting for it cannot fail.
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
        let empty = async || {
            files.empty().await;
            metrics.empty().await;
        };
        tokio::select! {
            () = empty() => {}
            () = tokio::time::sleep(files.limits.grace) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Ended) => {}
        }
        self.phase.send_replace(Phase::Ended);
        // Lets every task see the end and drop its connection before the runtime goes.
        empty().await;
        drop(windows);
        // What has come is made durable, so that uploads can go on.
        if let Some(uploads) = &files.uploads {
            uploads.empty(&files.limits).await;
        }
        if let Some(sampler) = sampler {
            sampler.end();
        }
        Ok(Ended { cut: files.cut.load(Ordering::Relaxed) })
    }
}

/// Opens the listening socket for metrics; gives its address too, with the port that the kernel chose.
fn listen_for_metrics(address: SocketAddr, config: &Config) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Metrics { address, source };
    let listener = listen(address, config).map_err(|error| match error {
        ServeError::Listen { source, .. } => failed(source),
        other => other,
    })?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Makes what connections that only ask for metrics share: a few places of their own, so that files never take them.
fn metrics_only(files: &Shared) -> Shared {
    let limits = Limits { connections: METRICS_CONNECTIONS, ..(*files.limits).clone() };
    Shared {
        served: Served::Metrics,
        slots: Arc::new(Semaphore::new(limits.connections)),
        limits: Arc::new(limits),
        tls: None,
        uploads: None,
        waiting: Arc::default(),
        ..files.clone()
    }
}
