//! The thread that enlarges the initial window of known clients: it alone adds host routes with an
//! `initcwnd`.
//!
//! A route exists while its client's path is remembered, until another program changes the route to
//! that client, and no longer than the server runs.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Once;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use longhaul_core::initial_window::InitialWindow;
use longhaul_engine::pacing::PathMeasurement;
use longhaul_sys::host_route::{Added, HostRoute, HostRoutes};

use crate::pacing::client_paths::CLIENT_PATH_LIFETIME;

/// The running thread; dropping it removes all routes.
#[derive(Debug)]
pub(crate) struct InitialWindowRoutes {
    commands: Sender<RouteCommand>,
    thread: Option<JoinHandle<()>>,
}

/// Requests routes for clients whose path was measured.
#[derive(Debug, Clone)]
pub(crate) struct RouteRequests {
    commands: Sender<RouteCommand>,
    window: InitialWindow,
}

#[derive(Debug)]
enum RouteCommand {
    Set(WindowRequest),
    Stop,
}

/// An initial window for the connections to one client.
#[derive(Debug, Clone, Copy)]
struct WindowRequest {
    client: IpAddr,
    /// The server's address on the connection to the client.
    local: IpAddr,
    /// `None` where the kernel's default is as good.
    segments: Option<u32>,
    mtu: Option<u32>,
}

/// The interval at which expired routes, and routes that another program has changed, are removed.
const ROUTE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The most routes at once; the oldest makes room. Keeps the routing table of the host small.
const MAX_ROUTES: usize = 256;
/// A route stays where its window differs from the requested one by no more than this share of its
/// own.
const WINDOW_TOLERANCE: f64 = 0.25;

impl InitialWindowRoutes {
    /// Starts the thread; logs and returns `None` where the kernel does not let this process change
    /// routes.
    pub(crate) fn start(window: InitialWindow) -> Option<(Self, RouteRequests)> {
        if window == InitialWindow::Off {
            return None;
        }
        let started = HostRoutes::open().and_then(|routes| {
            clear(&routes);
            let (commands, received) = crossbeam_channel::unbounded();
            let table = RouteTable::new(routes);
            let thread =
                std::thread::Builder::new().name("routes".to_owned()).spawn(move || table.run(&received))?;
            Ok((commands, thread))
        });
        match started {
            Ok((commands, thread)) => {
                let requests = RouteRequests { commands: commands.clone(), window };
                Some((Self { commands, thread: Some(thread) }, requests))
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                tracing::warn!("no initial windows: another longhaul serve on this host gives them");
                None
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                tracing::warn!(
                    "no initial windows: this process may change no routes ({error}); run it as root, or once: \
                     setcap cap_net_admin+ep {}",
                    std::env::current_exe().unwrap_or_default().display()
                );
                None
            }
            Err(error) => {
                tracing::warn!("no initial windows: {error}");
                None
            }
        }
    }
}

/// Removes routes that a killed server has left; where that fails, new routes can still be added.
fn clear(routes: &HostRoutes) {
    match routes.clear() {
        Ok(refused) => refused.iter().for_each(|(client, error)| {
            tracing::warn!(%client, "a route that another server has left stays: {error}");
        }),
        Err(error) => tracing::warn!("what another server may have left stays: {error}"),
    }
}

impl Drop for InitialWindowRoutes {
    fn drop(&mut self) {
        let _ = self.commands.send(RouteCommand::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has dropped its `RouteTable`, which removed the routes.
            let _ = thread.join();
        }
    }
}

impl RouteRequests {
    /// Requests the window that fits the measured path of a client.
    pub(crate) fn request(&self, client: IpAddr, local: IpAddr, found: PathMeasurement) {
        let segments = match self.window {
            InitialWindow::Off => None,
            InitialWindow::Auto => found.known.initial_window(found.segment),
            InitialWindow::Segments(segments) => Some(segments),
        };
        // Fails only where the thread has panicked: it stops after the last connection.
        let request = WindowRequest { client, local, segments, mtu: found.mtu };
        let _ = self.commands.send(RouteCommand::Set(request));
    }
}

