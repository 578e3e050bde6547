//! Connections opened before a request exists: a browser has requested a link, and may offer it to
//! the agent when the answer arrives, a round trip later.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::cancel::Cancel;
use crate::connect::{Deadline, MAX_UNUSED_AGE};
use crate::source::http::connection::{Connection, ConnectionKey};

/// The maximum number to one origin, for two links clicked in a row.
const MAX_EARLY_PER_ORIGIN: usize = 2;
/// The maximum number in all; each has a thread.
const MAX_EARLY: usize = 8;

/// The early connections that no request has taken yet.
#[derive(Default)]
pub(crate) struct EarlyConnections {
    all: Mutex<Vec<EarlyConnection>>,
    changed: Condvar,
}

struct EarlyConnection {
    key: ConnectionKey,
    begun: Instant,
    /// `None` during the handshakes, and after the connection was taken.
    connection: Option<Connection>,
    is_connecting: bool,
}

impl EarlyConnection {
    fn left(&self) -> Duration {
        MAX_UNUSED_AGE.saturating_sub(self.begun.elapsed())
    }
}

impl EarlyConnections {
    /// Calls `connect`, and keeps the connection until a request takes it or it is too old; does
    /// nothing if the limit is reached.
    ///
    /// Handshakes have the same age limit, so that a silent server does not occupy a slot for
    /// longer.
    pub(crate) fn hold(
        &self,
        key: &ConnectionKey,
        connect: impl FnOnce(ConnectionKey, &Cancel) -> Option<Connection>,
    ) {
        let begun = Instant::now();
        {
            let mut all = self.all.lock();
            let same = all.iter().filter(|early| early.key == *key).count();
            if same >= MAX_EARLY_PER_ORIGIN || all.len() >= MAX_EARLY {
                return;
            }
            all.push(EarlyConnection { key: key.clone(), begun, connection: None, is_connecting: true });
        }
        let connection = connect(key.clone(), &Cancel::new().child_until(begun + MAX_UNUSED_AGE));
        let is_made = connection.is_some();
        if let Some(early) = self.all.lock().iter_mut().find(|one| one.key == *key && one.begun == begun) {
            (early.connection, early.is_connecting) = (connection, false);
        }
        self.changed.notify_all();
        if is_made {
            std::thread::sleep(MAX_UNUSED_AGE.saturating_sub(begun.elapsed()));
        }
        self.all.lock().retain(|early| early.key != *key || early.begun != begun);
    }

    /// Takes a connection that fits `key`, whose peer is allowed, and on which the server is
    /// silent; waits for handshakes in progress.
    pub(crate) fn take(
        &self,
        key: &ConnectionKey,
        allows: impl Fn(SocketAddr) -> bool,
        deadline: &Deadline<'_>,
        tick: Duration,
    ) -> Option<Connection> {
        let mut all = self.all.lock();
        while deadline.check_cancel().is_ok() {
            let fits = |early: &&mut EarlyConnection| early.key == *key && !early.left().is_zero();
            for early in all.iter_mut().filter(fits) {
                let is_allowed = early.connection.as_ref().is_some_and(|made| allows(made.peer()));
                let taken = early.connection.take_if(|_| is_allowed);
                if let Some(mut connection) = taken
                    && connection.is_silent()
                {
                    connection.persistence.has_waited = true;
                    return Some(connection);
                }
            }
            let connecting = all.iter().filter(|early| early.key == *key && early.is_connecting);
            let left = connecting.map(EarlyConnection::left).max().unwrap_or_default().min(deadline.left());
            if left.is_zero() {
                return None;
            }
            self.changed.wait_for(&mut all, left.min(tick));
        }
        None
    }
}
