//! The HTTP clients of an engine: one for each configuration, shared by its jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::source::http::client::Client;
use crate::source::http::client::config::ClientConfig;
use crate::source::http::error::HttpError;

/// The number of clients kept for further jobs; a job with a configuration of its own, such as a
/// known path's pace, uses a client that is not kept.
const MAX_CLIENTS: usize = 8;

/// Provides clients, which hold kept connections and TLS sessions.
#[derive(Default)]
pub(crate) struct Clients {
    known: Mutex<Vec<(ClientConfig, Arc<Client>)>>,
    /// Whether a file currently opens connections ahead of its streams.
    connects_ahead: Arc<AtomicBool>,
}

/// The right to open connections ahead, held by one file at a time, so that a batch of small files
/// does not flood a server.
pub(crate) struct AheadClaim(Arc<AtomicBool>);

impl Drop for AheadClaim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Clients {
    /// Returns the client of a configuration.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub(crate) fn get(&self, config: &ClientConfig) -> Result<Arc<Client>, HttpError> {
        let mut clients = self.known.lock();
        if let Some((_, client)) = clients.iter().find(|(known, _)| known == config) {
            return Ok(Arc::clone(client));
        }
        // All clients share idle connections, addresses and TLS sessions, those of one user also
        // cookies.
        let alike = clients.iter().find(|(known, _)| known.is_of_same_user(config));
        let client = match alike.or(clients.first()) {
            Some((_, alike)) => alike.with_config(config.clone())?,
            None => Client::new(config.clone())?,
        };
        let client = Arc::new(client);
        if clients.len() < MAX_CLIENTS {
            clients.push((config.clone(), Arc::clone(&client)));
        }
        Ok(client)
    }

    /// Claims the right to open connections ahead; `None` while another file holds it.
    pub(crate) fn claim_ahead(&self) -> Option<AheadClaim> {
        (!self.connects_ahead.swap(true, Ordering::Acquire))
            .then(|| AheadClaim(Arc::clone(&self.connects_ahead)))
    }
}
