//! The options of `longhaul serve`, and the configuration that they make.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_server::{
    AccessConfig, Config, FilesConfig, Limits, MeasureConfig, PacingConfig, TlsFiles, Tokens, UploadLimits,
};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::record::RecordArgs;
use crate::values::{RESEARCH, app_buffer, host, listen, period, time_or_zero};

/// The default of --connections.
const DEFAULT_CONNECTIONS: u32 = 10_000;

/// Minimum default of --connections-per-client: several downloads of 64 streams, or the users
/// behind one router.
const MIN_DEFAULT_CAP: usize = 256;

/// Serve the files of a directory over HTTP or HTTPS.
///
/// GET and HEAD with ranges, entity tags and conditional requests; a page for each directory
/// that has no index.html. Names that start with a dot are not served, nothing above DIR is
/// ever reached, and symbolic links are followed only while they stay below DIR. Each request is
/// logged as one line on standard error. SIGINT or SIGTERM lets transfers under way finish; a
/// second one ends them.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen here, may be given more than once; 0.0.0.0:8080 admits other hosts over IPv4,
    /// `[::]:8080` over IPv6 (only), port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = listen)]
    pub(super) listen: Vec<SocketAddr>,

    #[command(flatten)]
    pub(super) access: AccessArgs,

    #[command(flatten)]
    pub(super) tls: TlsArgs,

    #[command(flatten)]
    pub(super) pacing: PacingArgs,

    #[command(flatten)]
    pub(super) uploads: UploadArgs,

    #[command(flatten)]
    pub(super) files: FilesArgs,

    #[command(flatten)]
    pub(super) telemetry: TelemetryArgs,

    /// Answer `longhaul probe` at /.longhaul/measure; with =RATE no faster than that, all
    /// measurements together. Any client may measure unless --token is given; each sends and
    /// receives as much as the path holds for some seconds
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true, value_parser = Rate::with_unit)]
    pub(super) measure: Option<Option<Rate>>,

    /// Become this user once the sockets are bound, a name, UID or UID:GID; for a server that root
    /// starts
    #[arg(long, value_name = "USER")]
    pub(super) run_as: Option<String>,

    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

/// Options of hosts and tokens.
#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// Answer only requests for this host, a name or address without port, may be given more than
    /// once; others get 421. Keeps pages of other sites out whose name leads here (DNS rebinding)
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub(super) host: Vec<String>,

    /// Take files too, by PUT or `longhaul put`, from clients with a token
    #[arg(long, requires = "any_token")]
    pub(super) writable: bool,

    /// Read the token for writing and measuring from this file: letters, digits and -._~+/=
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "any_token")]
    pub(super) token: Option<PathBuf>,

    /// Read several tokens, each with name, directory, rights and expiry, from this TOML file, and
    /// again when it changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "any_token")]
    pub(super) tokens: Option<PathBuf>,

    /// Demand a token for reading too
    #[arg(long, requires = "any_token")]
    pub(super) require_token: bool,

    /// Take tokens over plain HTTP from other hosts, where others may read them on their way
    #[arg(long)]
    pub(super) allow_cleartext: bool,
}

/// Options of TLS.
#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Speak HTTPS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) tls_cert: Option<PathBuf>,

    /// Read the certificate's private key from this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate that one of the authorities in this file (PEM) has
    /// signed
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) client_ca: Option<PathBuf>,

    /// Refuse clients whose certificate is in a list of revoked ones in this file (PEM): one list
    /// of each authority, read again when it changes
    #[arg(long, value_name = "FILE", requires = "client_ca", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    pub(super) client_crl: Option<PathBuf>,
}

/// Options of pacing and congestion control.
#[derive(Debug, Args)]
pub(super) struct PacingArgs {
    /// Use this congestion control, as cubic or bbr, instead of the kernel's default
    #[arg(long, value_name = "NAME", help_heading = RESEARCH, hide_short_help = true)]
    pub(super) congestion: Option<String>,

    /// Pace each connection: auto finds and follows what the path holds, a rate as 6.5Gbit bounds
    /// it, off leaves it to the congestion control
    #[arg(long, value_name = "auto|off|RATE", default_value = "auto", allow_hyphen_values = true, value_parser = Pace::with_unit, help_heading = "Speed")]
    pub(super) pace: Pace,

    /// Begin connections to a client whose rate is known with this congestion window, not with ten
    /// segments: auto is what the pace sends in their first round trip. Makes routes to those
    /// clients in the host's routing table while it runs (needs CAP_NET_ADMIN), which other
    /// programs' connections to them use too
    #[arg(long, value_name = "off|auto|SEGMENTS", default_value = "off", help_heading = RESEARCH, hide_short_help = true)]
    pub(super) initial_window: InitialWindow,
}

