//! `longhaul serve DIR`: options, process limits, signals; the server is a library.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueHint};
use longhaul_core::event::{JobId, JobTag};
use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_scope::record::schema::Side;
use longhaul_server::{
    AccessConfig, Config, Confined, ConnectionLimits, FilesConfig, Limits, MeasureConfig, PacingConfig,
    Server, Stopper, Telemetry, Timeouts, TlsFiles, Token, Tokens, UploadLimits, WIDE_MODE,
    drop_capabilities, with_file_capabilities,
};
use longhaul_sys::user::become_user;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::record::RecordArgs;
use crate::values::{RESEARCH, app_buffer, host, listen, period, time_or_zero};
use crate::{exit, interrupt, log_thread, say, secret_file};

/// The default of --connections.
const DEFAULT_CONNECTIONS: u32 = 10_000;

/// Minimum default of --connections-per-client: several downloads of 64 streams, or the users behind one router.
const MIN_DEFAULT_CAP: usize = 256;

/// Threads for all file systems, started as needed: each file system gets 24, so that 150 can hang. They open files, list
/// directories and run sendfile; they block on disks, and on a client only for the milliseconds in which one that keeps up
/// frees socket buffer space.
const DISK_THREADS: usize = 4096;

/// Serve the files of a directory over HTTP or HTTPS.
///
/// GET and HEAD with ranges, entity tags and conditional requests; a page for each directory
/// that has no index.html. Names that start with a dot are not served, nothing above DIR is
/// ever reached, and symbolic links are followed only while they stay below DIR. Each request is
/// logged as one line on standard error. SIGINT or SIGTERM lets transfers under way finish; a
/// second one ends them.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory to serve
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,

    /// Listen here, may be given more than once; 0.0.0.0:8080 admits other hosts over IPv4, `[::]:8080` over IPv6 (only), port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = listen)]
    listen: Vec<SocketAddr>,

    /// Answer only requests for this host, a name or address without port, may be given more than once; others get 421. Keeps pages of other sites out whose name leads here (DNS rebinding)
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Vec<String>,

    /// Speak HTTPS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    tls_cert: Option<PathBuf>,

    /// Read the certificate's private key from this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate that one of the authorities in this file (PEM) has signed
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    client_ca: Option<PathBuf>,

    /// Refuse clients whose certificate is in a list of revoked ones in this file (PEM): one list of each authority, read again when it changes
    #[arg(long, value_name = "FILE", requires = "client_ca", value_hint = ValueHint::FilePath, help_heading = "TLS")]
    client_crl: Option<PathBuf>,

    /// Use this congestion control, as cubic or bbr, instead of the kernel's default
    #[arg(long, value_name = "NAME", help_heading = RESEARCH, hide_short_help = true)]
    congestion: Option<String>,

    /// Pace each connection: auto finds and follows what the path holds, a rate as 6.5Gbit bounds it, off leaves it to the congestion control
    #[arg(long, value_name = "auto|off|RATE", default_value = "auto", allow_hyphen_values = true, value_parser = Pace::with_unit, help_heading = "Speed")]
    pace: Pace,

    /// Begin connections to a client whose rate is known with this congestion window, not with ten segments: auto is what the pace sends in their first round trip. Makes routes to those clients in the host's routing table while it runs (needs CAP_NET_ADMIN), which other programs' connections to them use too
    #[arg(long, value_name = "off|auto|SEGMENTS", default_value = "off", help_heading = RESEARCH, hide_short_help = true)]
    initial_window: InitialWindow,

    /// Take files too, by PUT or `longhaul put`, from clients with a token
    #[arg(long, requires = "any_token")]
    writable: bool,

    /// Read the token for writing and measuring from this file: letters, digits and -._~+/=
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "any_token")]
    token: Option<PathBuf>,

    /// Read several tokens, each with name, directory, rights and expiry, from this TOML file, and again when it changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "any_token")]
    tokens: Option<PathBuf>,

    /// Demand a token for reading too
    #[arg(long, requires = "any_token")]
    require_token: bool,

    /// Take tokens over plain HTTP from other hosts, where others may read them on their way
    #[arg(long)]
    allow_cleartext: bool,

    /// Set the application buffer of all uploads together: what the disk may lag behind; auto is 64MiB, and more (an eighth of the memory available) where the disk is seen to stall
    #[arg(
        long,
        value_name = "auto|SIZE",
        default_value = "auto",
        value_parser = app_buffer,
        help_heading = RESEARCH,
        hide_short_help = true
    )]
    app_buffer: AppBuffer,

    /// Let unfinished uploads take this much space together; further ones are refused
    #[arg(long, value_name = "SIZE", requires = "writable", value_parser = Bytes::with_unit)]
    upload_quota: Option<Bytes>,

    /// Delete an unfinished upload this long after its last byte, as 12h or 7d
    #[arg(long, value_name = "TIME", requires = "writable", value_parser = period)]
    upload_expiry: Option<Duration>,

    /// Serve and list names that start with a dot too
    #[arg(long)]
    hidden: bool,

    /// Compute no digests of served files: clients cannot find which part of their copy is wrong
    #[arg(long)]
    no_digests: bool,

    /// Serve /metrics for Prometheus at 127.0.0.1:9464, or at =ADDR:PORT, over plain HTTP and without a token
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9464", value_parser = listen)]
    metrics: Option<SocketAddr>,

    /// Answer `longhaul probe` at /.longhaul/measure; with =RATE no faster than that, all measurements together. Any client may measure unless --token is given; each sends and receives as much as the path holds for some seconds
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true, value_parser = Rate::with_unit)]
    measure: Option<Option<Rate>>,

    #[command(flatten)]
    record: RecordArgs,

    /// Open at most this many connections at once; a further one takes the place of the longest idle connection or the slowest reply of the client with the most [default: 10000, or fewer where the limit of open files is lower]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Limits"
    )]
    connections: Option<u32>,

    /// Open at most this many connections of one client (an IPv4 address, or an IPv6 /64) at once; half of --connections, but at least 256, where not given
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Limits"
    )]
    connections_per_client: Option<u32>,

    /// Become this user once the sockets are bound, a name, UID or UID:GID; for a server that root starts
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,

    /// Let active transfers finish for this long after SIGINT or SIGTERM, as 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_or_zero, help_heading = "Limits")]
    grace: Duration,
}

