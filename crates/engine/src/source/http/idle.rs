//! Connections that wait for their next request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::connection_key::ConnectionKey;
use crate::threads::lock;

/// The most connections that are kept to one origin: more than browsers and download managers use at once (6 to 16).
const MOST_PER_ORIGIN: usize = 32;
/// The most that are kept in all, each of which holds a file descriptor.
const MOST: usize = 128;
/// How long a connection is kept where the server announces no timeout; few servers close earlier (Apache 5 s, which it
/// announces; nginx 75 s).
const LONGEST: Duration = Duration::from_secs(15);
/// A connection is not used in the last moments before the server's timeout: the request would arrive after it.
const MARGIN: Duration = Duration::from_secs(1);

/// The idle connections of a client, the one used last at the end.
#[derive(Default)]
pub(super) struct IdleConnections(Mutex<Vec<Idle>>);

struct Idle {
    connection: Connection,
    expires: Instant,
}

impl IdleConnections {
    /// Keeps a connection whose last answer has been read to its end; closes any other.
    pub(super) fn keep(&self, connection: Connection) {
        let age =
            connection.keep_alive().map_or(LONGEST, |timeout| timeout.saturating_sub(MARGIN).min(LONGEST));
        if !connection.is_idle() || age.is_zero() {
            return;
        }
        let now = Instant::now();
        let key = Arc::clone(connection.key());
        let mut idle = lock(&self.0);
        idle.retain(|one| one.expires > now);
        let same: Vec<_> = (0..idle.len()).filter(|at| *idle[*at].connection.key() == key).collect();
        if same.len() >= MOST_PER_ORIGIN {
            idle.remove(same[0]);
        } else if idle.len() >= MOST {
            idle.remove(0);
        }
        idle.push(Idle { connection, expires: now + age });
    }

    /// Takes the connection used last that fits `key` and whose peer is allowed, unless the server has closed it.
    pub(super) fn take(
        &self,
        key: &ConnectionKey,
        allows: impl Fn(SocketAddr) -> bool,
    ) -> Option<Connection> {
        loop {
            let now = Instant::now();
            let mut idle = lock(&self.0);
            idle.retain(|one| one.expires > now);
            let fits = |one: &Idle| **one.connection.key() == *key && allows(one.connection.peer());
            let at = idle.iter().rposition(fits)?;
            let mut connection = idle.remove(at).connection;
            drop(idle);
            if connection.is_silent() {
                return Some(connection);
            }
        }
    }

    /// Closes all that fit `key`: the server has closed one of them, and most likely the others too.
    pub(super) fn close(&self, key: &ConnectionKey) {
        lock(&self.0).retain(|one| **one.connection.key() != *key);
    }
}
