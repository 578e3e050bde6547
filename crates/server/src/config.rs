//! What a server is told before it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;
use longhaul_engine::sink::memory_budget::AppBuffer;

use crate::Token;

/// What to serve, where, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory whose files are served.
    pub root: PathBuf,
    /// The addresses to listen on; port 0 lets the kernel choose one.
    pub listen: Vec<SocketAddr>,
    /// Speaks HTTPS with these instead of plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The congestion control of every connection; the kernel's default where `None`.
    pub congestion: Option<String>,
    /// How large replies are paced; a client may ask for less with `Longhaul-Pace`, never for more.
    pub pace: Pace,
    /// With which window connections to a client begin whose rate is known; it is given by routes of the host.
    pub initial_window: InitialWindow,
    /// Serves and lists names that start with a dot too; they are 404 otherwise.
    pub hidden: bool,
    /// Takes files from whoever shows this token; files are only read where `None`.
    pub writable: Option<Token>,
    /// The application buffer of each upload.
    pub app_buffer: AppBuffer,
    /// Where `/metrics` is served.
    pub metrics: Metrics,
    /// How much clients may ask for, and how long they may take.
    pub limits: Limits,
}

/// Where `/metrics` is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metrics {
    /// Nowhere: the name is one like any other.
    #[default]
    Off,
    /// Beside the files; a file of that name is not served.
    WithFiles,
    /// At an address of its own, over plain HTTP, with nothing else.
    At(SocketAddr),
}

impl Config {
    /// Serves `root` at `listen` over plain HTTP with every other choice at its default.
    pub fn new(root: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            root: root.into(),
            listen: vec![listen],
            tls: None,
            congestion: None,
            pace: Pace::Auto,
            initial_window: InitialWindow::Off,
            hidden: false,
            writable: None,
            app_buffer: AppBuffer::Auto,
            metrics: Metrics::Off,
            limits: Limits::default(),
        }
    }
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, then the certificates up to, not including, the root's.
    pub cert: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// How much clients may ask for, and how long they may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How many connections are open at once; a further one replaces the longest idle, else it waits.
    pub connections: usize,
    /// How long a request's head, or a TLS handshake, may take from its first byte to its last.
    pub head: Duration,
    /// How long a connection may wait for a request while nothing moves on it.
    pub idle: Duration,
    /// How long a reply may go on without the peer acknowledging a byte, or an upload without it sending
    /// any. A slow peer is not a dead one.
    pub stall: Duration,
    /// The rate below which a peer, on average over three stall times and more, is no better than a dead one.
    ///
    /// Never more than half of [`Config::pace`].
    pub slowest: Rate,
    /// How long replies under way may take once the server is told to finish.
    pub grace: Duration,
    /// How many entries a directory's page shows at most.
    pub listing: usize,
    /// How many uploads are received at once; further ones are told to come back.
    pub uploads: usize,
    /// How often the client of an upload hears that its file is still being written or verified.
    pub processing: Duration,
    /// How many directories' pages are made or being sent at once; further requests are told to come back.
    pub pages: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            slowest: Rate::bytes_per_sec(1_000),
            grace: Duration::from_secs(30),
            listing: 1_000,
            uploads: 16,
            processing: Duration::from_secs(5),
            pages: 32,
        }
    }
}
