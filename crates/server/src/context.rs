//! What all connections to one listening address share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{Semaphore, watch};

use crate::Limits;
use crate::access::Access;
use crate::admission::ClientKey;
use crate::connection_limit::ConnectionLimit;
use crate::connection_stats::ConnectionStats;
use crate::measurement::Measurement;
use crate::reply_pacing::PacePolicy;
use crate::routes::{Offers, Served};
use crate::server_phase::ServerPhase;
use crate::shares::Shares;
use crate::static_files::StaticFiles;
use crate::tls::RenewedTls;
use crate::upload::Uploads;

/// The server's parts as a connection sees them; clones share them.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) served: Served,
    pub(crate) access: Arc<Access>,
    pub(crate) stats: Arc<ConnectionStats>,
    pub(crate) static_files: Arc<StaticFiles>,
    /// `None` where the server is read-only.
    pub(crate) uploads: Option<Arc<Uploads>>,
    /// `None` where no measurements are allowed.
    pub(crate) measurement: Option<Arc<Measurement>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) pace: PacePolicy,
    pub(crate) tls: Option<Arc<RenewedTls>>,
    /// TLS handshakes in progress.
    pub(crate) handshakes: Shares<ClientKey>,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// Places for connections that get no slot, until they have read why.
    pub(crate) refusals: Arc<Semaphore>,
    /// Counts the connections that the end of the server has cut.
    pub(crate) cut: Arc<AtomicUsize>,
    pub(crate) phase: watch::Receiver<ServerPhase>,
}

impl ServerContext {
    /// Returns what is offered to clients.
    pub(crate) fn offers(&self) -> Offers {
        Offers {
            served: self.served,
            writable: self.access.is_writable() && self.uploads.is_some(),
            measures: self.measurement.is_some(),
        }
    }
}
