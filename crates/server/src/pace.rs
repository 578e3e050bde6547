//! How replies are paced: the server's own `--pace`, what clients ask for within it, and what is known of their paths.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_core::pace::Pace;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::pace::Known;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::pacing::{Finding, Hears, Paced, Pacing, Start};
use longhaul_sys::tcp_info;
use socket2::SockRef;

use crate::clients::Clients;
use crate::greeting::Greeting;
use crate::initial_window::Teller;

/// A shorter reply is over before a pace is found.
const WORTH_IT: Bytes = Bytes::mib(1);
/// A rate that is held brings at least this share of it.
const HELD: f64 = 0.8;

/// What is in force for every connection of a server.
#[derive(Debug, Clone)]
pub(crate) struct PacePolicy {
    pace: Pace,
    congestion: Option<Arc<str>>,
    pacing: Arc<Pacing>,
    memory: Arc<Memory>,
}

/// What is known of clients, and who gives them windows.
#[derive(Debug)]
struct Memory {
    started: Instant,
    clients: Mutex<Clients>,
    windows: Option<Teller>,
}

/// How one connection is paced.
#[derive(Debug, Default)]
pub(crate) struct PacedConnection {
    greeting: Option<Greeting>,
    in_force: Option<Pace>,
    paced: Option<Paced>,
    sending: Option<Sending>,
}

/// A client that is being sent something, until this is dropped.
#[derive(Debug)]
struct Sending {
    memory: Arc<Memory>,
    client: IpAddr,
}

impl PacePolicy {
    /// Paces replies as `pace` says, under `congestion` where given; tells `windows` what it finds.
    pub(crate) fn new(pace: Pace, congestion: Option<&str>, windows: Option<Teller>) -> Self {
        let memory = Memory { started: Instant::now(), clients: Mutex::default(), windows };
        Self { pace, congestion: congestion.map(Arc::from), pacing: Arc::default(), memory: Arc::new(memory) }
    }

    /// Returns the pace of a reply of this length to a client that asks for `asked`; `None` for a short one.
    pub(crate) fn of_reply(&self, length: Bytes, asked: Option<Pace>) -> Option<Pace> {
        (length >= WORTH_IT).then(|| asked.unwrap_or(self.pace).within(self.pace))
    }

    /// Paces a connection from its first byte on where it begins with more than the kernel's own window.
    ///
    /// That is so whatever became of its client's path since the window was given.
    pub(crate) fn greet(&self, socket: impl AsFd) -> Option<Greeting> {
        // What a rate of the server's own bounds is paced from the handshake on.
        let is_for_us = self.memory.windows.is_some() && self.pace == Pace::Auto;
        is_for_us.then(|| Greeting::begin(socket)).flatten()
    }
}

impl Memory {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        // Nothing panics while it is held.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rate from which a connection may start.
    fn recall(&self, client: IpAddr, asked: Option<Known>, socket: impl AsFd) -> Option<Rate> {
        let tcp = tcp_info::read(socket).ok()?;
        let (rtt, segment) = (tcp.min_rtt()?, Bytes::new(tcp.tcpi_snd_mss()?));
        self.clients().recall(client, asked, rtt, segment, self.started.elapsed())
    }

    /// Gives a client the window that goes with what is known of its path now, where it is worth that.
    fn tell(&self, client: IpAddr, local: IpAddr, known: Option<Known>, found: Finding) {
        if let Some((windows, known)) = self.windows.as_ref().zip(known) {
            windows.tell(client, local, Finding { known, ..found });
        }
    }
}

/// Hears what is found of the path to a client.
struct Listener {
    memory: Arc<Memory>,
    client: IpAddr,
    /// Our address of the connection.
    local: IpAddr,
}

impl Hears for Listener {
    fn sharing(&self) -> u32 {
        self.memory.clients().sharing(self.client)
    }

    fn hear(&self, found: Finding) {
        let Self { memory, client, local } = self;
        let known = memory.clients().learn(*client, found.known, memory.started.elapsed());
        memory.tell(*client, *local, known, found);
    }
}

impl PacedConnection {
    /// Begins with what [`PacePolicy::greet`] has returned.
    pub(crate) fn greeted(greeting: Option<Greeting>) -> Self {
        Self { greeting, ..Self::default() }
    }

    /// Paces what is sent from now on to `client`, which remembers `asked` of the path.
    pub(crate) fn begin(
        &mut self,
        policy: &PacePolicy,
        socket: impl AsFd,
        pace: Pace,
        client: IpAddr,
        asked: Option<Known>,
    ) {
        let memory = &policy.memory;
        self.sending = Some(Sending::new(memory, client));
        if self.in_force.replace(pace) == Some(pace) {
            if let Some(paced) = &self.paced {
                paced.resume();
            }
            return;
        }
        self.paced = None;
        // The pacer begins at half of what is known: with the window over the RTT, where that is in force.
        let greeted = self.greeting.as_ref().and_then(Greeting::rate).map(|rate| rate.scaled(2.0));
        let asked = asked.map(|asked| Known { rate: asked.rate.min(greeted.unwrap_or(asked.rate)), ..asked });
        let pace = self.greeting.as_ref().map_or(pace, |greeting| greeting.bound(pace));
        let start = match local(&socket) {
            Some(local) if pace == Pace::Auto => {
                let hears = Listener { memory: Arc::clone(memory), client, local };
                Start {
                    known: memory.recall(client, asked, &socket).or(greeted),
                    hears: Some(Box::new(hears)),
                }
            }
            _ => Start::default(),
        };
        match policy.pacing.take(socket, pace, policy.congestion.as_deref(), start) {
            Ok(paced) => self.paced = paced,
            Err(error) => tracing::warn!(%pace, "a reply is not paced: {error}"),
        }
    }

    /// Nothing is sent for now.
    pub(crate) fn end(&mut self, policy: &PacePolicy, socket: impl AsFd) {
        if let Some(paced) = &self.paced {
            paced.rest();
        }
        let Some(sending) = self.sending.take() else { return };
        // Nobody looks for the rate of what the server itself bounds; that it is held is seen here.
        if let (Pace::Rate(limit), Some(Pace::Rate(rate)), Some(local)) =
            (policy.pace, self.in_force, local(&socket))
            && limit == rate
            && let Some(found) = tcp_info::read(&socket).ok().and_then(|tcp| held(rate, &tcp))
        {
            let (memory, client) = (&policy.memory, sending.client);
            let known = memory.clients().learn_at_least(client, found.known, memory.started.elapsed());
            memory.tell(client, local, known, found);
        }
    }
}

impl Sending {
    fn new(memory: &Arc<Memory>, client: IpAddr) -> Self {
        memory.clients().begins(client);
        Self { memory: Arc::clone(memory), client }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.memory.clients().ends(self.client);
    }
}

/// Returns our address of a connection.
fn local(socket: impl AsFd) -> Option<IpAddr> {
    Some(SockRef::from(&socket).local_addr().ok()?.as_socket()?.ip())
}

/// Returns what a connection holds that was sent this rate; `None` where less has arrived.
fn held(rate: Rate, tcp: &TcpInfo) -> Option<Finding> {
    let known = Known { rate, rtt: tcp.min_rtt()? };
    let mtu = tcp.tcpi_pmtu().and_then(|mtu| u32::try_from(mtu).ok());
    let segment = Bytes::new(tcp.tcpi_snd_mss()?);
    (tcp.delivery_rate()? >= rate.scaled(HELD)).then_some(Finding { known, segment, mtu })
}