/// Serves until it is stopped.
pub(crate) fn run(args: Box<ServeArgs>) -> anyhow::Result<ExitCode> {
    if let Some(record) = args.record.file().filter(|record| is_below(record, &args.directory)) {
        say::error(format_args!(
            "the record {} would be readable for every client: name a file outside {}",
            record.display(),
            args.directory.display()
        ));
        return Ok(exit::USAGE.into());
    }
    if args.pace == Pace::Off && args.initial_window != InitialWindow::Off {
        say::error("--initial-window needs a pace, or the window would leave as one burst: drop --pace off");
        return Ok(exit::USAGE.into());
    }
    if args.run_as.is_some() && args.initial_window != InitialWindow::Off {
        say::error("--initial-window needs CAP_NET_ADMIN, which --run-as gives up: drop one of them");
        return Ok(exit::USAGE.into());
    }
    let guarded = args.writable || args.measure.is_some() || args.require_token;
    if args.token.as_ref().or(args.tokens.as_ref()).is_some() && !guarded {
        say::error("a token is for --writable, --measure or --require-token: give one of them too");
        return Ok(exit::USAGE.into());
    }
    interrupt::outlive_size_limit().context("catching SIGXFSZ")?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    let tokens = match tokens(&args) {
        Ok(tokens) => tokens,
        Err((why, code)) => {
            say::error(say::chain(&why));
            return Ok(code.into());
        }
    };
    let mut server = match Server::bind(config(&args, tokens)) {
        Ok(server) => server,
        Err(error) => {
            say::error(&error);
            return Ok(exit::of(error.kind()).into());
        }
    };
    if let Some(user) = &args.run_as
        && let Err(error) = become_user(user)
    {
        say::error(format_args!(
            "cannot run as {user}: {error}; start as root, and give a user of this host, or UID:GID"
        ));
        return Ok(exit::NO_PERMISSION.into());
    }
    log_thread::drop_privileges();
    if let Err(error) = with_file_capabilities(|| server.check()) {
        say::error(&error);
        return Ok(exit::of(error.kind()).into());
    }
    // Created late: a server that cannot start must not begin a record.
    let what = std::path::absolute(&args.directory).unwrap_or_else(|_| args.directory.clone());
    let begin = || args.record.begin(Side::Serve, &what.to_string_lossy());
    let recorder = with_file_capabilities(begin)?.map(Arc::new);
    if let Some(recorder) = &recorder {
        let address = server.addresses().first().map(ToString::to_string).unwrap_or_default();
        let job = JobTag::new(JobId::new(1), &format!("{scheme}://{address}/"));
        server.observe(Telemetry { job, observer: recorder.clone(), sample: args.record.interval() });
    }
    // The recorder's thread and this thread, which ends the record, are not confined to the served files.
    let served = std::thread::scope(|threads| {
        let serving = threads.spawn(|| serve(server, &args));
        // After the spawn: the serving thread would inherit the reduced set, and may need CAP_NET_ADMIN.
        if let Err(error) = drop_capabilities() {
            tracing::warn!(%error, "the main thread keeps capabilities that it does not need");
        }
        serving.join()
    });
    let ended = served.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // A truncated record is no failure of the server.
    if let Some(Err(error)) = recorder.map(|recorder| recorder.finish()) {
        tracing::error!("{error}");
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// Serves with threads that can open only the files they need.
fn serve(server: Server, args: &ServeArgs) -> anyhow::Result<()> {
    match server.confinement().apply() {
        Ok(Confined::ToServedFiles) => {}
        Ok(Confined::Partially) => {
            tracing::debug!(
                "this kernel enforces a part of the rules only: see Privileges in docs/servers.md"
            );
        }
        Ok(Confined::CapabilitiesOnly) => {
            tracing::debug!(
                "this kernel has no Landlock: only the checks of names keep files outside from being opened"
            );
        }
        Err(error) => tracing::warn!(%error, "the server keeps privileges that it does not need"),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS)
        .build()
        .context("starting the server's threads")?;
    let (interrupt, terminate) = signals(&runtime).context("catching SIGINT and SIGTERM")?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    for address in server.addresses() {
        let reach = if address.ip().is_loopback() { " (this host only; see --listen)" } else { "" };
        say::line(format_args!("serving {} at {scheme}://{address}/{reach}", args.directory.display()));
    }
    if let Some(address) = server.metrics_address() {
        say::line(format_args!("metrics at http://{address}/metrics"));
    }
    let ended = runtime.block_on(async {
        tokio::spawn(stop_on_signals(interrupt, terminate, server.stopper()));
        server.run().await
    })?;
    if ended.cut > 0 {
        tracing::warn!("{} connections were cut before they were done", ended.cut);
    }
    // Does not wait for threads blocked on a hung disk.
    runtime.shutdown_background();
    Ok(())
}

/// Returns whether a file is below a directory, or would be once created.
fn is_below(file: &Path, directory: &Path) -> bool {
    let place = file.canonicalize().or_else(|_| {
        let path = std::path::absolute(file)?;
        path.parent().unwrap_or(&path).canonicalize()
    });
    matches!((place, directory.canonicalize()), (Ok(place), Ok(root)) if place.starts_with(&root))
}

/// Reads the token or names the file of tokens; otherwise returns the reason and the exit code.
fn tokens(args: &ServeArgs) -> Result<Tokens, (anyhow::Error, exit::Code)> {
    let Some(file) = args.token.as_ref().or(args.tokens.as_ref()) else { return Ok(Tokens::None) };
    if is_below(file, &args.directory) {
        let shown = file.display();
        let why =
            anyhow::anyhow!("the token in {shown} would be readable for every client: keep it elsewhere");
        return Err((why, exit::USAGE));
    }
    if args.allow_cleartext
        && args.tls_cert.is_none()
        && args.listen.iter().any(|address| !address.ip().is_loopback())
    {
        tracing::warn!("clients send their tokens unencrypted; --tls-cert and --tls-key protect them");
    }
    match &args.token {
        Some(file) => token(file).map(Tokens::One),
        None => Ok(Tokens::File(file.clone())),
    }
}

/// Reads the only token.
fn token(file: &Path) -> Result<Token, (anyhow::Error, exit::Code)> {
    let shown = file.display();
    let text = secret_file::read_token(file, &Cancel::new()).map_err(|error| {
        let code = match error.kind() {
            ErrorKind::PermissionDenied => exit::NO_PERMISSION,
            ErrorKind::InvalidInput => exit::CONFIG,
            _ => exit::NO_INPUT,
        };
        (anyhow::Error::new(error).context(format!("cannot read the token in {shown}")), code)
    })?;
    let token = Token::new(&text).map_err(|error| {
        let why = "write one with: openssl rand -hex 32";
        (anyhow::anyhow!("cannot use the token in {shown}: {error}; {why}"), exit::CONFIG)
    })?;
    if std::fs::metadata(file).is_ok_and(|meta| meta.mode() & WIDE_MODE != 0) {
        let why = anyhow::anyhow!("other users may read or change the token in {shown}: chmod 600 it");
        return Err((why, exit::CONFIG));
    }
    Ok(token)
}

fn config(args: &ServeArgs, tokens: Tokens) -> Config {
    let limits = Limits {
        connections: ConnectionLimits {
            open: args.connections.unwrap_or(DEFAULT_CONNECTIONS) as usize,
            ..ConnectionLimits::default()
        },
        timeouts: Timeouts { grace: args.grace, ..Timeouts::default() },
        uploads: UploadLimits {
            app_buffer: args.app_buffer,
            quota: args.upload_quota,
            expiry: args.upload_expiry,
            ..UploadLimits::default()
        },
        ..Limits::default()
    };
    let mut config = Config {
        files: FilesConfig { root: args.directory.clone(), hidden: args.hidden, digests: !args.no_digests },
        listen: args.listen.clone(),
        // clap requires both or neither.
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles {
            cert,
            key,
            client_ca: args.client_ca.clone(),
            client_crl: args.client_crl.clone(),
        }),
        access: AccessConfig {
            hosts: args.host.clone(),
            writable: args.writable,
            tokens,
            require_token: args.require_token,
            allow_cleartext: args.allow_cleartext,
        },
        pacing: PacingConfig {
            congestion: args.congestion.clone(),
            pace: args.pace,
            initial_window: args.initial_window,
        },
        metrics: args.metrics,
        measure: args.measure.map(|ceiling| MeasureConfig { ceiling }),
        limits,
    };
    config.fit_open_files(raise_open_files(), args.record.file().is_some());
    let limits = &mut config.limits.connections;
    let most = limits.open;
    if let Some(asked) = args.connections.filter(|asked| *asked as usize > most) {
        tracing::warn!(asked, most, "fewer connections: the limit of open files (ulimit -Hn) is low");
    }
    let default_cap = most.div_ceil(2).max(MIN_DEFAULT_CAP);
    let per_client = args.connections_per_client.map_or(default_cap, |most| most as usize);
    limits.per_client = per_client.min(most);
    config
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

/// Installs the signal handlers before the first line is printed, so that its reader may stop the server.
fn signals(runtime: &Runtime) -> std::io::Result<(Signal, Signal)> {
    let _inside = runtime.enter();
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

async fn stop_on_signals(mut interrupt: Signal, mut terminate: Signal, stopper: Stopper) {
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    // Logged instead of printed: printing would block on the reader of stderr. Logged before the stop, which ends this task.
    tracing::info!("finishing the transfers under way; once more ends them");
    stopper.finish();
    next().await;
    stopper.end();
}
