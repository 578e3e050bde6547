//! The thread that gives known clients an initial window: it alone changes the host's routes.
//!
//! A route is there while its client's path is known, as long as nobody else changes the way to that client, and no
//! longer than the server runs.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use longhaul_core::initial_window::InitialWindow;
use longhaul_engine::pacing::Finding;
use longhaul_sys::host_route::{Added, HostRoute, HostRoutes};

use crate::clients::OLDEST;

/// The thread, until this is dropped: then the routes are gone.
#[derive(Debug)]
pub(crate) struct InitialWindows {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// Where it is told what was found.
#[derive(Debug, Clone)]
pub(crate) struct Teller {
    orders: Sender<Order>,
    window: InitialWindow,
}

#[derive(Debug)]
enum Order {
    Give(Gift),
    End,
}

/// A window for a client.
#[derive(Debug, Clone, Copy)]
struct Gift {
    client: IpAddr,
    /// Our address on the way to it.
    local: IpAddr,
    /// `None` where the kernel's is as good.
    segments: Option<u32>,
    mtu: Option<u32>,
}

/// How soon a route is removed after its time is over, or after somebody else has changed the way.
const TICK: Duration = Duration::from_secs(1);
/// Those given last are kept: a routing table is no place for thousands.
const MOST: usize = 256;
/// A window that differs by less than this share is as good as the new one.
const AS_GOOD: f64 = 0.25;

impl InitialWindows {
    /// Starts the thread; where the kernel does not let it change routes, that is told, and there is none.
    pub(crate) fn start(window: InitialWindow) -> Option<(Self, Teller)> {
        if window == InitialWindow::Off {
            return None;
        }
        let started = HostRoutes::open().and_then(|routes| {
            clear(&routes);
            let (orders, received) = crossbeam_channel::unbounded();
            let given = Given::new(routes);
            let thread =
                std::thread::Builder::new().name("routes".to_owned()).spawn(move || given.run(&received))?;
            Ok((orders, thread))
        });
        match started {
            Ok((orders, thread)) => {
                let teller = Teller { orders: orders.clone(), window };
                Some((Self { orders, thread: Some(thread) }, teller))
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

/// Removes what a killed server has left; new routes are no worse where that fails.
fn clear(routes: &HostRoutes) {
    match routes.clear() {
        Ok(refused) => refused.iter().for_each(|(client, error)| {
            tracing::warn!(%client, "a route that another server has left stays: {error}");
        }),
        Err(error) => tracing::warn!("what another server may have left stays: {error}"),
    }
}

impl Drop for InitialWindows {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            // Panicked, it has dropped what it had, and so removed it.
            let _ = thread.join();
        }
    }
}

impl Teller {
    /// Gives a client the window that goes with what was found of its path.
    pub(crate) fn tell(&self, client: IpAddr, local: IpAddr, found: Finding) {
        let segments = match self.window {
            InitialWindow::Off => None,
            InitialWindow::Auto => found.known.initial_window(found.segment),
            InitialWindow::Segments(segments) => Some(segments),
        };
        // The thread ends before the last connection only where it has panicked.
        let _ = self.orders.send(Order::Give(Gift { client, local, segments, mtu: found.mtu }));
    }
}

/// The routes that are there.
struct Given {
    routes: HostRoutes,
    windows: HashMap<IpAddr, Window>,
    /// Whether it was said that one cannot be made,
    no_more: Once,
    /// and that one cannot be removed.
    stays: Once,
}

/// Something that may be so for every client, and is said of the first.
#[derive(Default)]
struct Once(bool);

impl Once {
    fn say(&mut self, say: impl FnOnce()) {
        if !std::mem::replace(&mut self.0, true) {
            say();
        }
    }
}

struct Window {
    route: HostRoute,
    segments: u32,
    at: Instant,
    /// It is to be removed, which the kernel has refused so far.
    is_over: bool,
}

impl Given {
    fn new(routes: HostRoutes) -> Self {
        Self { routes, windows: HashMap::new(), no_more: Once::default(), stays: Once::default() }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = if self.windows.is_empty() {
                orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                orders.recv_timeout(TICK)
            };
            let now = Instant::now();
            self.take_back(now);
            match order {
                Ok(Order::Give(gift)) => self.give(gift, now),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn give(&mut self, Gift { client, local, segments, mtu }: Gift, now: Instant) {
        let Some(segments) = segments else { return self.remove(client) };
        if let Some(window) = self.windows.get_mut(&client)
            && !window.is_over
            && f64::from(window.segments.abs_diff(segments)) <= AS_GOOD * f64::from(window.segments)
        {
            window.at = now;
            return;
        }
        self.remove(client);
        // What could not be removed still counts; the next that is found of this client asks again.
        if self.windows.len() > MOST || self.windows.contains_key(&client) {
            return;
        }
        match self.routes.add(client, local, segments, mtu) {
            Ok(Added::Made(route)) => {
                tracing::debug!(%client, segments, "connections to it begin with this window");
                self.windows.insert(client, Window { route, segments, at: now, is_over: false });
                self.make_room(client);
            }
            Ok(Added::LeftAlone(why)) => tracing::debug!(%client, "no initial window: {why}"),
            Err(error) => self.no_more.say(|| {
                tracing::warn!(%client, "a route for an initial window cannot be made: {error}");
            }),
        }
    }

    /// Removes the oldest where there is one too many, but not this client's.
    ///
    /// Those that the kernel keeps are asked for at every tick as it is.
    fn make_room(&mut self, client: IpAddr) {
        let others = self.windows.iter().filter(|(other, window)| **other != client && !window.is_over);
        if self.windows.len() > MOST
            && let Some(oldest) = others.min_by_key(|(_, window)| window.at).map(|(oldest, _)| *oldest)
        {
            self.remove(oldest);
        }
    }

    /// Removes what is too old, and copies of what somebody has changed since.
    fn take_back(&mut self, now: Instant) {
        let changes = self.routes.changes();
        let over = |client: IpAddr, window: &Window| {
            window.is_over || now.saturating_duration_since(window.at) > OLDEST || changes.concern(client)
        };
        let over: Vec<_> = self
            .windows
            .iter()
            .filter(|(client, window)| over(**client, window))
            .map(|(client, _)| *client)
            .collect();
        over.into_iter().for_each(|client| self.remove(client));
    }

    /// Removes a window; what the kernel refuses to remove is tried again at every tick.
    fn remove(&mut self, client: IpAddr) {
        let Some(window) = self.windows.get_mut(&client) else { return };
        match self.routes.remove(&window.route) {
            Ok(()) => drop(self.windows.remove(&client)),
            Err(error) => {
                window.is_over = true;
                self.stays.say(|| {
                    tracing::warn!(%client, "a route for an initial window cannot be removed yet: {error}");
                });
            }
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for (client, Window { route, .. }) in self.windows.drain() {
            if let Err(error) = self.routes.remove(&route) {
                tracing::warn!(%client, "its route for an initial window stays: {error}; to remove it: {}", route.removal());
            }
        }
    }
}

#[cfg(test)]
mod tests;
