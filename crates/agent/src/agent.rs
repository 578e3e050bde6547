//! The agent's process: one lock, one queue, two addresses.

use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::{Listener, ListenerExt};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longhaul_sys::if_exists::if_exists;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::{self, ApiAccess, ApiState};
use crate::error::AgentError;
use crate::instance::Instance;
use crate::notify::notify;
use crate::paths::{self, AgentPaths, kept_secret};
use crate::queue::{ExitCodes, Queue};
use crate::runner;
use crate::settings::{Doors, FarmSettings};

/// The default port of the dashboard.
pub const PORT: u16 = 6777;
/// The timeout for the last answers to clients.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);
/// The size of the token in bytes.
const TOKEN: usize = 32;
/// The number of digits, each of 6 bits (RFC 4648, section 5).
const TOKEN_DIGITS: usize = (TOKEN * 8).div_ceil(6);

/// The options of the agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The paths of its files.
    pub paths: AgentPaths,
    /// The address of the dashboard; `None` uses that of the last agent, else port 6777 of
    /// 127.0.0.1, or a free port if that is in use.
    pub listen: Option<SocketAddr>,
    /// Whether the dashboard's address also serves aria2's JSON-RPC; `None` does as the last agent
    /// did.
    pub aria2_rpc: Option<bool>,
    /// The farm; `None` does as the last agent did, `Some(None)` is in none.
    pub farm: Option<Option<FarmSettings>>,
    /// Returns the exit code of an equivalent `longhaul get` that fails.
    pub exit_code: ExitCodes,
}

/// Runs the agent until SIGTERM or SIGINT; calls `ready` with the dashboard's address once it
/// accepts requests.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: &AgentOptions, ready: impl FnOnce(SocketAddr)) -> Result<(), AgentError> {
    if let Some(address) = options.listen.filter(|address| !address.ip().is_loopback()) {
        return Err(AgentError::NotLoopback(address));
    }
    let paths = &options.paths;
    paths.make().map_err(|source| AgentError::file("make", &paths.state, source))?;
    let _instance = Instance::take(paths)?;
    let queue = Arc::new(Queue::open(paths.clone(), options.exit_code, options.farm.clone())?);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AgentError::Thread)?;
    let served = runtime.block_on(serve(options, &queue, ready));
    notify("STOPPING=1");
    // The next agent creates its own socket.
    let _ = std::fs::remove_file(paths.socket());
    if std::fs::read_link(paths.socket_link()).is_ok_and(|socket| socket == paths.socket()) {
        let _ = std::fs::remove_file(paths.socket_link());
    }
    served
}

