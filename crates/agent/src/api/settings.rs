//! The settings and the totals.

use axum::body::Bytes;
use axum::extract::State;
use axum::{Extension, Json};

use super::error::ErrorBody;
use super::{ApiError, ApiState, blocking};
use crate::farm::FarmStatus;
use crate::queue::Stats;
use crate::scope::Scope;
use crate::settings::{Settings, SettingsPatch};

/// Returns the settings.
#[utoipa::path(get, path = "/api/v1/settings", tag = "agent", responses((status = 200, body = Settings)))]
pub(super) async fn show(State(api): State<ApiState>) -> Json<Settings> {
    Json(api.queue.settings())
}

/// Changes the settings, effective at once.
#[utoipa::path(patch, path = "/api/v1/settings", tag = "agent", request_body = SettingsPatch,
    responses((status = 200, body = Settings), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody)))]
pub(super) async fn patch(
    State(api): State<ApiState>,
    Extension(scope): Extension<Scope>,
    body: Bytes,
) -> Result<Json<Settings>, ApiError> {
    let patch: SettingsPatch = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid(format!("cannot read the settings: {error}")))?;
    scope.check_settings(&patch)?;
    blocking(&api.queue, move |queue| queue.change_settings(patch)).await.map(Json)
}

/// Returns the totals.
#[utoipa::path(get, path = "/api/v1/stats", tag = "agent", responses((status = 200, body = Stats)))]
pub(super) async fn stats(State(api): State<ApiState>) -> Result<Json<Stats>, ApiError> {
    blocking(&api.queue, crate::queue::Queue::stats).await.map(Json)
}

/// Returns the farm and its hosts; null if the agent is in none.
#[utoipa::path(get, path = "/api/v1/farm", tag = "agent", responses((status = 200, body = Option<FarmStatus>), (status = 503, body = ErrorBody)))]
pub(super) async fn farm(State(api): State<ApiState>) -> Result<Json<Option<FarmStatus>>, ApiError> {
    blocking(&api.queue, crate::queue::Queue::farm_status).await.map(Json)
}
