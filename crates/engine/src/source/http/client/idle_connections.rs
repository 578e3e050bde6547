//! Idle connections, kept for further requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::source::http::connection::{Connection, ConnectionKey};

/// The maximum number of idle connections to one origin: more than browsers and download managers
/// use at once (6 to 16).
const MAX_PER_ORIGIN: usize = 32;
/// The maximum number of idle connections in all; each holds a file descriptor.
const MAX_IDLE: usize = 128;
/// The lifetime of an idle connection if the server announces no timeout; few servers close earlier
/// (Apache 5 s, which it announces; nginx 75 s).
const MAX_IDLE_TIME: Duration = Duration::from_secs(15);
/// A connection is not used within this time before the server's timeout, which a request could
/// miss.
const MARGIN: Duration = Duration::from_secs(1);

/// The idle connections of a client, most recently used last.
#[derive(Default)]
pub(crate) struct IdleConnections(Mutex<Vec<Idle>>);

struct Idle {
    connection: Connection,
    expires: Instant,
}

impl IdleConnections {
    /// Keeps a connection whose last answer was read to its end; closes any other.
    pub(crate) fn keep(&self, connection: Connection) {
        let age = connection
            .persistence
            .timeout
            .map_or(MAX_IDLE_TIME, |timeout| timeout.saturating_sub(MARGIN).min(MAX_IDLE_TIME));
        if !connection.is_idle() || age.is_zero() {
            return;
        }
        let now = Instant::now();
        let key = Arc::clone(&connection.key);
        let mut idle = self.0.lock();
        idle.retain(|one| one.expires > now);
        let same: Vec<_> = (0..idle.len()).filter(|at| idle[*at].connection.key == key).collect();
        if same.len() >= MAX_PER_ORIGIN {
            idle.remove(same[0]);
        } else if idle.len() >= MAX_IDLE {
            idle.remove(0);
        }
        idle.push(Idle { connection, expires: now + age });
    }

    /// Takes the most recently used connection that fits `key` and whose peer is allowed, unless
    /// the server has closed it.
    pub(crate) fn take(
        &self,
        key: &ConnectionKey,
        allows: impl Fn(SocketAddr) -> bool,
    ) -> Option<Connection> {
        loop {
            let now = Instant::now();
            let mut idle = self.0.lock();
            idle.retain(|one| one.expires > now);
            let fits = |one: &Idle| *one.connection.key == *key && allows(one.connection.peer());
            let at = idle.iter().rposition(fits)?;
            let mut connection = idle.remove(at).connection;
            drop(idle);
            if connection.is_silent() {
                return Some(connection);
            }
        }
    }

    /// Closes all connections that fit `key`: the server has closed one of them, and probably the
    /// others too.
    pub(crate) fn close(&self, key: &ConnectionKey) {
        self.0.lock().retain(|one| *one.connection.key != *key);
    }
}