async fn serve(
    options: &AgentOptions,
    queue: &Arc<Queue>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), AgentError> {
    let paths = &options.paths;
    let token = |path: PathBuf| {
        kept_secret(&path, || fresh_token().into_bytes())
            .and_then(checked_token)
            .map_err(|source| AgentError::file("use the token", &path, source))
    };
    let tokens = (token(paths.state.join(paths::TOKEN))?, token(paths.state.join(paths::DOWNLOAD_TOKEN))?);
    let before = queue.database(|database| database.doors())?;
    let stored = before.listen.filter(|address| address.ip().is_loopback());
    let loopback = listen(options.listen, stored).await?;
    let address = loopback.local_addr().map_err(|source| not_listening(PORT, source))?;
    let doors = Doors {
        listen: options.listen.or(before.listen),
        aria2_rpc: options.aria2_rpc.unwrap_or(before.aria2_rpc),
        farm: options.farm.clone().unwrap_or(before.farm.clone()),
    };
    if doors != before {
        queue.database(|database| database.set_doors(&doors))?;
    }
    let socket = OwnSocket(bind(paths)?);
    let access = Arc::new(ApiAccess::new(tokens.0, tokens.1, address));
    let state = ApiState { queue: Arc::clone(queue), access: Arc::clone(&access) };
    let mut signals = (interrupt(SignalKind::terminate())?, interrupt(SignalKind::interrupt())?);
    // The database of a farm may not be waited for on this thread.
    let theirs = Arc::clone(queue);
    let started = tokio::task::spawn_blocking(move || runner::start(theirs)).await;
    let runner = started.map_err(|error| AgentError::Thread(io::Error::other(error)))??;

    // Events are small and should be sent without delay.
    let undelayed = loopback.tap_io(|stream| drop(stream.set_nodelay(true)));
    let (stop, stopped) = watch::channel(false);
    let ended = |mut stopped: watch::Receiver<bool>| async move {
        // An error means that the sender was dropped, which also ends the service.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let unix = axum::serve(socket, api::unix(state.clone())).with_graceful_shutdown(ended(stopped.clone()));
    let tcp =
        axum::serve(undelayed, api::loopback(state, doors.aria2_rpc)).with_graceful_shutdown(ended(stopped));
    let (unix, tcp) = (tokio::spawn(unix.into_future()), tokio::spawn(tcp.into_future()));
    notify("READY=1");
    ready(address);
    tokio::select! {
        _ = signals.0.recv() => {}
        _ = signals.1.recv() => {}
    }
    tracing::info!("the agent ends; what runs continues with the next one");
    queue.stop();
    // Fails only if both servers have ended.
    let _ = stop.send(true);
    // The panic hook has already reported a panic.
    let _ = tokio::task::spawn_blocking(move || runner.join()).await;
    // Clients must see the end of their answers: a connection that breaks is that of a killed
    // agent.
    let answered = async { drop((unix.await, tcp.await)) };
    let _ = tokio::time::timeout(ANSWERS_TIMEOUT, answered).await;
    Ok(())
}

/// Returns the token in a file. Rejects a token shorter than generated ones, which could be
/// guessed; an empty one would match any request.
fn checked_token(kept: Vec<u8>) -> io::Result<String> {
    let token = String::from_utf8(kept).unwrap_or_default().trim().to_owned();
    if token.len() < TOKEN_DIGITS {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no token: remove it"));
    }
    Ok(token)
}

/// Returns random text of 256 bits.
pub(crate) fn fresh_token() -> String {
    use chacha20poly1305::aead::OsRng;
    use chacha20poly1305::aead::rand_core::RngCore;
    let mut bytes = [0; TOKEN];
    OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn interrupt(kind: SignalKind) -> Result<tokio::signal::unix::Signal, AgentError> {
    signal(kind).map_err(AgentError::Thread)
}

fn not_listening(port: u16, source: io::Error) -> AgentError {
    AgentError::Listen { address: format!("127.0.0.1:{port}"), source }
}

/// Listens at the requested address, else at that of the last agent or the default port, else at a
/// free one.
async fn listen(
    requested: Option<SocketAddr>,
    before: Option<SocketAddr>,
) -> Result<TcpListener, AgentError> {
    if let Some(address) = requested {
        let failed = |source| AgentError::Listen { address: address.to_string(), source };
        return TcpListener::bind(address).await.map_err(failed);
    }
    let usual = before.unwrap_or_else(|| ([127, 0, 0, 1], PORT).into());
    match TcpListener::bind(usual).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!("{usual} is taken: the dashboard gets another port; longhaul queue open shows it");
            TcpListener::bind((usual.ip(), 0)).await.map_err(|source| not_listening(0, source))
        }
        bound => bound.map_err(|source| not_listening(usual.port(), source)),
    }
}

/// Creates the socket; replaces one left by a killed agent.
fn bind(paths: &AgentPaths) -> Result<UnixListener, AgentError> {
    let path = paths.socket();
    let failed = |source| AgentError::file("listen on", &path, source);
    if_exists(std::fs::remove_file(&path)).map_err(failed)?;
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let link = paths.socket_link();
    // An agent of another home keeps the name as long as it answers.
    if std::os::unix::net::UnixStream::connect(&link).is_err() {
        let _ = std::fs::remove_file(&link);
        if let Err(error) = std::os::unix::fs::symlink(&path, &link) {
            tracing::warn!("cannot link {} to the socket: {error}", link.display());
        }
    }
    Ok(listener)
}

/// A Unix socket that accepts only processes of this user.
struct OwnSocket(UnixListener);

impl Listener for OwnSocket {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            let user = stream.peer_cred().map(|peer| peer.uid());
            if user.is_ok_and(|user| user == rustix::process::geteuid().as_raw()) {
                return (stream, address);
            }
            tracing::warn!("a connection of another user is refused");
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_token_is_refused() {
        let fresh = fresh_token();
        assert_eq!(checked_token(format!("{fresh}\n").into_bytes()).unwrap(), fresh);
        for kept in ["", "\n", "secret", &fresh[1..]] {
            assert!(checked_token(kept.into()).is_err(), "{kept:?}");
        }
    }
}
