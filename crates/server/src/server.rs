//! The server: binds its sockets, and runs until it is stopped.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;
use longhaul_sys::host;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::access::{Access, Tokens};
use crate::admission::connection_slots::ConnectionSlots;
use crate::admission::shares::Shares;
use crate::connection::accept::accept;
use crate::connection::routes::Served;
use crate::context::{ServerContext, Services};
use crate::error::{no_congestion, no_metrics, not_listening};
use crate::listen::listen;
use crate::measurement::Measurement;
use crate::pacing::initial_window_routes::InitialWindowRoutes;
use crate::pacing::reply_pacing::PacePolicy;
use crate::paths::beneath_root::Root;
use crate::paths::disks::Disks;
use crate::reply::piece_digests::PieceDigests;
use crate::reply::static_files::StaticFiles;
use crate::sandbox::Confinement;
use crate::shutdown::{Stopper, shut_down};
use crate::stats::connection_stats::ConnectionStats;
use crate::stats::telemetry::{Sampler, Telemetry};
use crate::tls::RenewedTls;
use crate::upload::Uploads;
use crate::{Config, ConnectionLimits, Limits, PacingConfig};
use longhaul_engine::pacing::CongestionPlan;

/// The limit of connections to a separate address for metrics.
pub(crate) const METRICS_CONNECTIONS: usize = 16;

/// TLS handshakes in progress that clients share; each may have one besides. One of RSA with 2048
/// bits takes about a millisecond of a processor.
const HANDSHAKES: usize = 256;

/// A server that listens; [`Server::run`] makes it answer.
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    /// The separate address for metrics.
    metrics: Option<(TcpListener, SocketAddr)>,
    telemetry: Option<Telemetry>,
    confinement: Confinement,
    services: Services,
    limits: Limits,
    pacing: PacingConfig,
    stopper: Stopper,
}

/// The outcome of a server's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOutcome {
    /// Connections that were cut when the grace was over or [`Stopper::end`] was called.
    pub cut: usize,
}

impl Server {
    /// Opens the directory, the certificate and the listening sockets.
    pub fn bind(mut config: Config) -> Result<Self, Failure> {
        if let Some(name) = &config.pacing.congestion {
            CongestionPlan::check(name).map_err(|error| no_congestion(name, &error))?;
        }
        let congestion = CongestionPlan::plan(config.pacing.congestion.as_deref(), config.pacing.pace);
        config.pacing.congestion = congestion.initial;
        let root = Arc::new(Root::open(&config.files.root)?);
        let access = Access::new(&config.access, config.measure.is_some())?;
        let tls = config.tls.as_ref().map(RenewedTls::read).transpose()?.map(Arc::new);
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &address in &config.listen {
            let listener = listen(address, &config.pacing, not_listening)?;
            addresses.push(listener.local_addr().map_err(|error| not_listening(address, &error))?);
            listeners.push(listener);
        }
        let metrics =
            config.metrics.map(|address| listen_for_metrics(address, &config.pacing)).transpose()?;
        let confinement = confinement(&config, congestion.paced.as_deref());
        let mut limits = config.limits;
        if let Pace::Rate(pace) = config.pacing.pace {
            // A peer that receives at the configured pace must not count as too slow.
            let slowest = &mut limits.timeouts.slowest;
            *slowest = (*slowest).min(Rate::bits_per_sec(pace.as_bits_per_sec() / 2));
        }
        let static_files = Arc::new(StaticFiles {
            root,
            hidden: config.files.hidden,
            untrusted: config.access.writable,
            max_entries: limits.listings.entries,
            listings: Shares::new(limits.listings.in_all, usize::MAX),
            piece_digests: config.files.digests.then(PieceDigests::default),
            disks: Disks::new(&config.files.root, &limits),
        });
        let stopper = Stopper::new();
        let measurement = config.measure.as_ref().map(|measure| Measurement::new(measure, stopper.phase()));
        let measurement = measurement.transpose().map_err(|error| {
            let message = format!("cannot set up measurements: {error}; serve without --measure");
            Failure::new(FailureKind::Host, message)
        })?;
        let uploads =
            config.access.writable.then(|| Arc::new(Uploads::new(Arc::clone(&static_files), &limits)));
        let services = Services { served: Served::Files, access, static_files, uploads, measurement, tls };
        Ok(Self {
            listeners,
            addresses,
            metrics,
            telemetry: None,
            confinement,
            services,
            limits,
            pacing: PacingConfig { congestion: congestion.paced, ..config.pacing },
            stopper,
        })
    }