/// Options of uploads.
#[derive(Debug, Args)]
pub(super) struct UploadArgs {
    /// Set the application buffer of all uploads together: what the disk may lag behind; auto is
    /// 64MiB, and more (an eighth of the memory available) where the disk is seen to stall
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = app_buffer, help_heading = RESEARCH, hide_short_help = true)]
    pub(super) app_buffer: AppBuffer,

    /// Let unfinished uploads take this much space together; further ones are refused
    #[arg(long, value_name = "SIZE", requires = "writable", value_parser = Bytes::with_unit)]
    pub(super) upload_quota: Option<Bytes>,

    /// Delete an unfinished upload this long after its last byte, as 12h or 7d
    #[arg(long, value_name = "TIME", requires = "writable", value_parser = period)]
    pub(super) upload_expiry: Option<Duration>,
}

/// The served files.
#[derive(Debug, Args)]
pub(super) struct FilesArgs {
    /// The directory to serve
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) directory: PathBuf,

    /// Serve and list names that start with a dot too
    #[arg(long)]
    pub(super) hidden: bool,

    /// Compute no digests of served files: clients cannot find which part of their copy is wrong
    #[arg(long)]
    pub(super) no_digests: bool,
}

/// Options of metrics and recording.
#[derive(Debug, Args)]
pub(super) struct TelemetryArgs {
    /// Serve /metrics for Prometheus at 127.0.0.1:9464, or at =ADDR:PORT, over plain HTTP and
    /// without a token
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9464", value_parser = listen)]
    pub(super) metrics: Option<SocketAddr>,

    #[command(flatten)]
    pub(super) record: RecordArgs,
}

/// Options of limits.
#[derive(Debug, Args)]
pub(super) struct LimitArgs {
    /// Open at most this many connections at once; a further one takes the place of the longest
    /// idle connection or the slowest reply of the client with the most [default: 10000, or fewer
    /// where the limit of open files is lower]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Limits")]
    pub(super) connections: Option<u32>,

    /// Open at most this many connections of one client (an IPv4 address, or an IPv6 /64) at once;
    /// half of --connections, but at least 256, where not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Limits")]
    pub(super) connections_per_client: Option<u32>,

    /// Let active transfers finish for this long after SIGINT or SIGTERM, as 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_or_zero, help_heading = "Limits")]
    pub(super) grace: Duration,
}

impl ServeArgs {
    /// Returns the server's configuration, with limits that the open files allow.
    pub(super) fn config(&self, tokens: Tokens) -> Config {
        let mut limits = Limits::default();
        limits.connections.open = self.limits.connections.unwrap_or(DEFAULT_CONNECTIONS) as usize;
        limits.timeouts.grace = self.limits.grace;
        let (app_buffer, quota, expiry) =
            (self.uploads.app_buffer, self.uploads.upload_quota, self.uploads.upload_expiry);
        limits.uploads = UploadLimits { app_buffer, quota, expiry, ..limits.uploads };
        let mut config = Config {
            files: FilesConfig {
                root: self.files.directory.clone(),
                hidden: self.files.hidden,
                digests: !self.files.no_digests,
            },
            listen: self.listen.clone(),
            tls: self.tls.files(),
            access: AccessConfig {
                hosts: self.access.host.clone(),
                writable: self.access.writable,
                tokens,
                require_token: self.access.require_token,
                allow_cleartext: self.access.allow_cleartext,
            },
            pacing: PacingConfig {
                congestion: self.pacing.congestion.clone(),
                pace: self.pacing.pace,
                initial_window: self.pacing.initial_window,
            },
            metrics: self.telemetry.metrics,
            measure: self.measure.map(|ceiling| MeasureConfig { ceiling }),
            limits,
        };
        config.fit_open_files(raise_open_files(), self.telemetry.record.file().is_some());
        let limits = &mut config.limits.connections;
        let most = limits.open;
        if let Some(asked) = self.limits.connections.filter(|asked| *asked as usize > most) {
            tracing::warn!(asked, most, "fewer connections: the limit of open files (ulimit -Hn) is low");
        }
        let default_cap = most.div_ceil(2).max(MIN_DEFAULT_CAP);
        let per_client = self.limits.connections_per_client.map_or(default_cap, |most| most as usize);
        limits.per_client = per_client.min(most);
        config
    }
}

impl AccessArgs {
    /// Returns the file of the token, or of several.
    pub(super) fn token_file(&self) -> Option<&PathBuf> {
        self.token.as_ref().or(self.tokens.as_ref())
    }
}

impl TlsArgs {
    /// Returns the scheme of the server's URLs.
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    fn files(&self) -> Option<TlsFiles> {
        let (client_ca, client_crl) = (self.client_ca.clone(), self.client_crl.clone());
        // clap requires both or neither.
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { cert, key, client_ca, client_crl })
    }
}

/// Raises the limit of open files to its maximum, and returns it.
fn raise_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limit = raised;
    }
    // `None` means unlimited.
    limit.current.unwrap_or(u64::MAX)
}
