//! `longhaul serve DIR`: options, process limits, signals; the server is a library.

mod args;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use longhaul_core::event::{JobId, JobTag};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::initial_window::InitialWindow;
use longhaul_core::pace::Pace;
use longhaul_engine::cancel::Cancel;
use longhaul_scope::record::schema::Side;
use longhaul_server::{
    Confined, Server, Stopper, Telemetry, Token, Tokens, WIDE_MODE, drop_capabilities, with_file_capabilities,
};
use longhaul_sys::user::become_user;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use args::ServeArgs;

use crate::record::is_below;
use crate::{exit, interrupt, say, secret_file, stderr};

/// Threads for all file systems, started as needed: each file system gets 24, so that 150 can hang.
/// They open files, list directories and run sendfile; they block on disks, and on a client only
/// for the milliseconds in which one that keeps up frees socket buffer space.
const DISK_THREADS: usize = 4096;

/// Returns why options cannot be used together.
fn contradiction(args: &ServeArgs) -> Option<String> {
    let directory = &args.files.directory;
    if let Some(record) = args.telemetry.record.file().filter(|record| is_below(record, directory)) {
        return Some(format!(
            "the record {} would be readable for every client: name a file outside {}",
            record.display(),
            directory.display()
        ));
    }
    let (sets_windows, has_token) =
        (args.pacing.initial_window != InitialWindow::Off, args.access.token_file().is_some());
    let guarded = args.access.writable || args.measure.is_some() || args.access.require_token;
    let why = match () {
        () if sets_windows && args.pacing.pace == Pace::Off => {
            "--initial-window needs a pace, or the window would leave as one burst: drop --pace off"
        }
        () if sets_windows && args.run_as.is_some() => {
            "--initial-window needs CAP_NET_ADMIN, which --run-as gives up: drop one of them"
        }
        () if has_token && !guarded => {
            "a token is for --writable, --measure or --require-token: give one of them too"
        }
        () => return None,
    };
    Some(why.to_owned())
}

/// Serves until it is stopped.
pub(crate) fn run(args: Box<ServeArgs>) -> anyhow::Result<ExitCode> {
    if let Some(why) = contradiction(&args) {
        return Ok(exit::said(why, FailureKind::Usage));
    }
    interrupt::outlive_size_limit().context("catching SIGXFSZ")?;
    let scheme = args.tls.scheme();
    let mut server = Server::bind(args.config(tokens(&args)?))?;
    if let Some(user) = &args.run_as
        && let Err(error) = become_user(user)
    {
        let message = format_args!(
            "cannot run as {user}: {error}; start as root, and give a user of this host, or UID:GID"
        );
        return Ok(exit::said(message, FailureKind::Denied));
    }
    stderr::drop_privileges();
    with_file_capabilities(|| server.check())?;
    // Created late: a server that cannot start must not begin a record.
    let what = std::path::absolute(&args.files.directory).unwrap_or_else(|_| args.files.directory.clone());
    let begin = || args.telemetry.record.begin(Side::Serve, &what.to_string_lossy(), args.pacing.pace.rate());
    let recorder = with_file_capabilities(begin)?.map(Arc::new);
    if let Some(recorder) = &recorder {
        let address = server.addresses().first().map(ToString::to_string).unwrap_or_default();
        let job = JobTag::new(JobId::new(1), &format!("{scheme}://{address}/"));
        server.observe(Telemetry {
            job,
            observer: recorder.clone(),
            sample: args.telemetry.record.interval(),
        });
    }
    // The recorder's thread and this thread, which ends the record, are not confined to the served
    // files.
    let served = std::thread::scope(|threads| {
        let serving = threads.spawn(|| serve(server, &args));
        // After the spawn: the serving thread would inherit the reduced set, and may need
        // CAP_NET_ADMIN.
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
    let scheme = args.tls.scheme();
    for address in server.addresses() {
        let reach = if address.ip().is_loopback() { " (this host only; see --listen)" } else { "" };
        say::line(format_args!("serving {} at {scheme}://{address}/{reach}", args.files.directory.display()));
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

/// Reads the token or names the file of tokens.
fn tokens(args: &ServeArgs) -> Result<Tokens, Failure> {
    let Some(file) = args.access.token_file() else { return Ok(Tokens::None) };
    if is_below(file, &args.files.directory) {
        let shown = file.display();
        let why = format!("the token in {shown} would be readable for every client: keep it elsewhere");
        return Err(Failure::new(FailureKind::Usage, why));
    }
    if args.access.allow_cleartext
        && args.tls.tls_cert.is_none()
        && args.listen.iter().any(|address| !address.ip().is_loopback())
    {
        tracing::warn!("clients send their tokens unencrypted; --tls-cert and --tls-key protect them");
    }
    match &args.access.token {
        Some(file) => token(file).map(Tokens::One),
        None => Ok(Tokens::File(file.clone())),
    }
}

/// Reads the only token.
fn token(file: &Path) -> Result<Token, Failure> {
    let shown = file.display();
    let text = secret_file::read_token(file, &Cancel::new()).map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::PermissionDenied => FailureKind::Denied,
            ErrorKind::InvalidInput => FailureKind::Config,
            _ => FailureKind::NotFound,
        };
        Failure::new(kind, format!("cannot read the token in {shown}: {error}"))
    })?;
    let unusable = |why: String| Failure::new(FailureKind::Config, why);
    let token = Token::new(&text).map_err(|error| {
        let remedy = "write one with: openssl rand -hex 32";
        unusable(format!("cannot use the token in {shown}: {error}; {remedy}"))
    })?;
    if std::fs::metadata(file).is_ok_and(|meta| meta.mode() & WIDE_MODE != 0) {
        return Err(unusable(format!("other users may read or change the token in {shown}: chmod 600 it")));
    }
    Ok(token)
}

/// Installs the signal handlers before the first line is printed, so that its reader may stop the
/// server.
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
    // Logged instead of printed: printing would block on the reader of stderr. Logged before the
    // stop, which ends this task.
    tracing::info!("finishing the transfers under way; once more ends them");
    stopper.finish();
    next().await;
    stopper.end();
}
