//! The HTTP API, on the Unix socket and on the loopback address; there, the checks of `auth` and
//! `origin_check` apply.

mod auth;
mod error;
mod events;
mod extract;
mod login_codes;
mod metrics;
mod openapi;
mod origin_check;
mod report;
mod settings;
mod transfers;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};

pub use auth::ApiAccess;
pub use auth::LoginUrl;
pub(crate) use auth::SCOPE_HEADER;
pub use error::{ApiError, ErrorBody, ErrorDetails};
pub(crate) use events::KEEP_ALIVE;
pub use transfers::{FreshLink, Place, TransferList, TransferPatch};

use crate::queue::Queue;
use crate::{aria2, dashboard};

/// The maximum request size: a list of 100,000 URLs.
const MAX_BODY: usize = 32 << 20;

/// The state shared by the handlers.
#[derive(Clone)]
pub struct ApiState {
    /// The queue.
    pub queue: Arc<Queue>,
    /// Access control of the API on the loopback address.
    pub access: Arc<ApiAccess>,
}

/// Returns the routes of both addresses.
fn routes() -> Router<ApiState> {
    Router::new()
        .route("/api/v1/transfers", get(transfers::list).post(transfers::add))
        .route("/api/v1/transfers/offer", post(transfers::offer))
        .route("/api/v1/connections", post(transfers::connect))
        .route(
            "/api/v1/transfers/{id}",
            get(transfers::show).delete(transfers::remove).patch(transfers::patch),
        )
        .route("/api/v1/transfers/{id}/pause", post(transfers::pause))
        .route("/api/v1/transfers/{id}/resume", post(transfers::resume))
        .route("/api/v1/transfers/{id}/cancel", post(transfers::cancel))
        .route("/api/v1/transfers/{id}/retry", post(transfers::retry))
        .route("/api/v1/transfers/{id}/refresh", post(transfers::refresh))
        .route("/api/v1/transfers/{id}/move", post(transfers::place))
        .route("/api/v1/transfers/{id}/report", get(report::report))
        .route("/api/v1/transfers/{id}/samples", get(transfers::samples))
        .route("/api/v1/settings", get(settings::show).patch(settings::patch))
        .route("/api/v1/stats", get(settings::stats))
        .route("/api/v1/farm", get(settings::farm))
        .route("/api/v1/events", get(events::listen))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/metrics", get(metrics::metrics))
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::not_allowed)
}

/// Returns the service of the Unix socket, which is protected by its permissions.
pub fn unix(state: ApiState) -> Router {
    let own = Router::new().route("/api/v1/login", get(auth::login_url));
    let routes = routes().merge(own).layer(middleware::from_fn(auth::permit_own));
    routes.layer(DefaultBodyLimit::max(MAX_BODY)).with_state(state)
}

/// Returns the service of the loopback address. Each request must have the Host of this address.
/// All requests except aria2's calls, which contain the token, must have no foreign Origin; the API
/// requires the token.
pub fn loopback(state: ApiState, aria2_rpc: bool) -> Router {
    let guarded = routes().layer(middleware::from_fn_with_state(state.clone(), auth::require_token));
    let guarded = guarded.clone().nest(state.access.page(), guarded);
    let open = Router::new().route("/login", get(auth::login)).merge(dashboard::routes());
    let of_this_origin = guarded
        .merge(open)
        .layer(middleware::from_fn_with_state(state.clone(), origin_check::require_this_origin));
    let of_any_origin = if aria2_rpc { aria2::routes() } else { Router::new() };
    of_this_origin
        .merge(of_any_origin)
        .layer(middleware::from_fn_with_state(state.clone(), origin_check::require_this_host))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

/// Runs a call that may wait for the disk on a separate thread, so that other requests are not
/// delayed.
pub async fn blocking<T: Send + 'static>(
    queue: &Arc<Queue>,
    call: impl FnOnce(&Queue) -> Result<T, crate::error::QueueError> + Send + 'static,
) -> Result<T, ApiError> {
    let queue = Arc::clone(queue);
    match tokio::task::spawn_blocking(move || call(&queue)).await {
        Ok(result) => result.map_err(ApiError::from),
        Err(_) => Err(ApiError::internal("the request failed; please report it")),
    }
}

#[cfg(test)]
mod tests;