    /// Returns the addresses that the server listens on, with ports chosen by the kernel where 0
    /// was configured.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the separate address for metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// Checks what depends on the process's user: whether the tokens' directories can be used. File
    /// systems that hang are warned of.
    ///
    /// Called between the change of the user and [`Server::run`], outside of a runtime.
    pub fn check(&self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| {
            let message =
                format!("cannot start the server's threads: {error}; raise ulimit -u and ulimit -n");
            Failure::new(FailureKind::Host, message)
        })?;
        let outcome = runtime.block_on(self.services.access.check_directories(&self.services.static_files));
        // Does not wait for threads blocked on a hung disk.
        runtime.shutdown_background();
        outcome
    }

    /// Sets the observer of [`Server::run`].
    ///
    /// Called after [`Server::bind`], so that a server that cannot start neither begins a record
    /// nor replaces one.
    pub fn observe(&mut self, telemetry: Telemetry) {
        self.telemetry = Some(telemetry);
    }

    /// Returns what the server's threads need from now on; applied by the caller before the runtime
    /// starts.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Returns a handle that stops this server.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until stopped; must run on a Tokio runtime with I/O and time enabled.
    pub async fn run(self) -> Result<ServerOutcome, Failure> {
        let serves_metrics = self.metrics.is_some();
        let services = Arc::new(self.services);
        let active_uploads =
            services.uploads.as_ref().map(|uploads| Arc::clone(&uploads.active)).unwrap_or_default();
        let stats = Arc::new(ConnectionStats::new(self.telemetry, serves_metrics, active_uploads));
        let sampler = Sampler::start(&stats);
        // Dropped, with all routes, when the last connection has closed or this future is dropped.
        let (window_routes, route_requests) = InitialWindowRoutes::start(self.pacing.initial_window).unzip();
        let mut background = follow(&services);
        let limits = self.limits;
        let files = ServerContext {
            services,
            stats,
            timeouts: limits.timeouts,
            pace: PacePolicy::new(self.pacing.pace, self.pacing.congestion.as_deref(), route_requests),
            handshakes: Shares::new(HANDSHAKES, usize::MAX),
            connection_slots: Arc::new(ConnectionSlots::new(limits.connections)),
            refusals: Arc::new(Semaphore::new(limits.connections.refusals())),
            cut: Arc::default(),
            phase: self.stopper.phase(),
        };
        let metrics = metrics_context(&files, limits.connections);
        let mut accepting = JoinSet::new();
        for (listener, &address) in self.listeners.into_iter().zip(&self.addresses) {
            let failed = |error| not_listening(address, &error);
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            accepting.spawn(accept(listener, files.clone()));
        }
        if let Some((listener, address)) = self.metrics {
            let failed = |error| no_metrics(address, &error);
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            accepting.spawn(accept(listener, metrics.clone()));
        }
        shut_down(&self.stopper, &files, &metrics, accepting).await;
        drop(window_routes);
        background.abort_all();
        if let Some(sampler) = sampler {
            sampler.end();
        }
        Ok(ServerOutcome { cut: files.cut.load(Ordering::Relaxed) })
    }
}

/// Starts the tasks that read again what changes while the server runs, and that delete expired
/// uploads.
fn follow(services: &Services) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let Services { access, static_files, uploads, tls, .. } = services;
    tls.iter().cloned().for_each(|tls| drop(tasks.spawn(tls.follow())));
    uploads.iter().cloned().for_each(|uploads| drop(tasks.spawn(uploads.follow_partials())));
    tasks.spawn(Arc::clone(&static_files.root).follow());
    let tokens = access.token_file().into_iter();
    tokens.for_each(|file| drop(tasks.spawn(file.follow(Arc::clone(static_files)))));
    tasks
}

/// Lists what a server of this configuration needs once it listens.
fn confinement(config: &Config, congestion: Option<&str>) -> Confinement {
    let tls = config.tls.iter().flat_map(|files| files.all().cloned());
    let tokens = match &config.access.tokens {
        Tokens::File(path) => Some(path.clone()),
        Tokens::None | Tokens::One(_) => None,
    };
    let (default, allowed) = (host::congestion_control(), host::allowed_congestion_controls());
    let changes_network = config.pacing.initial_window != InitialWindow::Off
        || sets_disallowed_control(congestion, default.as_deref(), config.pacing.pace, &allowed);
    Confinement::new(&config.files.root, config.access.writable, tls.chain(tokens).collect(), changes_network)
}

/// Returns whether a server sets a congestion control that only CAP_NET_ADMIN permits: the
/// `requested` one, or, after a restart of slow start, the `default` again. In a network namespace
/// `allowed` may lack the default.
///
/// The control that a restart passes through does not count: where it is not allowed, slow start is
/// not restarted.
fn sets_disallowed_control(
    requested: Option<&str>,
    default: Option<&str>,
    pace: Pace,
    allowed: &[String],
) -> bool {
    let returns_to = default.filter(|_| !matches!(pace, Pace::Rate(_)));
    requested.or(returns_to).is_some_and(|name| !allowed.iter().any(|allowed| allowed == name))
}

/// Opens the listening socket for metrics; returns its address too, with a port chosen by the
/// kernel.
fn listen_for_metrics(
    address: SocketAddr,
    pacing: &PacingConfig,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let listener = listen(address, pacing, no_metrics)?;
    let address = listener.local_addr().map_err(|error| no_metrics(address, &error))?;
    Ok((listener, address))
}

/// Makes the context of the separate address for metrics: its own limit, so that connections for
/// files cannot use it up.
fn metrics_context(files: &ServerContext, limits: ConnectionLimits) -> ServerContext {
    let (open, per_client) = (METRICS_CONNECTIONS, METRICS_CONNECTIONS);
    let limits = ConnectionLimits { open, per_client, ..limits };
    ServerContext {
        services: Arc::new(files.services.of_metrics()),
        connection_slots: Arc::new(ConnectionSlots::new(limits)),
        refusals: Arc::new(Semaphore::new(limits.refusals())),
        ..files.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_rights_are_kept_for_a_control_that_is_not_allowed() {
        let allowed = ["reno".to_owned(), "bbr".to_owned()];
        let fixed = Pace::Rate(Rate::bits_per_sec(1_000_000_000));
        for (requested, default, pace, is_kept) in [
            (None, "bbr", Pace::Auto, false),
            (None, "cubic", Pace::Auto, true),
            (None, "cubic", fixed, false),
            (Some("bbr"), "cubic", Pace::Auto, false),
            (Some("cubic"), "bbr", fixed, true),
        ] {
            let kept = sets_disallowed_control(requested, Some(default), pace, &allowed);
            assert_eq!(kept, is_kept, "{requested:?}, {default}, {pace:?}");
        }
        assert!(!sets_disallowed_control(None, None, Pace::Auto, &allowed));
    }
}