/// The routes that this server has added.
struct RouteTable {
    routes: HostRoutes,
    windows: HashMap<IpAddr, RouteEntry>,
    /// Log failures that may concern every client for the first client only.
    add_failed: Once,
    remove_failed: Once,
}

struct RouteEntry {
    route: HostRoute,
    segments: u32,
    /// When the window was last requested.
    at: Instant,
    /// The route is to be removed, and the kernel has refused that so far.
    is_over: bool,
}

impl RouteTable {
    fn new(routes: HostRoutes) -> Self {
        Self { routes, windows: HashMap::new(), add_failed: Once::new(), remove_failed: Once::new() }
    }

    fn run(mut self, commands: &Receiver<RouteCommand>) {
        loop {
            let command = if self.windows.is_empty() {
                commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                commands.recv_timeout(ROUTE_CHECK_INTERVAL)
            };
            let now = Instant::now();
            self.remove_expired(now);
            match command {
                Ok(RouteCommand::Set(request)) => self.set(request, now),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(RouteCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Adds, renews, replaces or removes the route to a client.
    fn set(&mut self, WindowRequest { client, local, segments, mtu }: WindowRequest, now: Instant) {
        let Some(segments) = segments else { return self.remove(client) };
        if let Some(window) = self.windows.get_mut(&client)
            && !window.is_over
            && f64::from(window.segments.abs_diff(segments)) <= WINDOW_TOLERANCE * f64::from(window.segments)
        {
            window.at = now;
            return;
        }
        self.remove(client);
        // Routes that the kernel refuses to remove count; the client's next request tries again.
        if self.windows.len() > MAX_ROUTES || self.windows.contains_key(&client) {
            return;
        }
        match self.routes.add(client, local, segments, mtu) {
            Ok(Added::Made(route)) => {
                tracing::debug!(%client, segments, "connections to it begin with this window");
                self.windows.insert(client, RouteEntry { route, segments, at: now, is_over: false });
                self.make_room(client);
            }
            Ok(Added::LeftAlone(why)) => tracing::debug!(%client, "no initial window: {why}"),
            Err(error) => self.add_failed.call_once(|| {
                tracing::warn!(%client, "a route for an initial window cannot be made: {error}");
            }),
        }
    }

    /// Removes the oldest route, except that of `client`, where there are more than [`MAX_ROUTES`].
    ///
    /// Skips routes that the kernel refuses to remove: [`RouteTable::remove_expired`] retries
    /// those.
    fn make_room(&mut self, client: IpAddr) {
        let others = self.windows.iter().filter(|(other, window)| **other != client && !window.is_over);
        if self.windows.len() > MAX_ROUTES
            && let Some(oldest) = others.min_by_key(|(_, window)| window.at).map(|(oldest, _)| *oldest)
        {
            self.remove(oldest);
        }
    }

    /// Removes expired routes, and copies of routes that another program has changed since.
    fn remove_expired(&mut self, now: Instant) {
        let changes = self.routes.changes();
        let is_over = |client: IpAddr, window: &RouteEntry| {
            window.is_over
                || now.saturating_duration_since(window.at) > CLIENT_PATH_LIFETIME
                || changes.concern(client)
        };
        let over: Vec<_> = self
            .windows
            .iter()
            .filter(|(client, window)| is_over(**client, window))
            .map(|(client, _)| *client)
            .collect();
        over.into_iter().for_each(|client| self.remove(client));
    }

    /// Removes a route; where the kernel refuses, marks it for [`RouteTable::remove_expired`] to
    /// retry.
    fn remove(&mut self, client: IpAddr) {
        let Some(window) = self.windows.get_mut(&client) else { return };
        match self.routes.remove(&window.route) {
            Ok(()) => drop(self.windows.remove(&client)),
            Err(error) => {
                window.is_over = true;
                self.remove_failed.call_once(|| {
                    tracing::warn!(%client, "a route for an initial window cannot be removed yet: {error}");
                });
            }
        }
    }
}

impl Drop for RouteTable {
    fn drop(&mut self) {
        for (client, RouteEntry { route, .. }) in self.windows.drain() {
            if let Err(error) = self.routes.remove(&route) {
                tracing::warn!(%client, "its route for an initial window stays: {error}; to remove it: {}", route.removal());
            }
        }
    }
}

#[cfg(test)]
mod tests;
