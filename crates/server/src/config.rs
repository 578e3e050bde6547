//! The configuration of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::sink::memory_budget::AppBuffer;

use crate::access::Tokens;

/// What to serve, where, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory whose files are served.
    pub root: PathBuf,
    /// The addresses to listen on; port 0 lets the kernel choose one.
    pub listen: Vec<SocketAddr>,
    /// The names by which clients may address the server, without ports; any where there are none.
    pub hosts: Vec<String>,
    /// Speaks HTTPS with these instead of plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The congestion control of every connection; the kernel's default where `None`.
    pub congestion: Option<String>,
    /// The pace of replies of 1 MiB and more; a client may request less with `Longhaul-Pace`, never more.
    pub pace: Pace,
    /// The initial window of connections to clients whose rate is known, set by host routes.
    pub initial_window: InitialWindow,
    /// Serves and lists names that start with a dot too; they are 404 otherwise.
    pub hidden: bool,
    /// Computes digests of served files where clients ask for them (`?metalink`).
    pub digests: bool,
    /// Accepts uploads; each needs one of the tokens.
    pub writable: bool,
    /// The tokens for uploads and measurements.
    pub tokens: Tokens,
    /// Reading needs one of the tokens too.
    pub require_token: bool,
    /// Takes credentials over plain HTTP from other hosts.
    pub allow_cleartext: bool,
    /// The application buffer of each upload.
    pub app_buffer: AppBuffer,
    /// Where `/metrics` is served.
    pub metrics: Metrics,
    /// Answers `longhaul probe` at `/.longhaul/measure`; not where `None`.
    pub measure: Option<MeasureConfig>,
    /// Limits of what clients may request, and how long they may take.
    pub limits: Limits,
}

/// How measurements are allowed; they need a token where the server has any.
#[derive(Debug, Clone, Default)]
pub struct MeasureConfig {
    /// The highest rate of all streams and UDP ports together; UDP sends 40 Gbit/s at most where `None`.
    pub ceiling: Option<Rate>,
}

/// Where `/metrics` is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metrics {
    /// Nowhere.
    #[default]
    Off,
    /// At a separate address, over plain HTTP, which serves nothing else.
    At(SocketAddr),
}

impl Config {
    /// Serves `root` at `listen` over plain HTTP, with every other setting at its default.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            root: root.into(),
            listen: vec![listen],
            hosts: Vec::new(),
            tls: None,
            congestion: None,
            pace: Pace::Auto,
            initial_window: InitialWindow::Off,
            hidden: false,
            digests: true,
            writable: false,
            tokens: Tokens::None,
            require_token: false,
            allow_cleartext: false,
            app_buffer: AppBuffer::Auto,
            metrics: Metrics::Off,
            measure: None,
            limits: Limits::default(),
        }
    }
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate, then its chain without the root certificate.
    pub cert: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// The authorities of client certificates (PEM), one of which must have signed that of each client; none is requested where
    /// `None`.
    pub client_ca: Option<PathBuf>,
    /// The lists of client certificates that those authorities have revoked (PEM); one of each authority where given.
    pub client_crl: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns all files, in an order that does not change.
    pub(crate) fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).chain(&self.client_crl)
    }
}

/// Limits of what clients may request, and how long they may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections open at once; a further one takes a slot of the client that holds the most: that of its longest idle
    /// connection, else of its slowest reply.
    pub connections: usize,
    /// Connections of one client (an IPv4 address, or an IPv6 /64) open at once; a further one evicts its longest idle one, or waits
    /// until one closes.
    pub per_client: usize,
    /// Connections that wait for a slot at once; half as many more are answered 503 for some time.
    pub waiting: usize,
    /// Timeout of a request's head, and of a TLS handshake, from the first byte to the last.
    pub head: Duration,
    /// Idle timeout: how long a connection may wait for a request without any progress.
    pub idle: Duration,
    /// Stall timeout: how long a reply may last without an acknowledged byte, or an upload without a received one.
    pub stall: Duration,
    /// The rate below which a peer counts as stalled, on average over at least three stall timeouts.
    ///
    /// Lowered to half of [`Config::pace`] where that is less.
    pub slowest: Rate,
    /// How long an operation on a file may take; a request that needs it is then answered 503, and a reply ends.
    pub disk: Duration,
    /// How long replies in progress may take once the server finishes.
    pub grace: Duration,
    /// The most entries on a directory's page.
    pub listing: usize,
    /// Uploads in progress on one file system at once, and no more than what is left of `uploads_in_all`; a token has half of what is
    /// left to the others. Further ones get 503 with Retry-After.
    pub uploads: usize,
    /// Uploads in progress on all file systems together.
    pub uploads_in_all: usize,
    /// Uploads beyond `uploads_in_all`, each the first one in progress on its file system.
    pub first_uploads: usize,
    /// The space of all unfinished uploads together, those of plain PUT included; an upload that exceeds it gets 507.
    pub upload_quota: Option<Bytes>,
    /// How long a paused upload is kept after its last byte.
    pub upload_expiry: Option<Duration>,
    /// The interval of 102 (Processing) while an upload's file is being written or verified.
    pub processing: Duration,
    /// Directory pages of one file system being made at once; further requests get 503 with Retry-After.
    pub pages: usize,
    /// Listings being made or sent that clients share; each may have one besides. One of 10 000 names takes about 2 MiB of memory.
    pub listings: usize,
}

impl Limits {
    /// Returns how many connections that get no slot may take some time to read why.
    pub(crate) fn refusals(&self) -> usize {
        self.waiting.div_ceil(2)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            per_client: 5_000,
            waiting: 32,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            slowest: Rate::bytes_per_sec(1_000),
            disk: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            listing: 1_000,
            uploads: 32,
            uploads_in_all: 256,
            first_uploads: 64,
            upload_quota: None,
            upload_expiry: None,
            processing: Duration::from_secs(5),
            pages: 32,
            listings: 256,
        }
    }
}
