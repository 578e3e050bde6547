//! What all connections to one listening address share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{Semaphore, watch};

use crate::Timeouts;
use crate::access::Access;
use crate::admission::ClientKey;
use crate::admission::connection_slots::ConnectionSlots;
use crate::admission::shares::Shares;
use crate::connection::routes::Served;
use crate::measurement::Measurement;
use crate::pacing::reply_pacing::PacePolicy;
use crate::reply::static_files::StaticFiles;
use crate::shutdown::ServerPhase;
use crate::stats::connection_stats::ConnectionStats;
use crate::tls::RenewedTls;
use crate::upload::Uploads;

/// What answers the requests to an address.
pub(crate) struct Services {
    pub(crate) served: Served,
    pub(crate) access: Access,
    pub(crate) static_files: Arc<StaticFiles>,
    /// `None` where the server is read-only.
    pub(crate) uploads: Option<Arc<Uploads>>,
    /// `None` where no measurements are allowed.
    pub(crate) measurement: Option<Measurement>,
    pub(crate) tls: Option<Arc<RenewedTls>>,
}

impl Services {
    /// Returns the services of the separate address for metrics.
    pub(crate) fn of_metrics(&self) -> Self {
        Self {
            served: Served::Metrics,
            access: Access::public(),
            static_files: Arc::clone(&self.static_files),
            uploads: None,
            measurement: None,
            tls: None,
        }
    }
}

/// The server as a connection sees it; clones share its parts.
#[derive(Clone)]
pub(crate) struct ServerContext {
    pub(crate) services: Arc<Services>,
    pub(crate) stats: Arc<ConnectionStats>,
    pub(crate) timeouts: Timeouts,
    pub(crate) pace: PacePolicy,
    /// TLS handshakes in progress.
    pub(crate) handshakes: Shares<ClientKey>,
    pub(crate) connection_slots: Arc<ConnectionSlots>,
    /// Places for connections that get no slot, until they have read why.
    pub(crate) refusals: Arc<Semaphore>,
    /// Counts the connections that the end of the server has cut.
    pub(crate) cut: Arc<AtomicUsize>,
    pub(crate) phase: watch::Receiver<ServerPhase>,
}
