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
    /// The files to serve.
    pub files: FilesConfig,
    /// The addresses to listen on; port 0 lets the kernel choose one.
    pub listen: Vec<SocketAddr>,
    /// Speaks HTTPS with these instead of plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Who may request what.
    pub access: AccessConfig,
    /// How fast replies are sent.
    pub pacing: PacingConfig,
    /// Serves `/metrics` at a separate address, over plain HTTP, which serves nothing else; nowhere
    /// where `None`.
    pub metrics: Option<SocketAddr>,
    /// Answers `longhaul probe` at `/.longhaul/measure`; not where `None`.
    pub measure: Option<MeasureConfig>,
    /// Limits of what clients may request, and how long they may take.
    pub limits: Limits,
}

/// Which files are served.
#[derive(Debug, Clone)]
pub struct FilesConfig {
    /// The directory whose files are served.
    pub root: PathBuf,
    /// Serves and lists names that start with a dot too; they are 404 otherwise.
    pub hidden: bool,
    /// Computes digests of served files where clients ask for them (`?metalink`).
    pub digests: bool,
}

/// Which requests are allowed.
#[derive(Debug, Clone, Default)]
pub struct AccessConfig {
    /// The names by which clients may address the server, without ports; any where there are none.
    pub hosts: Vec<String>,
    /// Accepts uploads; each needs one of the tokens.
    pub writable: bool,
    /// The tokens for uploads and measurements.
    pub tokens: Tokens,
    /// Reading needs one of the tokens too.
    pub require_token: bool,
    /// Takes credentials over plain HTTP from other hosts.
    pub allow_cleartext: bool,
}

/// How fast replies are sent.
#[derive(Debug, Clone, Default)]
pub struct PacingConfig {
    /// The congestion control of every connection; the kernel's default where `None`.
    pub congestion: Option<String>,
    /// The pace of replies of 1 MiB and more; a client may request less with `Longhaul-Pace`, never
    /// more.
    pub pace: Pace,
    /// The initial window of connections to clients whose rate is known, set by host routes.
    pub initial_window: InitialWindow,
}

/// How measurements are allowed; they need a token where the server has any.
#[derive(Debug, Clone, Default)]
pub struct MeasureConfig {
    /// The highest rate of all streams and UDP ports together; UDP sends 40 Gbit/s at most where
    /// `None`.
    pub ceiling: Option<Rate>,
}

impl Config {
    /// Serves `root` at `listen` over plain HTTP, with every other setting at its default.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            files: FilesConfig { root: root.into(), hidden: false, digests: true },
            listen: vec![listen],
            tls: None,
            access: AccessConfig::default(),
            pacing: PacingConfig::default(),
            metrics: None,
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
    /// The authorities of client certificates (PEM), one of which must have signed that of each
    /// client; none is requested where `None`.
    pub client_ca: Option<PathBuf>,
    /// The lists of client certificates that those authorities have revoked (PEM); one of each
    /// authority where given.
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
    /// Limits of connections.
    pub connections: ConnectionLimits,
    /// How long operations of clients and disks may take.
    pub timeouts: Timeouts,
    /// Limits of listings.
    pub listings: ListingLimits,
    /// Limits of uploads.
    pub uploads: UploadLimits,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: ConnectionLimits { open: 10_000, per_client: 5_000, waiting: 32 },
            timeouts: Timeouts {
                head: seconds(10),
                idle: seconds(60),
                stall: seconds(60),
                slowest: Rate::bytes_per_sec(1_000),
                disk: seconds(30),
                grace: seconds(30),
                processing: seconds(5),
            },
            listings: ListingLimits { entries: 1_000, per_disk: 32, in_all: 256 },
            uploads: UploadLimits {
                app_buffer: AppBuffer::Auto,
                per_disk: 32,
                in_all: 256,
                first: 64,
                quota: None,
                expiry: None,
            },
        }
    }
}

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections open at once; a further one takes a slot of the client that holds the most: that
    /// of its longest idle connection, else of its slowest reply.
    pub open: usize,
    /// Connections of one client (an IPv4 address, or an IPv6 /64) open at once; a further one
    /// evicts its longest idle one, or waits until one closes.
    pub per_client: usize,
    /// Connections that wait for a slot at once; half as many more are answered 503 for some time.
    pub waiting: usize,
}

impl ConnectionLimits {
    /// Returns how many connections that get no slot may take some time to read why.
    pub(crate) fn refusals(&self) -> usize {
        self.waiting.div_ceil(2)
    }
}

/// How long operations of clients and disks may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Timeout of a request's head, and of a TLS handshake, from the first byte to the last.
    pub head: Duration,
    /// Idle timeout: how long a connection may wait for a request without any progress.
    pub idle: Duration,
    /// Stall timeout: how long a reply may last without an acknowledged byte, or an upload without
    /// a received one.
    pub stall: Duration,
    /// The rate below which a peer counts as stalled, on average over at least three stall
    /// timeouts.
    ///
    /// Lowered to half of [`PacingConfig::pace`] where that is less.
    pub slowest: Rate,
    /// How long an operation on a file may take; a request that needs it is then answered 503, and
    /// a reply ends.
    pub disk: Duration,
    /// How long replies in progress may take once the server finishes.
    pub grace: Duration,
    /// The interval of 102 (Processing) while an upload's file is being written or verified.
    pub processing: Duration,
}

/// Limits of listings.
#[derive(Debug, Clone, Copy)]
pub struct ListingLimits {
    /// The most entries on a directory's page.
    pub entries: usize,
    /// Listings of one file system being made at once; further requests get 503 with Retry-After.
    pub per_disk: usize,
    /// Listings being made or sent that clients share; each may have one besides. One of 10 000
    /// names takes about 2 MiB of memory.
    pub in_all: usize,
}

/// Limits of uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadLimits {
    /// The application buffer of all uploads together.
    pub app_buffer: AppBuffer,
    /// Uploads in progress on one file system at once, and no more than what is left of `in_all`; a
    /// token has half of what is left to the others. Further ones get 503 with Retry-After.
    pub per_disk: usize,
    /// Uploads in progress on all file systems together.
    pub in_all: usize,
    /// Uploads beyond `in_all`, each the first one in progress on its file system.
    pub first: usize,
    /// The space of all unfinished uploads together, those of plain PUT included; an upload that
    /// exceeds it gets 507.
    pub quota: Option<Bytes>,
    /// How long a paused upload is kept after its last byte.
    pub expiry: Option<Duration>,
}
